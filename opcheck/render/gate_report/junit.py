"""The run as JUnit XML: a suite a model, a test case a target.

It fails with what speaks against it, is an error where nobody could tell, and passes with the rest as what it printed.
"""

from __future__ import annotations

from itertools import groupby
from xml.etree import ElementTree as ET

from opcheck.model.visible import one_line
from opcheck.project.gate.policy import FINDINGS, PASSED
from opcheck.project.gate.records import Cell, GateReport
from opcheck.render import summary
from opcheck.render.gate_report.merged import state
from opcheck.render.where import hits


def render(gate: GateReport, _format_name: str = "junit") -> str:
    """One document for all models."""
    root = ET.Element("testsuites", name="opcheck gate")
    for model, cells in groupby(gate.cells, lambda cell: cell.model):
        suite = ET.SubElement(root, "testsuite", name=one_line(model))
        for cell in cells:
            _case(suite, cell)
    for model in gate.left:
        suite = ET.SubElement(root, "testsuite", name=one_line(model))
        case = ET.SubElement(suite, "testcase", classname=one_line(model), name="interrupted")
        ET.SubElement(case, "error", message="the run was interrupted before it was audited")
    for element in (*root, root):
        for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
            element.set(name, str(sum(1 for _ in element.iter(tag))))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _case(suite: ET.Element, cell: Cell) -> None:
    case = ET.SubElement(
        suite, "testcase", classname=one_line(cell.model), name=one_line(cell.target)
    )
    against, rest = _findings(cell)
    code = cell.judgement.code
    if code != PASSED:
        problem = ET.SubElement(
            case,
            "failure" if code == FINDINGS else "error",
            message=one_line("; ".join(cell.judgement.reasons)),
        )
        failed = [cell.failed.context, cell.failed.hint] if cell.failed else []
        problem.text = "\n".join([cell.headline, *map(one_line, filter(None, failed)), *against])
    ET.SubElement(case, "system-out").text = "\n".join([cell.headline, *rest])


def _findings(cell: Cell) -> tuple[list[str], list[str]]:
    """The lines of what speaks against it, and of the rest."""
    lines: tuple[list[str], list[str]] = ([], [])
    if cell.report is None:
        return lines
    for hit in hits(cell.report):
        found = state(hit, cell)
        finding = hit.finding
        where = summary.place(hit.place) if hit.place else ""
        why = f" ({finding.ignored})" if finding.ignored else ""
        text = f"{found}{why}: {finding.severity} {finding.rule} {finding.message} {where}"
        lines[found != "new"].append(one_line(text))
        if found == "new" and finding.hint:
            lines[0].append(one_line(f"help: {finding.hint}"))
    return lines
