"""The differences of two reports as a page: the new ones first."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from opcheck.common.sanitize import one_line
from opcheck.common.text import and_more
from opcheck.render.document import Block, Bullets, Heading, Lines, section

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from opcheck.project.changes.compare import Comparison, Difference, Entry

#: Places of one finding that are named.
_SHOWN = 3


def document(comparison: Comparison) -> Iterator[Block]:
    """Make the page."""
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
    yield from section("Changed", Bullets(tuple(map(_changed, comparison.changed))))
    rules = sorted({entry.rule for entry in comparison.new})
    yield from section("Next", Lines(tuple(f"opcheck explain {rule}" for rule in rules[:1])))
    yield from section("Not checked", Bullets(comparison.not_checked))


def _side(about: dict[str, Any]) -> str:
    target = about["target"]
    variable = ", PYTORCH_ENABLE_MPS_FALLBACK=1" if target.get("cpu_fallback") else ""
    where = f"torch {target['torch']}, macOS {target['macos']}{variable}"
    return one_line(f"{about['headline']}: {about['model']} on {where}")


def listed(entries: Iterable[Entry], *, hints: bool = True) -> Iterator[str]:
    """Write a line for each finding: its first places, and its help unless the finding is gone."""

    def finding(entry: Entry) -> tuple[str, str, str, str, str]:
        return entry.severity, entry.rule, entry.message, entry.hint, entry.ignored

    for (severity, rule, message, hint, ignored), group in groupby(entries, key=finding):
        places = [place for entry in group if (place := _place(entry))]
        parts = (
            f"{severity} {rule} {message}",
            and_more(places, _SHOWN),
            f"ignored: {ignored}" if ignored else "",
            f"help: {hint}" if hint and hints and not ignored else "",
        )
        yield " -- ".join(filter(None, parts))


def _changed(change: Difference) -> str:
    entry = change.after
    return one_line(
        f"{entry.rule} {entry.op or entry.message} {_place(entry)}: {'; '.join(change.what)}"
    )


def _place(entry: Entry) -> str:
    module = f" ({entry.module})" if entry.module else ""
    phase = f" in {entry.phase}" if entry.phase not in {"", "forward"} else ""
    return f"{entry.line or 'no line'}{phase}{module}" if entry.line or entry.module else ""
