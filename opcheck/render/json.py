"""The report as JSON."""

from __future__ import annotations

import json

from opcheck.model.records import Report
from opcheck.render.content import as_dict


def render(report: Report) -> str:
    """The report as one JSON object, keys in the order of the schema."""
    return json.dumps(as_dict(report), indent=2, ensure_ascii=False) + "\n"
