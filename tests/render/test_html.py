"""The report as a page that stands alone: read as text and, where Chromium is, in a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from opcheck.model.records import Report
from opcheck.render import render
from opcheck.render.html import environment
from tests.browser import dom
from tests.made import call, make_report, spec
from tests.render.test_formats import REPORTS

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e<!--data-->\"'&"


class Reader(HTMLParser):
    """The names of the elements, the addresses, and the handlers of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href"}]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def embedded_data(page: str) -> Any:
    return json.loads(page.partition('type="application/json">')[2].partition("<")[0])


def unet(calls: int) -> Report:
    """Blocks of five calls in modules of modules, some of them on the CPU, with a skip connection each."""
    trace_calls = []
    for number in range(calls):
        block = number // 5
        inputs = [spec(max(0, number - 1), shape=(1, 320, 64, 64))]
        inputs += [spec(max(0, number - 40), shape=(1, 320, 64, 64))] if number % 5 == 0 else []
        op = "aten::foo" if number % 97 == 96 else ("aten::mm", "aten::relu")[number % 2]
        trace_calls.append(
            call(
                op,
                number % 5 + 1,
                inputs=tuple(inputs),
                outputs=(spec(number, shape=(1, 320, 64, 64)),),
                module=f"down_blocks.{block // 10}.resnets.{block % 10}.conv{number % 5}",
            )
        )
    return make_report(*trace_calls)


@pytest.mark.parametrize("name", REPORTS)
def test_nothing_is_loaded_from_elsewhere(name: str) -> None:
    page = render(REPORTS[name], "html")
    assert all(address[:1] == "#" or address == "data:," for address in Reader(page).addresses)
    assert "@import" not in page
    assert "<!--" not in page  # every part was put in


def test_the_policy_admits_the_pages_own_script_and_no_other() -> None:
    page = render(REPORTS["everything"], "html")
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'" in page


def test_the_data_is_the_graph() -> None:
    report = REPORTS["everything"]
    data = embedded_data(render(report, "html"))
    assert len(data["calls"]) == report.totals["calls"]
    for row, node in zip(data["calls"], report.graph, strict=True):
        assert data["groups"][row[0]]["op"] == report.groups[node.group].op
        assert data["modules"][row[2]] == node.module
        assert [data["specs"][number] for number in row[5]] == list(node.inputs)


def test_each_call_of_the_graph_is_of_the_line_that_it_names() -> None:
    calls = (call("aten::mm", 3), call("aten::foo", 4), call("aten::mm", 5, module="layers.1.mlp"))
    report = make_report(*calls)
    for made, node in zip(calls, report.graph, strict=True):
        group = report.groups[node.group]
        assert (group.op, group.locations[node.place].location) == (made.op, made.location)
        assert node.module == made.module
    # The fallback copies its argument there, and its result back.
    copied = [(node.to_cpu, node.bytes_to_cpu, node.to_mps, node.bytes_to_mps) for node in report.graph]
    assert copied == [(0, 0, 0, 0), (1, 24, 1, 24), (0, 0, 0, 0)]


def test_the_page_says_what_the_markdown_says() -> None:
    report = REPORTS["everything"]
    words = " ".join(" ".join(Reader(render(report, "html")).words).split())
    for finding in report.findings:
        assert " ".join(finding.message.split()) in words
        assert " ".join(finding.hint.split()) in words
    for group in report.groups:
        assert group.verdict.because in words
    for line in report.not_checked:
        assert line in words


def test_text_stays_text() -> None:
    plain, hostile = (
        make_report(
            call("mylib::op", 1, module=text, registrations=("CPU",)),
            call("aten::foo", 2, module=text),
            model=f"{text}.py:Net",
        )
        for text in ("net", HOSTILE)
    )
    expected, result = Reader(render(plain, "html")), Reader(render(hostile, "html"))
    assert result.elements == expected.elements
    assert not result.handlers
    assert embedded_data(render(hostile, "html"))["modules"] == [HOSTILE]


def test_an_attribute_cannot_be_left() -> None:
    template = environment().from_string('<a href="{{ text }}">{{ text }}</a>')
    assert template.render(text="\"><script>\n::error::'\u202e") == (
        '<a href="&#34;&gt;&lt;script&gt;\n&#58;:error::&#39;\\u202e">'
        "&#34;&gt;&lt;script&gt;\n&#58;:error::&#39;\\u202e</a>"
    )


def test_a_report_without_the_calls_says_that_there_is_no_graph() -> None:
    page = render(REPORTS["broken"], "html")
    assert "No call was captured: there is no graph." in page
    assert embedded_data(page)["calls"] == []


@pytest.mark.browser
def test_a_large_graph_is_drawn_whole(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "unet.html"
    path.write_text(render(unet(1200), "html"), encoding="utf-8")
    page = dom(browser, path)
    assert re.search(r'data-ready="\d+"', page)
    assert 'id="drawing" hidden' not in page
    assert "3 of 3" in page  # the filter of the operators counts


@pytest.mark.browser
def test_the_address_chooses_a_call(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(unet(200), "html"), encoding="utf-8")
    aside = dom(browser, path, "#call=96").partition("<aside")[2].partition("</aside>")[0]
    assert "<h3>aten::foo</h3>" in aside
    assert "CPU fallback, with the variable" in aside
    assert "model.py:2" in aside
    assert "down_blocks.1.resnets.9.conv1" in aside
    assert "float32[1, 320, 64, 64]" in aside
    assert "1 to the CPU (5.0 MiB), 1 back (5.0 MiB)" in aside
    assert re.search(r"reads from</h4><ul><li><button type=\"button\">95 ", aside)
