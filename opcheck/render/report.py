"""The report of an audit in the formats of CI services."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from opcheck.judge.judge import outcome
from opcheck.model.records import CallGroup, Finding, Report
from opcheck.render import findings, summary
from opcheck.render.findings import Case, FindingLog, Suite

COLUMNS = (
    "model",
    "torch",
    "macos",
    "cpu_fallback",
    "operator",
    "status",
    "kind",
    "what_happens",
    "calls",
    "because",
    "confidence",
    "dtypes",
    "phases",
    "limitations",
    "advisories",
    "places",
)


def finding_log(report: Report) -> FindingLog:
    """List the findings at each of their places."""
    return FindingLog(
        tool=report.tool,
        id=f"opcheck/{report.model}/{summary.target(report)}",
        occurrences=tuple(findings.occurrences(report.findings, report.model, report.groups)),
        properties={
            "headline": report.headline,
            "model": report.model,
            "target": report.target,
            "totals": report.totals,
            "complete": report.capture["complete"],
            "opLists": msgspec.to_builtins(report.op_lists),
            "notChecked": report.not_checked,
        },
        summary=(summary.headline(report),),
    )


def suites(report: Report) -> tuple[str, Iterable[Suite]]:
    """Name the run, and make one suite: a test case for each group of calls.

    A group fails with its errors, and is skipped where its status is unknown: it never passes for
    native. A finding that is not about one operator is a test case of its own.
    """
    properties = {
        "tool": report.tool,
        "headline": report.headline,
        "totals": summary.totals(report),
        "transfers": summary.transfers(report),
        "evidence": summary.evidence(report),
    }
    name = f"{report.model} on {summary.target(report)}"
    return "opcheck", [Suite(name, _cases(report), properties)]


def _cases(report: Report) -> Iterator[Case]:
    rest = list(report.findings)
    for group in report.groups:
        own = [finding for finding in rest if _is_about(finding, group)]
        rest = [finding for finding in rest if finding not in own]
        verdict = group.verdict
        # Two groups of one operator differ in the reason, and so in their names.
        name = f"{group.op}: {outcome(verdict).label} ({verdict.because})"
        first = next((place.location for place in group.locations if place.location), None)
        attributes = {"file": first.file, "line": str(first.line)} if first else {}
        unknown = verdict.status == "unknown" and not any(map(findings.is_failure, own))
        yield findings.finding_case(
            "opcheck.operators",
            name,
            own,
            {"assertions": "1", **attributes},
            f"unknown: {verdict.because}" if unknown else "",
        )
    for finding in rest:
        name = f"{finding.rule} {finding.message}"
        yield findings.finding_case("opcheck.findings", name, [finding])


def _is_about(finding: Finding, group: CallGroup) -> bool:
    """Return whether a finding is about this operator at one of these places."""
    return finding.op == group.op and any(place in group.locations for place in finding.locations)


def rows(report: Report) -> Iterator[tuple[str, ...]]:
    """Make a row of COLUMNS for each group of calls."""
    target = report.target
    for group in report.groups:
        verdict = group.verdict
        yield (
            report.model,
            str(target["torch"]),
            str(target["macos"]),
            "1" if target["cpu_fallback"] else "0",
            group.op,
            verdict.status,
            verdict.kind or "",
            outcome(verdict).label,
            str(group.count),
            verdict.because,
            verdict.confidence,
            " ".join(group.dtypes),
            " ".join(group.phases),
            " ".join(verdict.limitations),
            " ".join(verdict.advisories),
            "; ".join(summary.place(place) for place in group.locations),
        )


def lines(report: Report) -> Iterator[dict[str, object]]:
    """Make an object for each finding, with what it is about."""
    about = {
        "model": report.model,
        "target": report.target,
        "headline": report.headline,
    }
    yield from findings.lines(report.tool, about, report.findings)
