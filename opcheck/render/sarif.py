"""The findings as SARIF 2.1.0, for code scanning; no times, no paths of a machine.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/ is the format, what GitHub reads of it is in its documentation: of a
result's locations the first, so that each place is a result of its own; of the fingerprints ``primaryLocationLineHash``.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import msgspec

from opcheck.common.catalogue import Rule, by_id
from opcheck.common.sanitize import shown
from opcheck.model.records import Report
from opcheck.render import summary
from opcheck.render.where import Hit, group_of, hits

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
_PARAGRAPHS = re.compile(r"\n\s*\n")
_WHAT = "**What.** "


def render(report: Report) -> str:
    """A log of one run: the rules that found something, and a result a finding and place."""
    texts = {finding.rule for finding in report.findings}
    rules = [rule for name, rule in by_id().items() if name in texts]
    numbers = {rule.id: number for number, rule in enumerate(rules)}
    name, _, version = report.tool.partition(" ")
    run = {
        "tool": {
            "driver": {
                "name": name,
                "version": version,
                "semanticVersion": version,
                "rules": [rule_content(rule) for rule in rules],
            }
        },
        # Tells runs of several models or targets apart, where one commit has them all.
        "automationDetails": {"id": f"opcheck/{report.model}/{summary.target(report)}"},
        "columnKind": "unicodeCodePoints",
        "results": [result(report, hit, numbers[hit.finding.rule]) for hit in hits(report)],
        "properties": {
            "headline": report.headline,
            "model": report.model,
            "target": dict(report.target),
            "totals": dict(report.totals),
            "complete": report.capture["complete"],
            "opLists": msgspec.to_builtins(report.op_lists),
            "notChecked": list(report.not_checked),
        },
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def rule_content(rule: Rule) -> dict[str, Any]:
    """A rule as a reporting descriptor (3.49)."""
    page = rule.page
    what = " ".join(_PARAGRAPHS.split(page)[0].removeprefix(_WHAT).split())
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.slug.split("_")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": what.replace("`", "")},
        "help": {
            "text": page.replace("**", "").replace("`", ""),
            "markdown": f"# {rule.id}: {rule.title}\n\n{page}\n",
        },
        "defaultConfiguration": {"level": rule.severity},
        "properties": {"tags": ["mps", "pytorch"]},
    }


def result(report: Report, hit: Hit, rule_index: int) -> dict[str, Any]:
    """A finding at one of its places as a result (3.27)."""
    finding = hit.finding
    parts = [
        finding.message,
        f"Help: {finding.hint}" if finding.hint else "",
        f"Try: {finding.remedy}" if finding.remedy else "",
    ]
    location = _location(hit)
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": finding.severity,
        # "[text](address)" in a message is a link (3.11.6).
        "message": {"text": shown("\n".join(filter(None, parts))).replace("](", "] (")},
        **({"locations": [location]} if location else {}),
        "partialFingerprints": {
            "primaryLocationLineHash": hit.fingerprint,
            "opcheckFinding/v2": hit.fingerprint,
        },
        **_suppressed(finding.ignored),
        "properties": _properties(report, hit),
    }


def _suppressed(reason: str) -> dict[str, Any]:
    """That somebody ignores it (3.35): viewers leave it out of what is open."""
    if not reason:
        return {}
    return {"suppressions": [{"kind": "external", "justification": reason}]}


def _location(hit: Hit) -> dict[str, Any]:
    place = hit.place
    where = place.location if place else None
    found: dict[str, Any] = {}
    if hit.file:
        region: dict[str, Any] = {"startLine": hit.line}
        if where and where.text:
            region["snippet"] = {"text": where.text}
        found["physicalLocation"] = {
            "artifactLocation": {"uri": quote(hit.file, safe="/", errors="backslashreplace")},
            "region": region,
        }
    logical = []
    if where and where.function:
        logical.append({"fullyQualifiedName": where.function, "kind": "function"})
    if place and place.module:
        logical.append({"fullyQualifiedName": place.module, "kind": "module"})
    if logical:
        found["logicalLocations"] = logical
    return found


def _properties(report: Report, hit: Hit) -> dict[str, Any]:
    """What the verdict is and why it is believed."""
    finding = hit.finding
    place = hit.place
    found: dict[str, Any] = {
        "operator": finding.op,
        "prints": finding.prints,
        "calls": place.count if place else finding.count,
        "phase": place.phase if place else "",
    }
    group = group_of(report, hit)
    if group is not None:
        verdict = group.verdict
        found["verdict"] = {
            "status": verdict.status,
            "kind": verdict.kind,
            "because": verdict.because,
            "confidence": verdict.confidence,
            "evidence": [msgspec.to_builtins(entry) for entry in verdict.evidence],
            "limitations": list(verdict.limitations),
            "advisories": list(verdict.advisories),
        }
        found["dtypes"] = list(group.dtypes)
    return found
