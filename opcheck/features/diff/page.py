"""The answer to ``opcheck diff`` as a page."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from opcheck.common.grouping import group_values
from opcheck.common.sanitize import one_line
from opcheck.common.text import and_more, plural
from opcheck.common.versions import target_text
from opcheck.judge.report_changes import Comparison, Difference
from opcheck.lookup.answer_records import State, route_words
from opcheck.lookup.diff import CHANGES, IMPROVEMENTS, REGRESSIONS, DiffAnswer, OverloadChange, RouteChange
from opcheck.lookup.matrix import cell_state
from opcheck.lookup.query import usual
from opcheck.render import wording
from opcheck.render.document import Block, Bullets, Facts, Heading, Lines, Table, Words, section

_WORDS = ("Worse", "Worse for some dtypes", "Removed", "Better", "Better for some dtypes", "New", "Different")
_TITLES = dict(zip(CHANGES, _WORDS, strict=True))
#: The changes in one word, where their own name is none.
_WORD = {"regressed": "worse", "dtypes_lost": "dtypes", "improved": "better", "dtypes_gained": "dtypes", "added": "new"}
#: How many operators a short answer names of what is worse, and of what is better.
_NAMED = (5, 3)


def document(answer: DiffAnswer, shown: Collection[str] = ("verbose",)) -> Iterator[Block]:
    """Make the page: what is worse first, overloads that change for one reason together."""
    before, after = answer.before["torch"], answer.after["torch"]
    dtype = f", {answer.dtype}" if answer.dtype else ""
    yield Heading(f"torch {before} to {after} on macOS {answer.macos}{dtype}", 1)
    counts = {_TITLES[name].lower(): count for name, count in answer.counts.items() if count}
    texts = [f"{title}: {plural(count, 'overload')}" for title, count in counts.items()]
    yield Lines(("; ".join(texts) or "nothing changed", *(f"Note: {n}." for n in answer.notes)))
    tables = {
        name: tuple(_rows(list(changes))) for name, changes in groupby(answer.changes, key=lambda change: change.change)
    }
    routes = groupby(answer.routes, key=lambda change: change.name.partition(".")[0].rstrip("_"))
    moved = tuple(_route_row(list(changes)) for _, changes in routes)
    if "verbose" in shown:
        for name, rows in tables.items():
            yield Heading(_TITLES[name])
            yield Table(("operator", before, after, "why"), rows, code=(0,))
        yield from section("Computed in another way", Table(("operator", before, after), moved, code=(0,)))
    elif facts := tuple(_facts(tables, moved)):
        yield Facts(facts)
    yield wording.closing_line(answer.op_lists, () if "verbose" in shown else ("verbose",))


def _facts(
    tables: Mapping[str, Sequence[tuple[str, ...]]], moved: Sequence[tuple[str, ...]]
) -> Iterator[tuple[str, Words]]:
    """Yield the first operators of each change: the worse ones first, those that are computed in another way last."""
    worse, better = _NAMED
    for names, room in ((REGRESSIONS, worse - bool(moved)), (IMPROVEMENTS, better)):
        changed = ((name, row) for name in names for row in tables.get(name, ()))
        rows = [(_WORD.get(name, name), f"{row[0]}: {_change(row)}", "") for name, row in changed]
        yield from wording.limit_rows(rows, room, "-v")
    if moved:
        yield "route", wording.cut(f"computed in another way: {and_more([m[0] for m in moved], 2)}")


def _change(row: Sequence[str]) -> str:
    _, before, after, why = row
    return why if before == after else f"{before} -> {after}"


def _rows(changes: Sequence[OverloadChange]) -> Iterator[tuple[str, ...]]:
    """Make one row for the overloads of an operator that change alike."""
    alike = (((c.name.partition(".")[0], str((c.before, c.after, c.dtypes))), c) for c in changes)
    for group in group_values(alike).values():
        by_name = {change.name: change for change in group}
        main = by_name[usual(by_name)]
        others = f" and {plural(len(group) - 1, 'more overload')}" if len(group) > 1 else ""
        dtypes = "; ".join(f"{dtype}: {_label(was)} -> {_label(now)}" for dtype, (was, now) in main.dtypes.items())
        why = dtypes if main.before == main.after else main.because
        yield main.name + others, _label(main.before), _label(main.after), why


def _route_row(changes: Sequence[RouteChange]) -> tuple[str, ...]:
    others = f" and {plural(len(changes) - 1, 'more overload')}" if len(changes) > 1 else ""
    first = changes[0]
    return first.name + others, route_words(first.before), route_words(first.after)


def _label(state: State | None) -> str:
    return wording.LABELS[cell_state(state)] if state else "no such overload"


def comparison_document(comparison: Comparison, shown: Collection[str] = ("verbose",)) -> Iterator[Block]:
    """Make the page of two reports: the new findings first."""
    most = None if "verbose" in shown else 2
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
    yield from section("New", Bullets(tuple(wording.list_findings(comparison.new)), most))
    yield from section("Fixed", Bullets(tuple(wording.list_findings(comparison.fixed, hints=False)), most))
    yield from section("Changed", Bullets(tuple(map(_change_line, comparison.changed)), most))
    rules = sorted({entry.rule for entry in comparison.new})
    yield from section("Next", Lines(tuple(f"opcheck explain {rule}" for rule in rules[:1])))
    yield from section("Not checked", Bullets(comparison.not_checked))


def _side(about: dict[str, Any]) -> str:
    target = about["target"]
    where = target_text(target["torch"], target["macos"], "", cpu_fallback=bool(target.get("cpu_fallback")))
    return one_line(f"{about['headline']}: {about['model']} on {where}")


def _change_line(change: Difference) -> str:
    entry = change.after
    return one_line(f"{entry.rule} {entry.op or entry.message} {wording.place_of(entry)}: {'; '.join(change.what)}")
