"""An ignored finding stays in every report, marked, and fails nothing by itself."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import msgspec
import pytest
from jsonschema import Draft202012Validator

from opcheck.model.records import Report
from opcheck.model.saved import json_schema
from opcheck.render import FORMATS, render
from tests.made import call, make_report
from tests.render.sarif_schema import LOG

WHY = "runs once, before training"


def ignored() -> Report:
    report = make_report(call("aten::stub", 10))
    findings = [msgspec.structs.replace(finding, ignored=WHY) for finding in report.findings]
    return msgspec.structs.replace(report, findings=tuple(findings))


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "csv"])
def test_the_reason_is_in_every_format_of_findings(name: str) -> None:
    assert WHY in render(ignored(), name)
    assert WHY not in render(make_report(call("aten::stub", 10)), name)


def test_it_is_valid_json_and_suppressed_in_sarif() -> None:
    content = json.loads(render(ignored(), "json"))
    assert not list(Draft202012Validator(json_schema()).iter_errors(content))
    log = json.loads(render(ignored(), "sarif"))
    assert not list(Draft202012Validator(LOG).iter_errors(log))
    results = log["runs"][0]["results"]
    assert {result["suppressions"][0]["justification"] for result in results} == {WHY}


def test_it_is_no_failure_for_a_ci() -> None:
    suite = ET.fromstring(render(ignored(), "junit"))  # noqa: S314  (our own)
    assert suite.get("failures") == "0"
    assert "::error" not in render(ignored(), "github")
    assert {entry["severity"] for entry in json.loads(render(ignored(), "gitlab"))} == {"info"}
