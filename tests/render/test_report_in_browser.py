"""A report's page in Chromium: axe at the sizes and in the colours that people have, and what the page holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import html5lib
import msgspec
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
@pytest.mark.parametrize("report", [_parallel(), REPORTS["everything"]], ids=["parallel", "everything"])
def test_the_graph_draws_every_region_that_it_counts(browser: Any, tmp_path: Path, report: Report) -> None:
    regions = len(report.partition.regions)
    assert regions > 2
    path = tmp_path / "report.html"
    path.write_text(render(report, "html"), encoding="utf-8")
    page = dom(browser, path)
    assert f"in {regions} regions" in page
    assert re.findall(r'data-regions="(\d+)"', page) == [str(regions)]


def _findings(count: int, remedy: str = "") -> Report:
    """A report with as many findings, each at a line of its own."""
    source = next(each for each in REPORTS["everything"].findings if each.locations)
    place = source.locations[0]
    findings = (
        msgspec.structs.replace(
            source,
            op=f"aten::operator_{n}",
            message=f"aten::operator_{n}: torch 2.13.0 registers a CPU kernel and no MPS kernel",
            locations=(msgspec.structs.replace(place, line=f"model.py:{n}"),),
            fingerprints=(f"{n:016x}",),
            remedy=remedy,
        )
        for n in range(1, count + 1)
    )
    return msgspec.structs.replace(REPORTS["everything"], findings=tuple(findings))


@pytest.mark.browser
def test_a_phone_shows_readable_tables_and_twelve_findings_on_a_short_page(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(_findings(12), "html"), encoding="utf-8")
    with opened(browser, size=SIZES["phone"]) as (page, _):
        page.goto(path.as_uri())
        assert page.locator("article.finding").count() == 12
        assert page.evaluate("document.documentElement.scrollHeight") < 6000
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        broken = page.evaluate(
            """() => [...document.querySelectorAll("td")].flatMap((cell) => {
                const text = cell.firstChild;
                if (!text || text.nodeType !== Node.TEXT_NODE) return [];
                return [...text.data.matchAll(/\\S+/g)].filter((word) => {
                    const range = document.createRange();
                    range.setStart(text, word.index);
                    range.setEnd(text, word.index + word[0].length);
                    return word[0].length < 12 && range.getClientRects().length > 1;
                }).map((word) => word[0]);
            })"""
        )
    assert broken == []


@pytest.mark.browser
def test_the_navigation_opens_a_folded_section(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(REPORTS["everything"], "html"), encoding="utf-8")
    with opened(browser, csp=True) as (page, result):
        page.goto(path.as_uri())
        assert not page.locator("#rows").is_visible()
        page.locator("nav a[href='#operators']").click()
        assert page.locator("#rows").is_visible()
    assert result == []


@pytest.mark.browser
def test_a_button_copies_the_suggested_line(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(_findings(1, remedy="y = x.float()"), "html"), encoding="utf-8")
    with opened(browser, csp=True) as (page, result):
        page.add_init_script("navigator.clipboard.writeText = async (text) => { window.copied = text; };")
        page.goto(path.as_uri())
        button = page.locator("button.copy").first
        button.click()
        assert page.evaluate("window.copied") == "y = x.float()"
        assert button.inner_text() == "copied"
    assert result == []
