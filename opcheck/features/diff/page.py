"""The answer to ``opcheck diff`` as a page."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from opcheck.common.sanitize import one_line
from opcheck.common.text import plural
from opcheck.lookup.query import usual
from opcheck.render import wording
from opcheck.render.document import Block, Bullets, Heading, Lines, Table, section
from opcheck.render.wording import NOT_CHECKED, listed, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opcheck.judge.report_changes import Comparison, Difference
    from opcheck.lookup.diff import Change, DiffAnswer
    from opcheck.lookup.records import State

_TITLES = {
    "regressed": "Worse",
    "dtypes_lost": "Worse for some dtypes",
    "removed": "Removed",
    "improved": "Better",
    "dtypes_gained": "Better for some dtypes",
    "added": "New",
    "other": "Different",
}


def document(answer: DiffAnswer) -> Iterator[Block]:
    """Make the page: what is worse first, overloads that change for one reason together."""
    before, after = answer.before["torch"], answer.after["torch"]
    dtype = f", {answer.dtype}" if answer.dtype else ""
    yield Heading(f"torch {before} to {after} on macOS {answer.macos}{dtype}", 1)
    texts = [
        f"{_TITLES[name].lower()}: {plural(count, 'overload')}"
        for name, count in answer.counts.items()
        if count
    ]
    yield Lines(("; ".join(texts) or "nothing changed", *(f"Note: {n}." for n in answer.notes)))
    for name, changes in groupby(answer.changes, key=lambda change: change.change):
        yield Heading(_TITLES[name])
        yield Table(("operator", before, after, "why"), tuple(_rows(list(changes))), code=(0,))
    lists = answer.op_lists
    yield Lines((f"{NOT_CHECKED} Op lists {lists['digest']}, newest torch {lists['newest']}.",))


def _rows(changes: Sequence[Change]) -> Iterator[tuple[str, ...]]:
    """Make one row for the overloads of an operator that change alike."""
    groups: dict[object, list[Change]] = {}
    for change in changes:
        base = change.name.partition(".")[0]
        states = str((change.before, change.after, change.dtypes))
        groups.setdefault((base, states), []).append(change)
    for group in groups.values():
        by_name = {change.name: change for change in group}
        main = by_name[usual(by_name)]
        others = f" and {plural(len(group) - 1, 'more overload')}" if len(group) > 1 else ""
        dtypes = "; ".join(
            f"{dtype}: {_label(was)} -> {_label(now)}" for dtype, (was, now) in main.dtypes.items()
        )
        same = main.before == main.after
        why = dtypes if same else main.because
        yield main.name + others, _label(main.before), _label(main.after), why


def _label(state: State | None) -> str:
    return wording.label(state.status, state.kind) if state else "no such overload"


def comparison_document(comparison: Comparison) -> Iterator[Block]:
    """Make the page of two reports: the new findings first."""
    yield Heading(f"{comparison.before['name']} to {comparison.after['name']}", 1)
    counts = ", ".join(f"{count:,} {name}" for name, count in comparison.counts.items())
    yield Lines(
        (
            *(f"Careful: {warning}." for warning in comparison.warnings),
            f"before: {_side(comparison.before)}",
            f"after: {_side(comparison.after)}",
            f"{counts} (each finding at each of its lines)",
        )
    )
    yield from section("New", Bullets(tuple(listed(comparison.new))))
    yield from section("Fixed", Bullets(tuple(listed(comparison.fixed, hints=False))))
    yield from section("Changed", Bullets(tuple(map(_change_line, comparison.changed))))
    rules = sorted({entry.rule for entry in comparison.new})
    yield from section("Next", Lines(tuple(f"opcheck explain {rule}" for rule in rules[:1])))
    yield from section("Not checked", Bullets(comparison.not_checked))


def _side(about: dict[str, Any]) -> str:
    target = about["target"]
    variable = ", PYTORCH_ENABLE_MPS_FALLBACK=1" if target.get("cpu_fallback") else ""
    where = f"torch {target['torch']}, macOS {target['macos']}{variable}"
    return one_line(f"{about['headline']}: {about['model']} on {where}")


def _change_line(change: Difference) -> str:
    entry = change.after
    return one_line(
        f"{entry.rule} {entry.op or entry.message} {place_of(entry)}: {'; '.join(change.what)}"
    )
