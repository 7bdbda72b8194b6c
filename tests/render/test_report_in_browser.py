"""A report's page in Chromium: axe at the sizes and in the colours that people have, and what the page holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import html5lib
import pytest

from opcheck.model.records import Report
from opcheck.render import render
from tests.browser import AXE, dom, opened, violations
from tests.made import call, make_report, spec
from tests.render.test_formats import REPORTS

SIZES = {"phone": (390, 844), "desktop": (1280, 850)}


def _parallel() -> Report:
    """Two branches of one module whose calls alternate: four regions in the order of the run."""
    calls = []
    for number in range(8):
        op = "aten::foo" if number in {4, 5} else "aten::mm"
        before = max(0, number - 2)
        calls.append(call(op, inputs=(spec(before),), outputs=(spec(number + 10),)))
    return make_report(*calls)


@pytest.mark.browser
@pytest.mark.skipif(AXE is None, reason="no axe here")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", REPORTS)
def test_axe_finds_nothing(browser: Any, tmp_path: Path, name: str, size: str, scheme: str) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(REPORTS[name], "html"), encoding="utf-8")
    with opened(browser, scheme=scheme, size=SIZES[size]) as (page, result):
        assert violations(page, path) == []
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= SIZES[size][0], "the page scrolls sideways"
    assert result == []


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_is_html_without_errors(name: str) -> None:
    parser = html5lib.HTMLParser(strict=True)
    parser.parse(render(REPORTS[name], "html"))


@pytest.mark.parametrize("name", REPORTS)
def test_the_navigation_holds_every_section_and_nothing_else(name: str) -> None:
    page = render(REPORTS[name], "html")
    navigation = page.partition("<nav")[2].partition("</nav>")[0]
    sections = re.findall(r'<section id="([^"]+)"', page)
    assert re.findall(r'href="#([^"]+)"', navigation) == sections
    assert len(set(sections)) == len(sections)
    assert "<section" in page
    assert len(re.findall("<h2", page)) == len(sections)


@pytest.mark.browser
@pytest.mark.parametrize(
    "report", [_parallel(), REPORTS["everything"]], ids=["parallel", "everything"]
)
def test_the_graph_draws_every_region_that_it_counts(
    browser: Any, tmp_path: Path, report: Report
) -> None:
    regions = len(report.partition.regions)
    assert regions > 2
    path = tmp_path / "report.html"
    path.write_text(render(report, "html"), encoding="utf-8")
    page = dom(browser, path)
    assert f"in {regions} regions" in page
    assert re.findall(r'data-regions="(\d+)"', page) == [str(regions)]
