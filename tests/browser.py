"""The Chromium of the machine by playwright, and axe in it: one browser for all tests of a module (conftest.py)."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Milliseconds that playwright waits for the browser: a machine may be busy.
_PATIENCE = 1_200_000

CHROMIUM = next(
    (result for name in ("chromium", "chromium-browser", "google-chrome") if (result := shutil.which(name))), None
)


def _axe() -> Path | None:
    result = importlib.util.find_spec("axe_playwright_python")
    path = Path(result.origin).with_name("axe.min.js") if result and result.origin else None
    return path if path and path.is_file() else None


#: The checker's script, a file of a package.
AXE = _axe()


@contextlib.contextmanager
def session() -> Iterator[Any]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=_PATIENCE)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(
    browser: Any, *, scheme: str = "light", script: bool = True, csp: bool = False, size: tuple[int, int] = (1280, 850)
) -> Iterator[tuple[Any, list[str]]]:
    """A page, and what its console says.

    ``csp``: the page's own policy holds, which would keep axe out, too.
    """
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        java_script_enabled=script,
        bypass_csp=not csp,
    )
    context.set_default_timeout(_PATIENCE)
    page = context.new_page()
    results: list[str] = []
    page.on("console", lambda message: results.append(message.text))
    page.on("pageerror", lambda error: results.append(str(error)))
    try:
        yield page, results
    finally:
        context.close()


def dom(browser: Any, path: Path, fragment: str = "") -> str:
    """The page after its script ran and drew; whatever the console says fails."""
    with opened(browser, csp=True) as (page, result):
        page.goto(f"{path.as_uri()}{fragment}")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        content: str = page.content()
    assert result == []
    return content


def violations(page: Any, path: Path | None = None) -> list[str]:
    """What axe finds: rule and place."""
    if path is not None:
        page.goto(path.as_uri())
    # What is folded away is to be readable, too.
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.add_script_tag(path=str(AXE))
    result = page.evaluate("axe.run()")
    return [f"{item['id']}: {node['target'][0]}" for item in result["violations"] for node in item["nodes"][:3]]
