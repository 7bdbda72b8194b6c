"""The run as plain data, schema ``opcheck-gate/1``: JSON and YAML hold the same, the whole report of each cell in it."""

from __future__ import annotations

import json

import msgspec

from opcheck.project.gate.records import Cell, GateReport
from opcheck.render.content import as_dict
from opcheck.render.yaml import dump


def render(gate: GateReport, format_name: str) -> str:
    """As JSON or YAML."""
    content = gate_content(gate)
    if format_name == "yaml":
        return dump(content)
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def gate_content(gate: GateReport) -> dict[str, object]:
    """Every key always present."""
    return {
        "schema": gate.schema,
        "tool": gate.tool,
        "op_lists": gate.op_lists,
        "exit_code": gate.code,
        "models": list(gate.models),
        "targets": list(gate.targets),
        "baseline": gate.baseline,
        "notes": list(gate.notes),
        "left": list(gate.left),
        "cells": [_cell(cell) for cell in gate.cells],
    }


def _cell(cell: Cell) -> dict[str, object]:
    return {
        "model": cell.model,
        "target": cell.target,
        "headline": cell.headline,
        "code": cell.judgement.code,
        "reasons": list(cell.judgement.reasons),
        "against": list(cell.judgement.against),
        "known": list(cell.known),
        "fixed": msgspec.to_builtins(cell.fixed),
        "failed": msgspec.to_builtins(cell.failed),
        "report": as_dict(cell.report) if cell.report else None,
    }
