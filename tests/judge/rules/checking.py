"""The findings of one rule."""

from __future__ import annotations

from opcheck.model.records import Finding, OpCall
from tests.made import make_report


def findings_by(rule: str, *calls: OpCall, **others: object) -> list[Finding]:
    """What the rule finds in the calls; the other arguments are the trace's and the target's."""
    report = make_report(*calls, **others)  # type: ignore[arg-type]
    return [finding for finding in report.findings if finding.rule == rule]
