"""The findings as GitLab's code quality report."""

from __future__ import annotations

import json

from opcheck.model.records import Report
from opcheck.model.visible import one_line, visible
from opcheck.render.where import Hit, hits

#: GitLab knows info, minor, major, critical and blocker.
_SEVERITIES = {"error": "critical", "warning": "minor", "note": "info"}


def render(report: Report) -> str:
    """A JSON list, one entry a finding and place."""
    entries = [entry(report, hit) for hit in hits(visible(report))]
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


def entry(report: Report, hit: Hit) -> dict[str, object]:
    """A finding at one of its places."""
    finding = hit.finding
    ignored = f"Ignored: {finding.ignored}" if finding.ignored else ""
    return {
        "description": one_line(". ".join(filter(None, (finding.message, finding.hint, ignored)))),
        "check_name": finding.rule,
        "fingerprint": hit.fingerprint,
        "severity": "info" if finding.ignored else _SEVERITIES[finding.severity],
        # GitLab takes no entry without a path.
        "location": {
            "path": hit.file or one_line(report.model),
            "lines": {"begin": hit.line},
        },
    }
