"""Findings in the formats of CI services, whether an audit, a scan or a gate made them.

A verb lists its findings as ``Occurrence`` records, one for each place. SARIF, GitHub and GitLab
write that list; JUnit writes test cases, CSV writes rows, and JSON lines writes plain data.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree as ET

import msgspec

from opcheck.common.catalogue import CatalogueRule, by_id
from opcheck.common.sanitize import cell, flat, one_line, show_hidden
from opcheck.common.tool import HOMEPAGE
from opcheck.model.records import CallGroup, Finding, GroupLocation
from opcheck.render import summary
from opcheck.source.scan_records import ScanFinding

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
FINDING_SCHEMA = "opcheck-finding/1"
_PARAGRAPHS = re.compile(r"\n\s*\n")
_WHAT = "**What.** "
_MODEL_FILE = re.compile(r"(?P<file>.+\.(?:py|pt2))(?::.*)?", re.DOTALL)

#: Names of the severities at GitHub, and at GitLab, which has info, minor, major, critical, blocker.
_GITHUB = {"error": "error", "warning": "warning", "note": "notice"}
_GITLAB = {"error": "critical", "warning": "minor", "note": "info"}

#: GitHub refuses a step's summary of more than 1 MiB.
SUMMARY_LIMIT = 1 << 20
_CUT = "\n\n(cut here: GitHub takes no longer summary)\n"


class Occurrence(NamedTuple):
    """A finding at one of its places."""

    finding: Finding
    #: None: the finding has no place.
    place: GroupLocation | None
    fingerprint: str
    #: relative, with slashes; empty: neither a line nor a model in a file.
    file: str
    line: int
    model: str
    #: The calls that the finding is about; None: it is not about one operator.
    group: CallGroup | None = None
    #: What the finding is to a gate: new, known, ignored or allowed; empty: there is no gate.
    state: str = ""
    #: Where a gate found it, by name and in words.
    models: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    scope: str = ""

    @property
    def notes(self) -> str:
        """The gate's words on it: ``new: net; on all 6 targets``."""
        return f"{self.state}: {self.scope}" if self.state else ""


class FindingLog(NamedTuple):
    """The findings of one run of a verb."""

    tool: str
    #: Tells the runs of several models or targets apart that one commit has in SARIF.
    id: str
    occurrences: tuple[Occurrence, ...]
    #: What SARIF keeps about the run.
    properties: Mapping[str, Any]
    #: The lines that end GitHub's log.
    summary: tuple[str, ...]
    #: Models without a report, and why.
    failed: tuple[tuple[str, str], ...] = ()
    #: Of a gate: whether it was interrupted, its exit code, and whether it has a baseline.
    interrupted: bool = False
    exit_code: int | None = None
    baseline: bool = False


class JunitCase(NamedTuple):
    """A test case of JUnit."""

    classname: str
    name: str
    #: The tag (failure, error, skipped), the attributes and the text of each result.
    results: tuple[tuple[str, dict[str, str], str], ...] = ()
    output: str = ""


class Suite(NamedTuple):
    """A test suite of JUnit."""

    name: str
    cases: Iterable[JunitCase]
    properties: Mapping[str, str] = {}


def occurrences(findings: Sequence[Finding], model: str, groups: Sequence[CallGroup] = ()) -> Iterator[Occurrence]:
    """List each finding at each of its places, in their order.

    A finding without a line is placed at the beginning of the model's file, if there is a file.
    """
    match = _MODEL_FILE.fullmatch(model)
    model_file = relative(match["file"]) if match else ""
    for finding in findings:
        about = [group for group in groups if group.op == finding.op]
        for place, fingerprint in zip(finding.locations or (None,), finding.fingerprints, strict=True):
            where = place.location if place else None
            file = relative(where.file) if where else model_file
            line = max(where.line, 1) if where else 1
            group = next((group for group in about if place is None or place in group.locations), None)
            yield Occurrence(finding, place, fingerprint, file, line, model, group)


def relative(file: str) -> str:
    """Write a path with slashes and without the machine: of an absolute path the file's name alone."""
    path = PureWindowsPath(file) if "\\" in file or file[1:2] == ":" else PurePosixPath(file)
    return path.name if path.is_absolute() or path.drive else path.as_posix()


def fix_of(finding: Finding) -> str:
    """Return whether ``scan --fix`` corrects a finding, or why not; empty for a finding of another verb."""
    return finding.fix if isinstance(finding, ScanFinding) else ""


def details(finding: Finding) -> Iterator[tuple[str, str]]:
    """Name the further texts of a finding that it has, in reading order."""
    texts = {"ignored": finding.ignored, "prints": finding.prints, "help": finding.hint, "try": finding.remedy}
    texts["fix"] = fix_of(finding)
    yield from ((name, text) for name, text in texts.items() if text)


# SARIF


def sarif(log: FindingLog) -> str:
    """Write SARIF 2.1.0 for code scanning: one run, with no times and no paths of a machine.

    The format is https://docs.oasis-open.org/sarif/sarif/v2.1.0/. GitHub reads the first location
    of a result alone, so that each place is a result of its own; of the fingerprints it reads
    ``primaryLocationLineHash``.
    """
    names = {occurrence.finding.rule for occurrence in log.occurrences}
    rules = [rule for name, rule in by_id().items() if name in names]
    numbers = {rule.id: number for number, rule in enumerate(rules)}
    name, _, version = log.tool.partition(" ")
    driver = {"name": name, "version": version, "semanticVersion": version, "informationUri": HOMEPAGE}
    tool = {"driver": driver | {"rules": [_sarif_rule(rule) for rule in rules]}}
    run: dict[str, Any] = {"tool": tool, "automationDetails": {"id": log.id}}
    if log.exit_code is not None:
        texts = [f"{model}: {message}" for model, message in log.failed]
        is_successful = not log.failed and not log.interrupted
        errors = [{"level": "error", "message": {"text": text}} for text in texts]
        ending = {"executionSuccessful": is_successful, "exitCode": log.exit_code}
        run["invocations"] = [ending | {"toolExecutionNotifications": errors}]
    results = (_sarif_result(o, numbers[o.finding.rule], log.baseline) for o in log.occurrences)
    run |= {"columnKind": "unicodeCodePoints", "results": [*results], "properties": log.properties}
    return as_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _sarif_rule(rule: CatalogueRule) -> dict[str, Any]:
    """Write a rule as a reporting descriptor (3.49)."""
    page = rule.page
    what = " ".join(_PARAGRAPHS.split(page)[0].removeprefix(_WHAT).split())
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.slug.split("_")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": what.replace("`", "")},
        "help": {"text": page.replace("**", "").replace("`", ""), "markdown": f"# {rule.id}: {rule.title}\n\n{page}\n"},
        "defaultConfiguration": {"level": rule.severity},
        "properties": {"tags": ["mps", "pytorch"]},
    }


def _sarif_result(
    occurrence: Occurrence,
    rule_index: int,
    baseline: bool,  # noqa: FBT001  (of the run)
) -> dict[str, Any]:
    """Write a finding at one of its places as a result (3.27)."""
    finding = occurrence.finding
    texts = {"Help": finding.hint, "Try": finding.remedy, "Fix": fix_of(finding), "For": occurrence.scope}
    parts = (finding.message, *(f"{name}: {text}" for name, text in texts.items() if text))
    location = _sarif_location(occurrence)
    result = {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": finding.severity,
        # "[text](address)" in a message is a link (3.11.6).
        "message": {"text": show_hidden("\n".join(filter(None, parts))).replace("](", "] (")},
        **({"locations": [location]} if location else {}),
        "partialFingerprints": {
            "primaryLocationLineHash": occurrence.fingerprint,
            "opcheckFinding/v2": occurrence.fingerprint,
        },
    }
    if finding.ignored:
        # Viewers do not list a suppressed result as open (3.35).
        result["suppressions"] = [{"kind": "external", "justification": finding.ignored}]
    result["properties"] = _sarif_properties(occurrence)
    if baseline and occurrence.state in {"new", "known"}:
        # 3.27.24
        result["baselineState"] = "unchanged" if occurrence.state == "known" else "new"
    return result


def _sarif_location(occurrence: Occurrence) -> dict[str, Any]:
    place = occurrence.place
    where = place.location if place else None
    location: dict[str, Any] = {}
    if occurrence.file:
        region: dict[str, Any] = {"startLine": occurrence.line}
        if where and where.text:
            region["snippet"] = {"text": where.text}
        uri = quote(occurrence.file, safe="/", errors="backslashreplace")
        location["physicalLocation"] = {"artifactLocation": {"uri": uri}, "region": region}
    names = ((where.function if where else "", "function"), (place.module if place else "", "module"))
    logical = [{"fullyQualifiedName": name, "kind": kind} for name, kind in names if name]
    return {**location, **({"logicalLocations": logical} if logical else {})}


#: What SARIF keeps of a verdict.
_VERDICT = ("status", "kind", "because", "confidence", "evidence", "limitations", "advisories")


def _sarif_properties(occurrence: Occurrence) -> dict[str, Any]:
    """Say what the verdict is, why it is believed, and which models and targets of a gate have it."""
    finding, place, group = occurrence.finding, occurrence.place, occurrence.group
    properties: dict[str, Any] = {
        "operator": finding.op,
        "prints": finding.prints,
        "calls": place.count if place else finding.count,
        "phase": place.phase if place else "",
    }
    if group is not None:
        verdict = msgspec.to_builtins(group.verdict)
        properties["verdict"] = {name: verdict[name] for name in _VERDICT}
        properties["dtypes"] = group.dtypes
    if occurrence.state:
        properties |= {"gate": occurrence.state, "models": occurrence.models, "targets": occurrence.targets}
    return properties


# GitHub


def github(log: FindingLog) -> str:
    """Write the workflow commands that GitHub Actions shows as annotations, then lines of the log.

    GitHub shows ten annotations of a kind: the first place of each finding comes before all others. Notes of the gate
    are no annotations, unless they fail it.
    """
    shown = [e for e in log.occurrences if e.state in {"", "new"} or e.finding.severity != "note"]
    first = {id(entry.finding): id(entry) for entry in reversed(shown)}
    ordered = sorted(shown, key=lambda entry: first[id(entry.finding)] != id(entry))
    failures = (f"::error::{_data(one_line(': '.join(failed)))}" for failed in log.failed)
    lines = (*failures, *map(_annotation, ordered), *log.summary)
    return "".join(f"{line}\n" for line in lines)


def _annotation(occurrence: Occurrence) -> str:
    finding, place = occurrence.finding, occurrence.place
    properties = {"file": occurrence.file, "line": str(occurrence.line)} if occurrence.file else {}
    properties["title"] = f"{finding.rule} {finding.op}".strip()
    lines = (
        finding.message,
        place.location.text if place and place.location else "",
        f"module: {place.module}" if place and place.module else "",
        *(f"{name}: {text}" for name, text in details(finding)),
        occurrence.notes,
    )
    kind = "notice" if finding.ignored else _GITHUB[finding.severity]
    if occurrence.state:
        kind = "error" if occurrence.state == "new" else "notice"
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind} {written}::{_data(chr(10).join(one_line(line) for line in lines if line))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(one_line(text)).replace(":", "%3A").replace(",", "%2C")


def cut(markdown: str) -> str:
    """Shorten Markdown to GitHub's limit for a step's summary."""
    whole = markdown.encode("utf-8", "backslashreplace")
    if len(whole) < SUMMARY_LIMIT:
        return markdown
    return whole[: SUMMARY_LIMIT - 100].decode("utf-8", "ignore") + _CUT


# GitLab


def gitlab(log: FindingLog) -> str:
    """Write GitLab's code quality report: a JSON list with an entry for each finding and place."""
    failed = []
    for model, message in log.failed:
        digest = hashlib.sha256(f"gate {model} {message}".encode("utf-8", "backslashreplace"))
        text = f"{model} could not be audited: {message}"
        failed.append(_gitlab_entry(text, "gate", digest.hexdigest()[:32], "critical", model))
    return as_json([*failed, *map(_gitlab_finding, log.occurrences)])


def _gitlab_finding(occurrence: Occurrence) -> dict[str, object]:
    finding = occurrence.finding
    ignored = f"Ignored: {finding.ignored}" if finding.ignored else ""
    fix = f"Fix: {fix_of(finding)}" if fix_of(finding) else ""
    parts = filter(None, (finding.message, finding.hint, fix, ignored, occurrence.notes))
    allowed = finding.ignored or occurrence.state not in {"", "new"}
    severity = "info" if allowed else _GITLAB[finding.severity]
    # GitLab takes no entry without a path.
    path = occurrence.file or occurrence.model
    return _gitlab_entry(". ".join(parts), finding.rule, occurrence.fingerprint, severity, path, occurrence.line)


def _gitlab_entry(
    description: str, rule: str, fingerprint: str, severity: str, path: str, line: int = 1
) -> dict[str, object]:
    return {
        "description": one_line(description),
        "check_name": rule,
        "fingerprint": fingerprint,
        "severity": severity,
        "location": {"path": flat(path), "lines": {"begin": line}},
    }


# JUnit


#: What a suite counts, and the elements that are counted.
_COUNTED = {"tests": "testcase", "failures": "failure", "skipped": "skipped", "errors": "error"}


def junit(name: str, suites: Iterable[Suite]) -> str:
    """Write JUnit XML for the test view of a CI service, as the junit-10 schema of Jenkins' xunit plugin has it.

    That has no place for the file and the line of a test case, so its text has them.
    """
    root = ET.Element("testsuites", name=name)
    for suite in suites:
        element = ET.SubElement(root, "testsuite", name=one_line(suite.name))
        if suite.properties:
            properties = ET.SubElement(element, "properties")
            for key, value in suite.properties.items():
                ET.SubElement(properties, "property", name=key, value=value)
        for case in suite.cases:
            _junit_case(element, case)
    for element in (*root, root):
        for key, tag in _COUNTED.items():
            # The schema has no skipped cases of the whole run.
            if (element, key) != (root, "skipped"):
                element.set(key, str(sum(1 for _ in element.iter(tag))))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _junit_case(suite: ET.Element, case: JunitCase) -> None:
    about = {"classname": one_line(case.classname), "name": one_line(case.name)}
    element = ET.SubElement(suite, "testcase", about)
    for tag, attributes, text in case.results:
        shown = {key: one_line(value) for key, value in attributes.items()}
        ET.SubElement(element, tag, shown).text = text or None
    if case.output:
        ET.SubElement(element, "system-out").text = case.output


def finding_case(classname: str, name: str, findings: Sequence[Finding], skipped: str = "") -> JunitCase:
    """Make the test case of findings: errors are its failures, the others are what it printed."""
    results = [("skipped", {"message": skipped}, "")] if skipped else []
    results += [("failure", {"type": f.rule, "message": f.message}, _whole(f)) for f in findings if is_failure(f)]
    others = (_whole(finding) for finding in findings if not is_failure(finding))
    return JunitCase(classname, name, tuple(results), "\n\n".join(others))


def is_failure(finding: Finding) -> bool:
    """Return whether a finding fails a test case."""
    return finding.severity == "error" and not finding.ignored


def _whole(finding: Finding) -> str:
    """Write a finding with its places as lines."""
    lines = [one_line(f"{finding.severity} {finding.rule} {finding.message}")]
    for place in finding.locations:
        lines.append(one_line(summary.place(place)))
        if place.location and place.location.text:
            lines.append(f"  {one_line(place.location.text)}")
    lines += [one_line(f"{name}: {text}") for name, text in details(finding)]
    return "\n".join(lines)


# Rows


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write CSV with a header; no cell is a formula to a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()


def lines(tool: str, about: Mapping[str, object], findings: Sequence[Finding]) -> Iterator[dict[str, object]]:
    """Make an object for each finding, its places with their fingerprints."""
    for finding in findings:
        yield {"schema": FINDING_SCHEMA, "tool": tool, **about, **msgspec.to_builtins(finding)}


def as_json(content: object) -> str:
    """Write one JSON document."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
