"""The documentation: its pages are run and show what their commands print; their links and their menu lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from opcheck.features import features, menu
from scripts.refresh_docs import blocks, is_slow, pages, refreshed

ROOT = Path(__file__).parents[1]
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in pages()}


def run(name: str) -> None:
    new = refreshed(PAGES[name])
    assert new == PAGES[name], f"python scripts/refresh_docs.py {name}"


@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if not is_slow(text)])
def test_a_page_shows_what_its_commands_print(name: str) -> None:
    run(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if is_slow(text)])
def test_a_page_that_needs_torch_shows_what_its_commands_print(name: str) -> None:
    run(name)


def test_most_commands_are_run() -> None:
    consoles = [block for text in PAGES.values() for block in blocks(text) if block.language == "console"]
    skipped = [block for block in consoles if block.mark == "not run"]
    assert len(consoles) > 30
    assert len(skipped) < len(consoles) / 3


def test_the_readme_is_short_and_says_what_it_is_not() -> None:
    lines = PAGES["README.md"].splitlines()
    assert len(lines) <= 150
    assert "torch.library.opcheck()" in "".join(lines[:12])


def test_each_verb_has_a_page() -> None:
    titles = [text.split("# ", 1)[1].partition(":")[0] for name, text in PAGES.items() if "how-to/" in name]
    assert {verb for title in titles for verb in title.split(", ")} >= set(features())


def links(name: str, text: str) -> Iterator[Path]:
    for target in re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", text):
        yield (ROOT / name).parent / target


def test_a_link_leads_to_a_file() -> None:
    seen = 0
    for name, text in PAGES.items():
        for path in links(name, text):
            assert path.exists(), f"{name}: {path}"
            seen += 1
    assert seen > 100


def entries(menu: Any) -> Iterator[str]:
    if isinstance(menu, str):
        yield menu
        return
    for entry in menu.values() if isinstance(menu, dict) else menu:
        yield from entries(entry)


def test_the_menu_has_each_page() -> None:
    """``make docs`` holds it against the built site; this needs no mkdocs."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    written = {name.removeprefix("docs/") for name in PAGES if name.startswith("docs/")}
    elsewhere = {place for place in settings["extra"]["elsewhere"].values() if place.endswith(".md")}
    pages = {*entries(settings["nav"]), *entries(menu())}
    assert pages == written | elsewhere | {"rules/README.md"}
