"""Chromium by playwright, and axe in it."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.report.browser import CHROMIUM


def _axe() -> Path | None:
    found = importlib.util.find_spec("axe_playwright_python")
    path = Path(found.origin).with_name("axe.min.js") if found and found.origin else None
    return path if path and path.is_file() else None


#: The checker's script, a file of a package.
AXE = _axe()


@contextlib.contextmanager
def session() -> Iterator[Any]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(
    browser: Any, *, scheme: str = "light", script: bool = True, csp: bool = False
) -> Iterator[tuple[Any, list[str]]]:
    """A page, and what its console says.

    ``csp``: the page's own policy holds, which would keep axe out, too.
    """
    context = browser.new_context(
        viewport={"width": 1280, "height": 850},
        color_scheme=scheme,
        java_script_enabled=script,
        bypass_csp=not csp,
    )
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        yield page, said
    finally:
        context.close()


def serious(page: Any, path: Path | None = None) -> list[str]:
    """What axe finds serious or critical: rule and place."""
    if path is not None:
        page.goto(path.as_uri())
    # What is folded away is to be readable, too.
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.add_script_tag(path=str(AXE))
    found = page.evaluate("axe.run()")
    return [
        f"{one['id']}: {node['target'][0]}"
        for one in found["violations"]
        if one["impact"] in {"serious", "critical"}
        for node in one["nodes"][:3]
    ]
