"""What a run of the gate came to -> text: one document for all models and targets, one format a file; pure."""

from __future__ import annotations

from importlib import import_module

from opcheck.common.sanitize import finished
from opcheck.project.gate.records import GateReport

#: The formats by name, each with the module that has its ``render``.
FORMATS = {
    "text": "page",
    "markdown": "page",
    "json": "content",
    "yaml": "content",
    "jsonl": "rows",
    "csv": "rows",
    "sarif": "sarif",
    "junit": "junit",
    "github": "github",
    "gitlab": "gitlab",
}


def render(report: GateReport, format_name: str) -> str:
    """The run in the format of that name."""
    module = import_module(f"opcheck.render.gate_report.{FORMATS[format_name]}")
    text: str = module.render(report, format_name)
    return finished(text, format_name)
