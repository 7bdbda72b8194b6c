"""What of a report can be compared, and what a comparison says."""

from __future__ import annotations

from collections.abc import Iterable

from opcheck.model.records import Finding, GroupLocation, Record, Report, ReportTarget


class Entry(Record, frozen=True, kw_only=True):
    """A finding at one of its places."""

    fingerprint: str
    rule: str
    severity: str
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
    #: why nobody needs to look at it; empty: it counts.
    ignored: str = ""


class Side(Record, frozen=True, kw_only=True):
    """A report as far as it is compared."""

    #: how the user named it: a file, or a target
    name: str
    model: str
    target: ReportTarget
    headline: str
    totals: dict[str, int]
    #: inference, train, run
    mode: str
    inputs: tuple[str, ...]
    #: false: the run broke off
    complete: bool
    #: digest of the op lists that it was judged by
    op_lists: str
    entries: tuple[Entry, ...]


class Difference(Record, frozen=True, kw_only=True):
    """An entry of both sides that does not say the same."""

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


def side_of(report: Report, name: str) -> Side:
    """A report, one that was just made or one that was read."""
    return Side(
        name=name,
        model=report.model,
        target=report.target,
        headline=report.headline,
        totals=report.totals,
        mode=report.capture.mode,
        inputs=report.capture.inputs,
        complete=report.capture.complete,
        op_lists=report.op_lists.digest,
        entries=entries_of(report.findings),
    )


def entries_of(findings: Iterable[Finding]) -> tuple[Entry, ...]:
    """Each finding at each of its places, in their order, with its fingerprints."""
    return tuple(
        _entry(finding, place, fingerprint)
        for finding in findings
        for place, fingerprint in zip(
            finding.locations or (GroupLocation(count=finding.count),),
            finding.fingerprints,
            strict=True,
        )
    )


def _entry(finding: Finding, place: GroupLocation, fingerprint: str) -> Entry:
    return Entry(
        fingerprint=fingerprint,
        rule=finding.rule,
        severity=finding.severity,
        op=finding.op,
        message=finding.message,
        hint=finding.hint,
        line=place.line,
        text=place.text.strip(),
        module=place.module,
        phase=place.phase if finding.locations else "",
        count=place.count,
        ignored=finding.ignored,
    )
