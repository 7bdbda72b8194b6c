"""Names, lines and messages that try to leave their place, in every format."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opcheck.common.sanitize import show_hidden
from opcheck.model.saved import as_content
from opcheck.render import FORMATS, render
from tests.made import hostile_report

NASTY = (
    "\x1b[2J\x1b]0;title\x07",
    "\n::error file=x::injected\n",
    "\r\n",
    "%0A::stop-commands::x",
    "</script><script>alert(1)</script>",
    "<!--data-->",
    "]]><![CDATA[",
    "&lt;&amp;\"'`",
    "=1+1",
    "@SUM(A1)",
    "| a | b |\n# title",
    "\u202e\u2066right to left\u2028",
    "\udc80 a name that is no UTF-8",
    "\x00\x08\x0c\x85\ufffe\uffff",
    ",;\t'\"",
    "日本語 🦊",
    "{{7*7}} ${HOME} $(id)",
)
TEXT = st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=8)), max_size=3).map("".join)
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
SOME = settings(max_examples=25, deadline=None)


PLAIN = hostile_report("plain")


@pytest.mark.parametrize("kind", FORMATS)
@SOME
@given(text=TEXT)
@example(text="".join(NASTY))
def test_it_can_be_written_and_commands_no_terminal(kind: str, text: str) -> None:
    written = render(hostile_report(text), kind)
    assert written.encode("utf-8")
    assert "\x1b" not in written
    if kind not in {"json", "yaml", "jsonl", "sarif", "html"}:
        assert not HIDDEN.search(written)


@SOME
@given(text=TEXT)
@example(text="".join(NASTY))
def test_data_comes_back_as_it_was(text: str) -> None:
    report = hostile_report(text)
    content = as_content(report)
    assert json.loads(render(report, "json")) == content
    assert json.loads(render(report, "sarif"))["runs"][0]["properties"]["model"] == text
    lines = render(report, "jsonl").split("\n")
    assert [json.loads(line)["model"] for line in lines[:-1]] == [text] * len(report.findings)


@SOME
@given(text=TEXT.filter(lambda text: not re.search("[\ud800-\udfff]", text)))
@example(text="".join(NASTY[:12]))
def test_yaml_comes_back_as_it_was(text: str) -> None:
    report = hostile_report(text)
    assert yaml.safe_load(render(report, "yaml")) == as_content(report)


def shape(element: ET.Element) -> list[Any]:
    return [element.tag, sorted(element.attrib), [shape(child) for child in element]]


@SOME
@given(text=TEXT)
@example(text="".join(NASTY))
def test_xml_keeps_its_shape(text: str) -> None:
    reports = (hostile_report(text), PLAIN)
    result, plain = (ET.fromstring(render(report, "junit")) for report in reports)  # noqa: S314
    assert shape(result) == shape(plain)


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"pre", "code"}:  # an empty line is not shown
            self.found.append((tag, tuple(name for name, _ in attrs)))


@SOME
@given(text=TEXT.filter(str.strip))
@example(text="".join(NASTY))
def test_html_keeps_its_shape(text: str) -> None:
    assert Elements(render(hostile_report(text), "html")).found == Elements(render(PLAIN, "html")).found


@SOME
@given(text=TEXT)
@example(text="".join(NASTY))
def test_no_line_of_a_log_is_a_command_but_the_annotations(text: str) -> None:
    report = hostile_report(text)
    lines = render(report, "github").split("\n")[:-1]
    count = sum(max(1, len(finding.locations)) for finding in report.findings)
    assert len(lines) == count + 1
    for line in lines[:-1]:
        match = re.fullmatch(r"::(?:error|warning|notice) ([^:]*)::(.*)", line)
        assert match
        names = [entry.partition("=")[0] for entry in match[1].split(",")]
        assert names in (["file", "line", "title"], ["title"])
    assert not lines[-1].startswith("::")


@SOME
@given(text=TEXT)
@example(text="".join(NASTY))
def test_no_cell_is_a_formula_and_no_row_is_broken(text: str) -> None:
    report = hostile_report(text)
    written = render(report, "csv")
    rows = list(csv.reader(io.StringIO(written)))
    assert len(rows) == 1 + len(report.groups) == written.count("\n")
    assert len({len(row) for row in rows}) == 1
    assert not [cell for row in rows for cell in row if cell[:1] in {"=", "+", "-", "@"}]


@SOME
@given(text=TEXT)
@example(text="".join(NASTY))
def test_gitlab_gets_paths_and_one_line_a_finding(text: str) -> None:
    for entry in json.loads(render(hostile_report(text), "gitlab")):
        assert "\n" not in entry["description"]
        assert entry["location"]["lines"]["begin"] == 1


def test_what_is_shown_of_a_hidden_character_is_its_number() -> None:
    assert show_hidden("a\x1b[31m\u202e\ud800\tb\n") == "a\\x1b[31m\\u202e\\ud800\tb\n"
    assert show_hidden("日本語 é") == "日本語 é"
