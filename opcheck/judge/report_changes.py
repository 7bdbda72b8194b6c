"""Compares two reports by the fingerprints of their findings: what is new, fixed and changed."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from opcheck.common.picking import pick
from opcheck.common.tool import TOOL
from opcheck.common.vocabulary import SEVERITIES, Severity
from opcheck.model.fingerprint import without_quantities
from opcheck.model.records import Finding, GroupLocation, Record, Report

NOT_CHECKED = (
    "nothing was observed on a Mac: both sides follow from the releases' registrations",
    "a line that was rewritten counts as one finding fixed and one new",
)


class Entry(Record, frozen=True, kw_only=True):
    """A finding at a single place."""

    fingerprint: str
    rule: str
    severity: Severity
    op: str
    message: str
    hint: str
    #: ``file:line``, and that line; empty: it has none.
    line: str = ""
    text: str = ""
    module: str = ""
    phase: str = ""
    #: calls from there
    count: int = 1
    #: why it is ignored; empty: it counts.
    ignored: str = ""


class Side(NamedTuple):
    """A report of the comparison, just made or read from a file."""

    #: how the user named it: a file, or a target
    name: str
    report: Report

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Each finding at each of its places."""
        return entries_of(self.report.findings)


class Difference(Record, frozen=True, kw_only=True):
    """An entry that is on both sides and differs."""

    before: Entry
    after: Entry
    #: ``severity: warning -> error``, ``calls: 3 -> 5`` ...
    what: tuple[str, ...]


class Comparison(Record, frozen=True, kw_only=True):
    """The answer to ``opcheck diff`` of two reports, or of two targets of one model."""

    schema: str = "opcheck-changes/1"
    tool: str
    #: name, model, target and headline
    before: dict[str, object]
    after: dict[str, object]
    #: why the two should be compared with care
    warnings: tuple[str, ...]
    #: entries that are new, fixed, changed, unchanged
    counts: dict[str, int]
    new: tuple[Entry, ...]
    fixed: tuple[Entry, ...]
    changed: tuple[Difference, ...]
    not_checked: tuple[str, ...]


def entries_of(findings: Iterable[Finding]) -> tuple[Entry, ...]:
    """Return an entry for each finding at each of its places, in their order, with its fingerprint."""
    return tuple(
        Entry(
            fingerprint=fingerprint,
            **pick(finding, "rule", "severity", "op", "message", "hint", "ignored"),
            **pick(place, "line", "module", "count"),
            text=place.text.strip(),
            phase=place.phase if finding.locations else "",
        )
        for finding in findings
        for place, fingerprint in zip(
            finding.locations or (GroupLocation(count=finding.count),), finding.fingerprints, strict=True
        )
    )


def compare(before: Side, after: Side) -> Comparison:
    """Return everything that differs, in the order of the later report (fixed entries: of the earlier)."""
    was = {entry.fingerprint: entry for entry in before.entries}
    now = {entry.fingerprint: entry for entry in after.entries}
    both = [(was[name], entry) for name, entry in now.items() if name in was]
    differences = (Difference(before=old, after=new, what=tuple(_changes(old, new))) for old, new in both)
    changed = tuple(each for each in differences if each.what)
    new = tuple(entry for name, entry in now.items() if name not in was)
    fixed = tuple(entry for name, entry in was.items() if name not in now)
    return Comparison(
        tool=TOOL,
        before=_describe_side(before),
        after=_describe_side(after),
        warnings=tuple(_warnings(before, after)),
        counts={"new": len(new), "fixed": len(fixed), "changed": len(changed), "unchanged": len(both) - len(changed)},
        new=new,
        fixed=fixed,
        changed=changed,
        not_checked=NOT_CHECKED,
    )


def worse(comparison: Comparison, level: str) -> bool:
    """Return whether a finding that is not ignored newly reached the level, or was ignored before."""
    failing = SEVERITIES[: SEVERITIES.index(level) + 1] if level in SEVERITIES else ()

    def counts(entry: Entry) -> bool:
        return entry.severity in failing and not entry.ignored

    risen = (counts(each.after) and not counts(each.before) for each in comparison.changed)
    return any(map(counts, comparison.new)) or any(risen)


def _changes(earlier: Entry, later: Entry) -> Iterator[str]:
    if earlier.severity != later.severity:
        yield f"severity: {earlier.severity} -> {later.severity}"
    if earlier.ignored != later.ignored:
        yield f"ignored: {earlier.ignored or 'no'} -> {later.ignored or 'no'}"
    if earlier.count != later.count:
        yield f"calls: {earlier.count:,} -> {later.count:,}"
    # Most messages name the release, which always differs between two releases.
    if without_quantities(earlier.message) != without_quantities(later.message):
        yield f"message: {later.message}"


def _describe_side(side: Side) -> dict[str, object]:
    report = side.report
    parts = {"model": report.model, "target": report.target, "headline": report.headline, "totals": report.totals}
    return {"name": side.name, **msgspec.to_builtins(parts), "complete": report.capture.complete}


def _warnings(before: Side, after: Side) -> Iterator[str]:
    reports = (before.report, after.report)
    sides = [(each.model, each.capture.mode, ", ".join(each.capture.inputs)) for each in reports]
    for what, earlier, later in zip(("models", "runs", "inputs"), *sides, strict=True):
        if earlier != later:
            yield f"two different {what}: {earlier or 'none'} and {later or 'none'}"
    for side in (before, after):
        if not side.report.capture.complete:
            yield f"the run of {side.name} broke off: what came after is in neither list"
    if before.report.op_lists.digest != after.report.op_lists.digest:
        yield "the op lists differ: a change may come from the lists, not from the model"
