"""The report as one HTML page that stands alone: no network, its data inside.

What it says is written here, and can be read without JavaScript; the script draws the graph and filters.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from opcheck.model.records import Report
from opcheck.render.html import sections
from opcheck.render.html.data import calls
from opcheck.render.html.markup import embedded, joined
from opcheck.render.html.timeline import timeline


def render(report: Report) -> str:
    """The page.

    Raises:
        OSError: the template is not in the package.
    """
    template = files("opcheck.render.html") / "template"
    script = (template / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        # The browser runs this script and no other, and asks nobody for anything.
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
        "title": joined(f"{report.model}: {report.headline}"),
        "style": (template / "page.css").read_text(encoding="utf-8"),
        "header": sections.header(report),
        "findings": sections.findings(report),
        "graph": sections.graph(report),
        "transfers": timeline(report),
        "operators": sections.operators(report),
        "statements": sections.statements(report),
        "memory": sections.memory_section(report),
        "precision": sections.precision_section(report),
        "evidence": sections.evidence(report),
        "data": embedded(calls(report)),
        "script": script,
    }
    page = (template / "page.html").read_text(encoding="utf-8")
    for name, text in parts.items():
        page = page.replace(f"<!--{name}-->", text)
    return page
