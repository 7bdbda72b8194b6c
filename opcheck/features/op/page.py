"""The answer to ``opcheck op`` as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opcheck.render import wording
from opcheck.render.document import Block, Bullets, Heading, Lines, Table, section
from opcheck.render.wording import NOT_CHECKED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opcheck.lookup.records import Answer, OverloadAnswer
    from opcheck.model.records import Evidence


def document(answer: Answer) -> Iterator[Block]:
    """Make the page: the verdict, the table over releases, overloads, limits, evidence, links."""
    main = answer.overloads[0]
    target = answer.target
    limit = f", {answer.limit}" if answer.limit else ""
    yield Heading(f"{answer.op}: {wording.label(answer.status, answer.kind)}{limit}", 1)
    yield Lines(tuple(_head(answer, main)))
    columns = (f"status ({target['dtype'] or 'usual dtype'})", "dtypes that differ")
    rows = []
    for lines, group in wording.by_release(main.releases):
        spans = [f"{target['macos']}"] if len(main.releases) == 1 else wording.systems(group)
        for number, (cell, span) in enumerate(zip(group, spans, strict=True)):
            rows.append(
                (
                    lines if number == 0 else "",
                    span,
                    wording.label(cell.status, cell.kind),
                    wording.differing(cell.status, cell.kind, cell.dtypes),
                )
            )
    yield Table(("torch", "macOS", *columns), tuple(rows))
    if len(answer.overloads) > 1:
        yield Heading(f"Overloads on torch {target['torch']}, macOS {target['macos']}")
        yield Table(
            ("overload", "status", "since", "dtypes that differ"),
            tuple(_overload(overload) for overload in answer.overloads),
            code=(0,),
        )
    for title, notes in (("Limitations", main.limitations), ("Advisories", main.advisories)):
        yield from section(title, Bullets(tuple(map(wording.note, notes))))
    yield from section("Evidence", Bullets(tuple(map(_evidence, main.evidence))))
    yield from section("Links", Bullets(answer.links))
    lists = answer.op_lists
    yield Lines((f"{NOT_CHECKED} Op lists {lists['digest']}, newest torch {lists['newest']}.",))


def _head(answer: Answer, main: OverloadAnswer) -> Iterator[str]:
    target = answer.target
    dtype = f", {target['dtype']}" if target["dtype"] else ""
    overload = "" if main.name == answer.op else f"{main.name}, "
    yield f"On torch {target['torch']}, macOS {target['macos']}{dtype}: {overload}{answer.because}."
    if answer.status == "native":
        yield f"Native since torch {wording.since(main.since)}."
    elif answer.first_native:
        yield f"It was first native in torch {wording.since(answer.first_native)}."
    yield from (f"Note: {note}." for note in answer.notes)
    if main.prints and answer.status != "native":
        yield f"The Mac prints: {main.prints}"


def _overload(overload: OverloadAnswer) -> tuple[str, ...]:
    return (
        overload.name,
        wording.label(overload.status, overload.kind),
        overload.since,
        wording.differing(overload.status, overload.kind, overload.dtypes),
    )


def _evidence(entry: Evidence) -> str:
    place = f" ({entry.where})" if entry.where else ""
    release = f"torch {entry.torch}: " if entry.torch else ""
    return f"{release}{entry.detail or entry.kind}{place}"
