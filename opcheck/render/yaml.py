"""The report as YAML."""

from __future__ import annotations

from opcheck.common.yaml_text import dump
from opcheck.model.records import Report
from opcheck.model.saved import as_content


def render(report: Report) -> str:
    """The report as one YAML document, keys in the order of the schema."""
    return dump(as_content(report))
