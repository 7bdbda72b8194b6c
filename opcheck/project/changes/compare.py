"""Two sides -> what is new, fixed and changed, by the fingerprints of the findings."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from opcheck.common.tool import TOOL
from opcheck.common.vocabulary import SEVERITIES
from opcheck.model.fingerprint import without_quantities
from opcheck.project.changes.records import Comparison, Difference, Entry, Side

NOT_CHECKED = (
    "nothing was observed on a Mac: both sides follow from what the releases register",
    "a line that was rewritten counts as one finding fixed and one new",
)


def compare(before: Side, after: Side) -> Comparison:
    """Everything that differs; in the order of the report after (fixed: before)."""
    was = {entry.fingerprint: entry for entry in before.entries}
    now = {entry.fingerprint: entry for entry in after.entries}
    both = [(was[name], entry) for name, entry in now.items() if name in was]
    changed = tuple(
        Difference(before=one, after=other, what=what)
        for one, other in both
        if (what := tuple(_changes(one, other)))
    )
    new = tuple(entry for name, entry in now.items() if name not in was)
    fixed = tuple(entry for name, entry in was.items() if name not in now)
    return Comparison(
        tool=TOOL,
        before=_about(before),
        after=_about(after),
        warnings=tuple(_warnings(before, after)),
        counts={
            "new": len(new),
            "fixed": len(fixed),
            "changed": len(changed),
            "unchanged": len(both) - len(changed),
        },
        new=new,
        fixed=fixed,
        changed=changed,
        not_checked=NOT_CHECKED,
    )


def at_or_above(severity: str, level: str) -> bool:
    """Whether a severity counts for ``--fail-on LEVEL``; nothing does for ``never``."""
    return level in SEVERITIES and SEVERITIES.index(severity) <= SEVERITIES.index(level)


def worse(comparison: Comparison, level: str) -> bool:
    """Whether something that nobody ignores is new at or above a level, or was below it or ignored before."""
    risen = (
        change.after
        for change in comparison.changed
        if change.before.ignored or not at_or_above(change.before.severity, level)
    )
    return any(
        at_or_above(entry.severity, level) and not entry.ignored
        for entry in (*comparison.new, *risen)
    )


def _changes(one: Entry, other: Entry) -> Iterator[str]:
    if one.severity != other.severity:
        yield f"severity: {one.severity} -> {other.severity}"
    if one.ignored != other.ignored:
        yield f"ignored: {one.ignored or 'no'} -> {other.ignored or 'no'}"
    if one.count != other.count:
        yield f"calls: {one.count:,} -> {other.count:,}"
    # The release stands in most messages; of two releases it says nothing.
    if without_quantities(one.message) != without_quantities(other.message):
        yield f"message: {other.message}"


def _about(side: Side) -> dict[str, object]:
    return {
        "name": side.name,
        "model": side.model,
        "target": msgspec.to_builtins(side.target),
        "headline": side.headline,
        "totals": side.totals,
        "complete": side.complete,
    }


def _warnings(before: Side, after: Side) -> Iterator[str]:
    for what, one, other in (
        ("models", before.model, after.model),
        ("runs", before.mode, after.mode),
        ("inputs", ", ".join(before.inputs), ", ".join(after.inputs)),
    ):
        if one != other:
            yield f"two different {what}: {one or 'none'} and {other or 'none'}"
    for side in (before, after):
        if not side.complete:
            yield f"the run of {side.name} broke off: what came after is in neither list"
    if before.op_lists != after.op_lists:
        yield "judged by different op lists: a change may be one of the lists alone"
