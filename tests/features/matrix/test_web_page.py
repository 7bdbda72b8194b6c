"""The page that stands alone, read as text and, where Chromium is, in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from opcheck.data.registrations import OpLists
from opcheck.features.matrix import page
from opcheck.lookup.matrix import STATES, Coverage, coverage
from opcheck.lookup.plain_call import OperatorLookup
from opcheck.render.html import embed_json, plot
from tests.browser import dom
from tests.made import make_lists

SOME = ("aten::nonzero", "aten::nonzero.out", "aten::relu", "aten::embedding_renorm_", "aten::mode")


@pytest.fixture(scope="module")
def some(lookup: OperatorLookup) -> Coverage:
    return coverage(None, lookup, SOME)


def test_nothing_is_loaded_from_elsewhere(some: Coverage) -> None:
    text = page.render_web_page(some, "2.15")
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", text.partition('id="data"')[0])
    assert "@import" not in text
    assert "<!--" not in text  # every part was put in


def test_the_data_cannot_leave_its_element() -> None:
    text = embed_json({"a": "</script><script>alert(1)</script><!--"})
    assert "<" not in text
    assert json.loads(text)["a"].startswith("</script>")


def test_the_data_unfolds_to_the_states(some: Coverage, lists: OpLists) -> None:
    data = json.loads(page.render_web_page(some, "2.15").partition('type="application/json">')[2].partition("<")[0])
    lines = [release["line"] for release in data["releases"]]
    assert lines == [release.line for release in lists.releases]
    runs = next(op for op in data["ops"] if op[0] == "aten::nonzero")[1:]
    first = runs[0]
    assert lines[first[0]] == "1.13"
    assert STATES[int(data["sets"][first[1]][first[2]])] == "fallback_always"


def test_the_plot_counts_what_the_lists_hold() -> None:
    lists = make_lists()
    result = coverage("15", OperatorLookup(lists), ["aten::mm"])
    root = ET.fromstring(plot(result.counts, result.macos))  # noqa: S314  (our own drawing)
    space = "{http://www.w3.org/2000/svg}"
    results = [title.text for title in root.iter(f"{space}title")]
    # mm, mm.out, relu, add_, view, special_python and add, which calls mm.out.
    assert results.count("7 native") == 3
    assert "torch 2.13: 7 native" in (root.find(f"{space}desc").text or "")  # type: ignore[union-attr]


def test_the_same_lists_give_the_same_page(lookup: OperatorLookup) -> None:
    once = page.render_web_page(coverage(None, lookup, SOME), "2.13")
    assert once == page.render_web_page(coverage(None, lookup, reversed(SOME)), "2.13")


def shown(text: str) -> list[str]:
    return re.findall(r'<tr class="row" data-op="([^"]+)"', text)


@pytest.mark.browser
def test_the_page_works_in_a_browser(browser: Any, some: Coverage, tmp_path: Path) -> None:
    path = tmp_path / "matrix.html"
    named = msgspec.structs.replace(some, aliases={"aten::relu": ("nn.Rectify", "cut off")})
    path.write_text(page.render_web_page(named, "2.15"), encoding="utf-8")
    assert shown(dom(browser, path, "#q=torch.nn.functional.relu()")) == ["aten::relu"]
    assert shown(dom(browser, path, "#q=cut+off")) == ["aten::relu"]
    everything = dom(browser, path)
    assert shown(everything) == sorted(SOME)
    assert "5 overloads of torch 2.15" in everything
    assert shown(dom(browser, path, "#status=fallback")) == ["aten::embedding_renorm_", "aten::mode"]
    assert shown(dom(browser, path, "#q=nonzero&out=0")) == ["aten::nonzero"]
    # Of float64 no tensor can be made: nothing is native.
    assert shown(dom(browser, path, "#status=native&dtype=float64")) == []
    old = dom(browser, path, "#op=aten::nonzero&torch=1.13&status=fallback_always")
    assert shown(old) == ["aten::embedding_renorm_", "aten::nonzero"]
    assert 'class="detail"' in old
    assert "torch 1.13: " in old
