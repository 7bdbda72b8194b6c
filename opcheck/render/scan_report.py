"""What ``opcheck scan`` found in the formats of CI services, by the emitters of an audit's findings."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from xml.etree import ElementTree as ET

from opcheck.common.sanitize import cell, finished
from opcheck.common.text import plural
from opcheck.model.records import Finding, Partition, Report
from opcheck.model.visible import one_line
from opcheck.render import github, gitlab, jsonl, sarif
from opcheck.source.records import ScanReport

_COLUMNS = ("rule", "severity", "file", "line", "message", "hint", "text")


def as_report(scanned: ScanReport) -> Report:
    """The findings as those emitters take them: a report that has no calls."""
    totals = ", ".join(plural(count, name) for name, count in scanned.totals.items() if count)
    return Report(
        tool=scanned.tool,
        model=", ".join(scanned.paths),
        target={**scanned.target, "cpu_fallback": False},
        headline=totals or "no findings",
        totals=scanned.totals,
        groups=(),
        findings=scanned.findings,
        partition=Partition(
            regions=(), transfers_to_cpu=0, transfers_to_mps=0, bytes_to_cpu=0, bytes_to_mps=0
        ),
        capture={"complete": not scanned.problems},
        op_lists={},
        not_checked=scanned.not_checked,
        problems=scanned.problems,
    )


def _csv(scanned: ScanReport) -> str:
    """A row a finding."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(_COLUMNS)
    for finding in scanned.findings:
        file, line, source = _place(finding)
        row = (
            finding.rule,
            finding.severity,
            file,
            str(line),
            finding.message,
            finding.hint,
            source,
        )
        table.writerow([cell(value) for value in row])
    return text.getvalue()


def _junit(scanned: ScanReport) -> str:
    """A test case a finding; errors are failures, and a file that was not read is skipped."""
    suite = ET.Element("testsuite", name=one_line(f"opcheck scan {' '.join(scanned.paths)}"))
    for finding in scanned.findings:
        file, line, source = _place(finding)
        name = one_line(f"{finding.rule} {file}:{line} {finding.message}")
        case = ET.SubElement(suite, "testcase", classname="opcheck.scan", name=name)
        case.set("file", one_line(file))
        case.set("line", str(line))
        said = "\n".join(one_line(part) for part in (source, finding.hint) if part)
        if finding.severity == "error":
            failure = ET.SubElement(
                case, "failure", type=finding.rule, message=one_line(finding.message)
            )
            failure.text = said
        else:
            ET.SubElement(case, "system-out").text = said
    for problem in scanned.problems:
        name = one_line(f"{problem.module} was not read")
        case = ET.SubElement(suite, "testcase", classname="opcheck.scan", name=name)
        ET.SubElement(case, "skipped", message=one_line(problem.message))
    for attribute, tag in (("tests", "testcase"), ("failures", "failure"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(1 for _ in suite.iter(tag))))
    suite.set("errors", "0")
    root = ET.Element("testsuites", name="opcheck")
    root.append(suite)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _place(finding: Finding) -> tuple[str, int, str]:
    where = finding.locations[0].location if finding.locations else None
    return (where.file, where.line, where.text) if where else ("", 0, "")


#: The formats that an answer to a question has no use for.
FORMATS: dict[str, Callable[[ScanReport], str]] = {
    "jsonl": lambda scanned: jsonl.render(as_report(scanned)),
    "sarif": lambda scanned: sarif.render(as_report(scanned)),
    "junit": _junit,
    "github": lambda scanned: github.render(as_report(scanned)),
    "gitlab": lambda scanned: gitlab.render(as_report(scanned)),
    "csv": _csv,
}


def render(scanned: ScanReport, format_name: str) -> str:
    """The findings in the format of that name."""
    return finished(FORMATS[format_name](scanned), format_name)
