"""The small site in Chromium: no error, nothing that cannot be read or reached, the search by keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser import AXE, opened, violations

pytestmark = pytest.mark.browser

#: One of each sort of page.
PAGES = (
    "index.html",
    "operators.html",
    "op/aten/mm.html",
    "op/aten/stub.html",
    "releases.html",
    "release/2.14.html",
    "models.html",
    "model/timm/one.html",
    "model/timm/lost.html",
    "advisories.html",
    "rules.html",
    "rule/stft_conv.html",
    "rule/OC101.html",
)


def test_no_page_has_an_error_or_scrolls_sideways(browser: Any, small: Path) -> None:
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    with opened(browser, csp=True) as (page, result):
        for name in PAGES:
            page.goto((small / name).as_uri())
            for width in (390, 1280):
                page.set_viewport_size({"width": width, "height": 850})
                assert page.evaluate(wide) == 0, name
        assert result == []


@pytest.mark.skipif(AXE is None, reason="no axe here: the extra dev")
@pytest.mark.parametrize(
    ("scheme", "width", "pages"),
    [
        ("light", 390, ("index.html",)),
        ("dark", 1280, ("op/aten/mm.html",)),
        pytest.param("light", 390, PAGES, marks=pytest.mark.slow),
        pytest.param("dark", 1280, PAGES, marks=pytest.mark.slow),
    ],
)
def test_axe_finds_nothing(browser: Any, small: Path, scheme: str, width: int, pages: tuple[str, ...]) -> None:
    with opened(browser, scheme=scheme, size=(width, 850)) as (page, _):
        results = {name: violations(page, small / name) for name in pages}
    assert {name: item for name, item in results.items() if item} == {}


@pytest.mark.skipif(AXE is None, reason="no axe here: the extra dev")
def test_axe_would_say_it(browser: Any, small: Path) -> None:
    with opened(browser) as (page, _):
        page.goto((small / "index.html").as_uri())
        page.evaluate("document.querySelector('img').removeAttribute('alt')")
        page.evaluate("document.querySelector('main p').style.color = '#ccc'")
        rules = {each.partition(":")[0] for each in violations(page)}
    assert rules == {"color-contrast", "image-alt"}


def test_three_keys_and_a_click(browser: Any, small: Path) -> None:
    with opened(browser, csp=True) as (page, result):
        page.goto((small / "index.html").as_uri())
        page.keyboard.type("emb")  # the field has the focus
        page.get_by_role("link", name="aten::embedding_renorm_").click()
        page.wait_for_url("**/op/aten/embedding_renorm_.html")
        assert page.locator("h1").inner_text() == "aten::embedding_renorm_"
        assert result == []


def test_the_keyboard_alone_will_do(browser: Any, small: Path) -> None:
    with opened(browser) as (page, _):
        page.goto((small / "release/2.14.html").as_uri())
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("/")
        page.keyboard.type("mm")
        page.locator("#results a").first.wait_for()
        assert page.locator("#found").inner_text().endswith(" results")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowUp")
        assert page.evaluate("document.activeElement.textContent").startswith("aten::mm")
        page.keyboard.press("Escape")
        assert not page.locator("#results").is_visible()
        page.keyboard.type("z")
        assert page.locator("#found").inner_text() == "nothing of that name"
        page.keyboard.press("Backspace")
        page.keyboard.press("Enter")
        page.wait_for_url("**/op/aten/mm.html")


def test_a_list_shows_what_fits_its_filters(browser: Any, small: Path) -> None:
    with opened(browser, csp=True) as (page, result):
        page.goto((small / "operators.html").as_uri())
        page.get_by_label("status").select_option("native")
        states = page.locator("tbody tr:visible .state").all_inner_texts()
        assert states
        assert {state.strip("✓ ") for state in states} == {"native"}
        page.get_by_label("contains").fill("no operator")
        assert page.locator("tbody tr:visible").count() == 0
        assert page.get_by_text("Nothing fits").is_visible()
        assert result == []


def test_pages_can_be_read_without_script(browser: Any, small: Path) -> None:
    with opened(browser, script=False) as (page, _):
        page.goto((small / "op/aten/mm.html").as_uri())
        assert "mm-wrong" in page.locator("main").inner_text()
        page.locator("#q").fill("mm")
        page.locator("#q").press("Enter")
        page.wait_for_url("**/operators.html*")
        assert page.get_by_role("link", name="aten::mm", exact=True).count() == 1
