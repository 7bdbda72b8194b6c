"""The differences of two reports as a page: the new ones first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opcheck.common.sanitize import one_line
from opcheck.render.document import Block, Bullets, Heading, Lines, section
from opcheck.render.wording import listed, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opcheck.judge.report_changes import Comparison, Difference


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


def _changed(change: Difference) -> str:
    entry = change.after
    return one_line(
        f"{entry.rule} {entry.op or entry.message} {place_of(entry)}: {'; '.join(change.what)}"
    )
