"""The report as JUnit XML, for the test view of a CI: a test case a group of calls.

A group fails with its errors, and is skipped where nobody knows: it never passes for native.  What is about no one
operator is a test case of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from opcheck.judge.judge import outcome
from opcheck.model.records import CallGroup, Finding, Report
from opcheck.model.visible import one_line, visible
from opcheck.render import summary


def render(report: Report) -> str:
    """One suite: the model on its target."""
    shown = visible(report)
    suite = ET.Element("testsuite", name=f"{one_line(shown.model)} on {summary.target(shown)}")
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(shown).items():
        ET.SubElement(properties, "property", name=name, value=value)
    rest = list(shown.findings)
    for group in shown.groups:
        findings = [finding for finding in rest if _is_about(finding, group)]
        rest = [finding for finding in rest if finding not in findings]
        _group(suite, group, findings)
    for finding in rest:
        name = one_line(f"{finding.rule} {finding.message}")
        case = ET.SubElement(suite, "testcase", classname="opcheck.findings", name=name)
        _results(case, [finding])
    root = ET.Element("testsuites", name="opcheck")
    root.append(suite)
    for element in (suite, root):
        for name, tag in (("tests", "testcase"), ("failures", "failure"), ("skipped", "skipped")):
            element.set(name, str(sum(1 for _ in root.iter(tag))))
        element.set("errors", "0")
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _properties(report: Report) -> dict[str, str]:
    return {
        "tool": report.tool,
        "headline": report.headline,
        "totals": summary.totals(report),
        "transfers": summary.transfers(report),
        "evidence": summary.evidence(report),
    }


def _is_about(finding: Finding, group: CallGroup) -> bool:
    """Whether it is about these calls: of one operator, and at their places where it has any."""
    return finding.op == group.op and not set(map(str, finding.locations)).isdisjoint(
        map(str, group.locations)
    )


def _group(suite: ET.Element, group: CallGroup, findings: Sequence[Finding]) -> None:
    verdict = group.verdict
    case = ET.SubElement(
        suite, "testcase", classname="opcheck.operators", name=_named(group), assertions="1"
    )
    first = next((place.location for place in group.locations if place.location), None)
    if first:
        case.set("file", one_line(first.file))
        case.set("line", str(first.line))
    if verdict.status == "unknown" and not any(
        finding.severity == "error" and not finding.ignored for finding in findings
    ):
        ET.SubElement(case, "skipped", message=one_line(f"unknown: {verdict.because}"))
    _results(case, findings)


def _named(group: CallGroup) -> str:
    """Two groups of one operator differ in why, and so in their names."""
    verdict = group.verdict
    return one_line(f"{group.op}: {outcome(verdict).label} ({verdict.because})")


def _results(case: ET.Element, findings: Sequence[Finding]) -> None:
    """The errors as failures, the rest as what the case printed."""
    said = []
    for finding in findings:
        if finding.severity == "error" and not finding.ignored:
            failure = ET.SubElement(
                case, "failure", type=finding.rule, message=one_line(finding.message)
            )
            failure.text = _text(finding)
        else:
            said.append(_text(finding))
    if said:
        ET.SubElement(case, "system-out").text = "\n\n".join(said)


def _text(finding: Finding) -> str:
    lines = [f"{finding.severity} {finding.rule} {finding.message}"]
    for place in finding.locations:
        lines.append(summary.place(place))
        if place.location and place.location.text:
            lines.append(f"  {place.location.text.strip()}")
    for name, words in (
        ("ignored", finding.ignored),
        ("prints", finding.prints),
        ("help", finding.hint),
        ("try", finding.remedy),
    ):
        if words:
            lines.append(f"{name}: {words}")
    return "\n".join(" " * (len(line) - len(line.lstrip())) + one_line(line) for line in lines)
