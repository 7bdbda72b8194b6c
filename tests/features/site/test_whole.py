"""The whole site, from the op lists that ship."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opcheck.data.registrations import OpLists
from opcheck.features.site.page_records import OperatorPage
from opcheck.features.site.pages import build
from tests.browser import AXE, opened, violations
from tests.features.site import checks

pytestmark = pytest.mark.slow

#: One of each sort, the largest of it where sizes differ.
PAGES = (
    "index",
    "operators",
    "advisories",
    "limitations",
    "release/2.4",
    "rules",
    "rule/OC102",
    "op/aten/div",
    "op/aten/_foreach_pow",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The site, and its operators."""
    output = tmp_path_factory.mktemp("whole") / "site"
    pages = build(output)
    return output, [p.name for p in pages if isinstance(p, OperatorPage)]


def test_every_operator_of_the_lists_has_its_page(whole: tuple[Path, list[str]], lists: OpLists) -> None:
    bases = {name.partition(".")[0] for name in lists.names()}
    assert bases <= set(whole[1])
    # Also on a disk that does not tell small letters from capitals.
    assert len({name.casefold() for name in whole[1]}) == len(whole[1])


def test_every_page_is_valid_and_every_link_leads_somewhere(whole: tuple[Path, list[str]]) -> None:
    pages = checks.everything(whole[0])
    assert [item for name, page in pages.items() for item in checks.wrong_structure(name, page)] == []
    assert list(checks.broken(whole[0], pages)) == []


@pytest.mark.browser
@pytest.mark.skipif(AXE is None, reason="no axe here")
def test_any_operator_is_found_by_three_keys_and_a_click(browser: Any, whole: tuple[Path, list[str]]) -> None:
    output, operators = whole
    with opened(browser, csp=True) as (page, result):
        page.goto((output / "index.html").as_uri())
        page.keyboard.type("_fo")
        page.locator("#results a").first.wait_for()
        keys = sorted({name.partition("::")[2][:3] for name in operators})
        shown = dict(zip(keys, page.evaluate("(keys) => keys.map(opcheckSearch)", keys), strict=True))
        assert [n for n in operators if n not in shown[n.partition("::")[2][:3]]] == []
        # The last of the longest list, as a person would: three keys, and a click on the name.
        key = max(shown, key=lambda three: len(shown[three]))
        last = [name for name in shown[key] if name in operators][-1]
        page.locator("#q").fill("")
        page.keyboard.type(key)
        page.get_by_role("link").get_by_text(last, exact=True).click()
        page.wait_for_url(f"**/op/*/{last.partition('::')[2]}.html")
        assert result == []


@pytest.mark.browser
@pytest.mark.skipif(AXE is None, reason="no axe here")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 850), (390, 844)], ids=["desktop", "phone"])
def test_axe_finds_nothing(browser: Any, whole: tuple[Path, list[str]], scheme: str, size: tuple[int, int]) -> None:
    with opened(browser, scheme=scheme, size=size) as (page, _):
        results = {name: violations(page, whole[0] / f"{name}.html") for name in PAGES}
    assert {name: item for name, item in results.items() if item} == {}


@pytest.mark.browser
@pytest.mark.parametrize("size", [(1280, 850), (390, 844)], ids=["desktop", "phone"])
def test_a_list_is_short_before_it_is_filtered(
    browser: Any, whole: tuple[Path, list[str]], size: tuple[int, int]
) -> None:
    with opened(browser, size=size) as (page, _):
        for name in ("operators", "advisories", "limitations", "releases", "rules"):
            page.goto((whole[0] / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollHeight") < 10_000, name
