"""The run line by line: JSON lines hold a finding of a cell each, CSV a cell each."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

from opcheck.common.sanitize import cell as csv_cell
from opcheck.project.gate.records import Cell, GateReport
from opcheck.render.gate_report.merged import state
from opcheck.render.where import hits

SCHEMA = "opcheck-gate-finding/1"
COLUMNS = ("model", "target", "headline", "code", "new", "known", "ignored", "fixed", "reasons")


def render(gate: GateReport, format_name: str) -> str:
    """As JSON lines, or as CSV with a header."""
    if format_name == "jsonl":
        return "".join(
            json.dumps(line) + "\n" for cell in gate.cells for line in _findings(gate, cell)
        )
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows([csv_cell(value) for value in _row(cell)] for cell in gate.cells)
    return text.getvalue()


def _findings(gate: GateReport, one: Cell) -> Iterator[dict[str, object]]:
    about = {
        "schema": SCHEMA,
        "tool": gate.tool,
        "model": one.model,
        "target": one.target,
        "headline": one.headline,
    }
    if one.failed is not None:
        yield {**about, "state": "failed", "message": one.failed.message}
    for hit in hits(one.report) if one.report else ():
        yield {
            **about,
            "state": state(hit, one),
            "fingerprint": hit.fingerprint,
            "rule": hit.finding.rule,
            "severity": hit.finding.severity,
            "message": hit.finding.message,
            "op": hit.finding.op,
            "file": hit.file,
            "line": hit.line if hit.place and hit.place.location else 0,
            "hint": hit.finding.hint,
            "ignored": hit.finding.ignored,
        }


def _row(one: Cell) -> tuple[str, ...]:
    ignored = sum(bool(hit.finding.ignored) for hit in hits(one.report)) if one.report else 0
    return (
        one.model,
        one.target,
        one.headline,
        str(one.judgement.code),
        str(len(one.judgement.against)),
        str(len(one.known)),
        str(ignored),
        str(len(one.fixed)),
        "; ".join(one.judgement.reasons),
    )
