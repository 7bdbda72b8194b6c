"""One document for all models and targets, in every format, with the same facts and the same bytes twice."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from jsonschema import Draft202012Validator

from opcheck.features.gate.gate_records import GateReport
from opcheck.model.saved import json_schema
from opcheck.render import WITHOUT_PAGE as FORMATS
from tests.features.gate.conftest import BROKEN, Project
from tests.render.sarif_schema import LOG


@pytest.fixture
def mixed(project: Project) -> Project:
    """Of each kind one: fails, is known, is ignored, passes, cannot be told."""
    project.broken["broken"] = BROKEN
    ignore = '[[tool.opcheck.ignore]]\nrule = "OC104"\nreason = "a stand-in"\n'
    project.configure("fallback", "raises", "unknown", "native", "broken", more=ignore)
    project("fallback", "--baseline", "known.yaml", "--update-baseline")
    return project


def written(project: Project, name: str) -> str:
    result = project("--baseline", "known.yaml", "-f", name)
    assert result.code == 1
    return result.out


@pytest.mark.parametrize("name", FORMATS)
def test_two_runs_are_the_same_bytes_without_a_path(mixed: Project, name: str) -> None:
    first = written(mixed, name)
    assert first == written(mixed, name)
    assert str(Path.cwd()) not in first


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_tells_of_each_model(mixed: Project, name: str) -> None:
    out = written(mixed, name)
    # These two hold findings, and nothing of a model that has none.
    models = ["raises", "broken"] if name == "gitlab" else ["fallback", "raises", "broken"]
    assert [model for model in models if model not in out] == []
    assert "aten::stub" in out or name == "csv"


def test_json_and_yaml_hold_the_same_reports_of_the_published_schema(mixed: Project) -> None:
    content = json.loads(written(mixed, "json"))
    assert content == yaml.safe_load(written(mixed, "yaml"))
    assert content["schema"] == "opcheck-gate/1"
    assert content["exit_code"] == 1
    assert len(content["cells"]) == 30
    whole = Draft202012Validator(json_schema(GateReport))
    assert list(whole.iter_errors(content)) == []
    assert list(whole.iter_errors({**content, "more": 1}))
    validator = Draft202012Validator(json_schema())
    for cell in content["cells"]:
        if cell["failed"]:
            assert (cell["model"], cell["report"], cell["code"]) == ("broken", None, 3)
        else:
            assert not list(validator.iter_errors(cell["report"]))


def test_sarif_is_one_valid_run_with_a_result_a_finding(mixed: Project) -> None:
    log = json.loads(written(mixed, "sarif"))
    assert [error.message for error in Draft202012Validator(LOG).iter_errors(log)] == []
    (run,) = log["runs"]
    known = [item["partialFingerprints"]["primaryLocationLineHash"] for item in run["results"]]
    assert len(known) == len(set(known))
    by_rule = {item["ruleId"]: item for item in run["results"] if "baselineState" in item}
    assert by_rule["OC103"]["baselineState"] == "unchanged"
    assert by_rule["OC101"]["baselineState"] == "new"
    assert len(by_rule["OC101"]["properties"]["targets"]) == 6
    (unknown,) = (item for item in run["results"] if item["ruleId"] == "OC104")
    assert unknown["suppressions"][0]["justification"] == "a stand-in"
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["message"]["text"].startswith("broken: ")


def test_junit_has_a_case_a_model_and_target(mixed: Project) -> None:
    root = ET.fromstring(written(mixed, "junit"))  # noqa: S314  (our own)
    assert [suite.get("name") for suite in root] == [
        "fallback", "raises", "unknown", "native", "broken",
    ]  # fmt: skip
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("30", "6", "6")
    failure = root.find(".//failure")
    assert failure is not None
    assert "OC101 aten::stub" in (failure.text or "")


def test_github_annotates_what_fails_as_errors(mixed: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    lines = written(mixed, "github").splitlines()
    errors = [line for line in lines if line.startswith("::error")]
    assert len(errors) == 2
    assert "file=model.py,line=9" in errors[1]
    assert any(line.startswith("::notice") and "known: fallback" in line for line in lines)
    assert "| raises | torch 2.12, macOS 15.0 | fails | FAILED, 1 new finding |" in (summary.read_text())


def test_gitlab_has_a_fingerprint_an_entry(mixed: Project) -> None:
    entries = json.loads(written(mixed, "gitlab"))
    assert len({entry["fingerprint"] for entry in entries}) == len(entries)
    severities = {entry["check_name"]: entry["severity"] for entry in entries}
    assert severities["OC101"] == "critical"
    assert severities["OC103"] == severities["OC104"] == "info"
    assert severities["gate"] == "critical"


def test_csv_has_a_row_a_model_and_target(mixed: Project) -> None:
    rows = list(csv.DictReader(written(mixed, "csv").splitlines()))
    assert len(rows) == 30
    assert {row["model"]: (row["code"], row["new"], row["known"]) for row in rows} == {
        "fallback": ("0", "0", "1"),
        "raises": ("1", "1", "0"),
        "unknown": ("0", "0", "0"),
        "native": ("0", "0", "0"),
        "broken": ("3", "0", "0"),
    }


def test_json_lines_say_what_each_finding_is_to_the_gate(mixed: Project) -> None:
    lines = [json.loads(line) for line in written(mixed, "jsonl").splitlines()]
    states = {(line["model"], line["state"]) for line in lines if line.get("rule") != "OC110"}
    assert {("fallback", "known"), ("raises", "new"), ("unknown", "ignored"), ("broken", "failed")} <= states


def test_the_suffix_of_the_output_chooses_the_format(mixed: Project) -> None:
    mixed("-o", "gate.sarif")
    assert json.loads(Path("gate.sarif").read_text())["version"] == "2.1.0"
    mixed("-o", "gate.html")
    assert Path("gate.html").read_text().startswith("FAILED: 5 models on 6 targets")


def test_no_control_character_of_a_program_reaches_a_terminal(project: Project) -> None:
    Path("opcheck.toml").write_text('models = ["evil\\u001b[31m.py:Net"]\n')
    project.calls["evil\x1b[31m.py:Net"] = project.calls["raises"]
    for name in ("text", "markdown", "github", "gitlab", "junit", "csv"):
        assert "\x1b" not in project("-f", name).out
