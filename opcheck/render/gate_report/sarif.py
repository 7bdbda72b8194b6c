"""The run as SARIF 2.1.0, one run for all models and targets: a finding that several have is one result.

GitHub takes at most twenty runs of a file, and one result a fingerprint; who has a result stands in its properties.  With a
baseline each result says whether it is in it (3.27.24), a model that could not be audited is a notification (3.20.21).
"""

from __future__ import annotations

import json
from typing import Any

from opcheck.common.catalogue import by_id
from opcheck.project.gate.records import GateReport
from opcheck.render import sarif
from opcheck.render.gate_report.merged import Merged, broken, merged, on


def render(gate: GateReport, _format_name: str = "sarif") -> str:
    """A log of one run."""
    hits = merged(gate)
    names = {hit.hit.finding.rule for hit in hits}
    rules = [page for name, page in by_id().items() if name in names]
    numbers = {page.id: number for number, page in enumerate(rules)}
    name, _, version = gate.tool.partition(" ")
    failed = list(broken(gate))
    run = {
        "tool": {
            "driver": {
                "name": name,
                "version": version,
                "semanticVersion": version,
                "rules": [sarif.rule_content(page) for page in rules],
            }
        },
        "automationDetails": {"id": "opcheck-gate/"},
        "invocations": [
            {
                "executionSuccessful": not failed and not gate.left,
                "exitCode": gate.code,
                "toolExecutionNotifications": [
                    {"level": "error", "message": {"text": f"{cell.model}: {cell.failed.message}"}}
                    for cell, _ in failed
                    if cell.failed
                ],
            }
        ],
        "columnKind": "unicodeCodePoints",
        "results": [_result(hit, gate, numbers[hit.hit.finding.rule]) for hit in hits],
        "properties": {
            "models": list(gate.models),
            "targets": list(gate.targets),
            "opLists": gate.op_lists,
            "notes": list(gate.notes),
        },
    }
    log = {"$schema": sarif.SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def _result(one: Merged, gate: GateReport, rule_index: int) -> dict[str, Any]:
    made = sarif.result(one.report, one.hit, rule_index)
    text = f"{made['message']['text']}\nFor: {on(one, gate)}"
    properties = {
        **made["properties"],
        "gate": one.state,
        "models": list(one.models),
        "targets": list(one.targets),
    }
    result = {**made, "message": {"text": text}, "properties": properties}
    if gate.baseline and one.state in {"new", "known"}:
        result["baselineState"] = "unchanged" if one.state == "known" else "new"
    return result
