"""The operators as CSV: one row a group of calls."""

from __future__ import annotations

import csv
import io

from opcheck.common.sanitize import cell
from opcheck.judge.judge import outcome
from opcheck.model.records import CallGroup, Report
from opcheck.model.visible import visible
from opcheck.render import summary

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


def render(report: Report) -> str:
    """A header, and the groups in the order of the report."""
    shown = visible(report)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows([cell(value) for value in _row(shown, group)] for group in shown.groups)
    return text.getvalue()


def _row(report: Report, group: CallGroup) -> tuple[str, ...]:
    verdict, target = group.verdict, report.target
    return (
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
