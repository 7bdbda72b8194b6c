"""The findings as JSON lines, schema ``opcheck-finding/1``: one a line, each complete by itself."""

from __future__ import annotations

import json

from opcheck.model.fingerprint import fingerprints
from opcheck.model.records import Report
from opcheck.render.content import finding_content

SCHEMA = "opcheck-finding/1"


def render(report: Report) -> str:
    """A line a finding, its places with their fingerprints; of a report without findings, nothing."""
    about = {
        "schema": SCHEMA,
        "tool": report.tool,
        "model": report.model,
        "target": dict(report.target),
        "headline": report.headline,
    }
    return "".join(
        json.dumps({**about, **finding_content(finding, own)}) + "\n"
        for finding, own in zip(report.findings, fingerprints(report.findings), strict=True)
    )
