"""The report as JSON."""

from __future__ import annotations

import json

from opcheck.model.records import Report
from opcheck.model.saved import as_content


def render(report: Report) -> str:
    """The report as one JSON object, keys in the order of the schema."""
    return json.dumps(as_content(report), indent=2, ensure_ascii=False) + "\n"
