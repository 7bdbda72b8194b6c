"""The formats that CI services read: SARIF, JUnit, GitHub, GitLab, JSON lines, CSV."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft202012Validator

from opcheck.cli import streams
from opcheck.common.errors import UsageError
from opcheck.judge.rules import BY_ID
from opcheck.model.fingerprint import fingerprints
from opcheck.render import findings, render, step_summary
from tests.made import call, make_report
from tests.render.junit_schema import problems as junit_problems
from tests.render.sarif_schema import LOG
from tests.render.test_formats import REPORTS

EVERYTHING = REPORTS["everything"]


def places(name: str) -> int:
    return sum(max(1, len(finding.locations)) for finding in REPORTS[name].findings)


def sarif_run(name: str) -> dict[str, Any]:
    run: dict[str, Any] = json.loads(render(REPORTS[name], "sarif"))["runs"][0]
    return run


@pytest.mark.parametrize("name", REPORTS)
def test_sarif_is_sarif(name: str) -> None:
    errors = Draft202012Validator(LOG).iter_errors(json.loads(render(REPORTS[name], "sarif")))
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


@pytest.mark.parametrize("name", REPORTS)
def test_each_place_of_a_finding_is_a_sarif_result_of_its_rule(name: str) -> None:
    run = sarif_run(name)
    rules = run["tool"]["driver"]["rules"]
    assert len(run["results"]) == places(name)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert {rule["id"] for rule in rules} == {result["ruleId"] for result in run["results"]}
    for rule in rules:
        assert BY_ID[rule["id"]].page.strip() in rule["help"]["markdown"]
        assert "**" not in rule["fullDescription"]["text"]


def test_sarif_results_have_their_line_their_verdict_and_a_fingerprint_of_their_own() -> None:
    run = sarif_run("everything")
    stub = next(item for item in run["results"] if item["properties"]["operator"] == "aten::stub")
    physical = stub["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"] == {"uri": "model.py"}
    assert physical["region"] == {"startLine": 10, "snippet": {"text": "    y = f10(x)"}}
    assert stub["level"] == "error"
    assert stub["properties"]["verdict"]["status"] == "unsupported"
    assert stub["properties"]["verdict"]["evidence"][0]["kind"] == "registration"
    hashes = [item["partialFingerprints"]["primaryLocationLineHash"] for item in run["results"]]
    assert hashes == [name for own in fingerprints(EVERYTHING.findings) for name in own]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize(
    ("model", "file", "uri"),
    [
        ("a b/zoo.py:Net", "a b/zoo.py", "a%20b/zoo.py"),
        ("/home/me/zoo.py:Net", "zoo.py", "zoo.py"),
        ("C:\\me\\zoo.py:Net", "zoo.py", "zoo.py"),
        ("net.pt2", "net.pt2", "net.pt2"),
        ("timm:resnet50", "", None),
    ],
)
def test_a_finding_without_a_line_is_in_the_models_file(model: str, file: str, uri: str | None) -> None:
    report = make_report(call("aten::foo", location=None, module=""), model=model)
    result = json.loads(render(report, "sarif"))["runs"][0]["results"][0]
    if uri is None:
        assert "locations" not in result
    else:
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri
    assert json.loads(render(report, "gitlab"))[0]["location"]["path"] == (file or model)
    assert ("file=" in render(report, "github")) == bool(file)


def test_a_group_passes_fails_or_is_skipped_in_junit() -> None:
    suite = ET.fromstring(render(EVERYTHING, "junit"))[0]  # noqa: S314  (our own)
    cases = {str(case.get("name")): case for case in suite.iter("testcase")}
    assert len(cases) == int(str(suite.get("tests"))) > len(EVERYTHING.groups)

    def children(op: str) -> set[str]:
        return {child.tag for name, case in cases.items() if name.startswith(f"{op}:") for child in case}

    assert children("aten::mm") == set()
    assert children("aten::stub") == {"failure"}
    assert "skipped" in children("mylib::op|with")
    assert children("aten::embedding_renorm_") == {"system-out"}
    errors = sum(finding.severity == "error" for finding in EVERYTHING.findings)
    assert int(str(suite.get("failures"))) == len(list(suite.iter("failure"))) == errors
    assert suite.get("skipped") == str(len(list(suite.iter("skipped"))))


@pytest.mark.parametrize("name", REPORTS)
def test_junit_is_what_jenkins_reads(name: str) -> None:
    assert junit_problems(render(REPORTS[name], "junit")) == []


def test_the_junit_check_finds_what_the_schema_does_not_know() -> None:
    text = '<testsuites skipped="1"><testsuite name="a"><testcase line="1">x</testcase></testsuite></testsuites>'
    assert sorted(junit_problems(text)) == [
        "testcase has line",
        "testcase has text",
        "testcase lacks name",
        "testsuite lacks errors",
        "testsuite lacks failures",
        "testsuite lacks tests",
        "testsuites has skipped",
    ]


def test_a_run_that_broke_off_fails_in_junit() -> None:
    suite = ET.fromstring(render(REPORTS["broken"], "junit"))[0]  # noqa: S314  (our own)
    assert suite.get("failures") == "1"


def test_github_gets_the_first_place_of_each_finding_first() -> None:
    report = make_report(*(call("aten::foo", line) for line in range(1, 15)), call("aten::stub", 99))
    lines = render(report, "github").splitlines()
    assert [line.split("::")[1].split(",")[:2] for line in lines[:2]] == [
        ["error file=model.py", "line=99"],
        ["error file=model.py", "line=1"],
    ]
    assert sum(line.startswith("::error ") for line in lines) == 15
    numbers = "2 errors: 1 of 15 calls fails, 14 need PYTORCH_ENABLE_MPS_FALLBACK=1"
    assert lines[-1] == f"fails: model.py:Net on torch 2.13, macOS 15.0; {numbers}"


def test_a_summary_that_is_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = step_summary(EVERYTHING)
    assert whole == render(EVERYTHING, "markdown")
    monkeypatch.setattr(findings, "SUMMARY_LIMIT", 1000)
    cut = step_summary(EVERYTHING)
    assert len(cut.encode()) < 1000
    assert cut.endswith("(cut here: GitHub takes no longer summary)\n")
    assert whole.startswith(cut.partition("\n\n(cut here")[0])


def test_the_step_summary_is_added_to_in_a_step_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n", encoding="utf-8")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    streams.step_summary(EVERYTHING, "github")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    streams.step_summary(EVERYTHING, "json")
    assert path.read_text(encoding="utf-8") == "before\n"
    streams.step_summary(EVERYTHING, "github")
    assert path.read_text(encoding="utf-8").startswith("before\n# model.py:Net: fails, ")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "such"))
    with pytest.raises(UsageError, match="cannot write the step's summary: No such file"):
        streams.step_summary(EVERYTHING, "github")


def test_gitlab_has_an_entry_a_place() -> None:
    entries = json.loads(render(EVERYTHING, "gitlab"))
    assert len(entries) == places("everything")
    assert len({entry["fingerprint"] for entry in entries}) == len(entries)
    assert {entry["severity"] for entry in entries} == {"critical", "minor", "info"}
    assert {"description", "check_name", "fingerprint", "severity", "location"} == set(entries[0])


def test_json_lines_have_a_finding_each_with_what_it_is_about() -> None:
    lines = [json.loads(line) for line in render(EVERYTHING, "jsonl").splitlines()]
    whole = json.loads(render(EVERYTHING, "json"))["findings"]
    assert [{name: line[name] for name in whole[0]} for line in lines] == whole
    for line, finding in zip(lines, EVERYTHING.findings, strict=True):
        assert (line["schema"], line["model"]) == ("opcheck-finding/1", "model.py:Net")
        assert len(line["fingerprints"]) == max(1, len(finding.locations))
    assert render(REPORTS["native"], "jsonl") == ""


def test_csv_has_a_row_a_group() -> None:
    rows = list(csv.DictReader(render(EVERYTHING, "csv").splitlines()))
    assert [row["operator"] for row in rows] == [group.op for group in EVERYTHING.groups]
    assert sum(int(row["calls"]) for row in rows) == EVERYTHING.totals["calls"]
    assert {row["status"] for row in rows} == {"native", "fallback", "unknown", "unsupported"}
