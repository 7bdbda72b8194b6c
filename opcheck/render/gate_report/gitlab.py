"""The run as GitLab's code quality report: what fails is as severe as it is, the rest is for information."""

from __future__ import annotations

import hashlib
import json

from opcheck.model.visible import one_line
from opcheck.project.gate.records import Cell, GateReport
from opcheck.render import gitlab
from opcheck.render.gate_report.merged import broken, merged, on


def render(gate: GateReport, _format_name: str = "gitlab") -> str:
    """A JSON list: one entry a finding and place, whoever has it, and one a model that was not audited."""
    entries = [_broken(cell) for cell, _ in broken(gate)]
    for hit in merged(gate):
        entry = gitlab.entry(hit.report, hit.hit)
        entry["description"] = f"{entry['description']}. {hit.state}: {one_line(on(hit, gate))}"
        if hit.state != "new":
            entry["severity"] = "info"
        entries.append(entry)
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


def _broken(cell: Cell) -> dict[str, object]:
    message = cell.failed.message if cell.failed else ""
    return {
        "description": one_line(f"{cell.model} could not be audited: {message}"),
        "check_name": "gate",
        "fingerprint": hashlib.sha256(
            f"gate {cell.model} {message}".encode("utf-8", "backslashreplace")
        ).hexdigest()[:32],
        "severity": "critical",
        "location": {"path": one_line(cell.model), "lines": {"begin": 1}},
    }
