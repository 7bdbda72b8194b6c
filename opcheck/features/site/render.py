"""Writes pages as files: HTML by Jinja2, and beside each page its record as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from importlib.resources import files as package
from typing import get_args

import msgspec
from jinja2 import Environment

from opcheck.common.sanitize import shown
from opcheck.features.site import addresses, search
from opcheck.features.site.addresses import Page
from opcheck.features.site.filters import filters
from opcheck.features.site.records import (
    Home,
    Model,
    Models,
    Operator,
    Operators,
    Release,
    Releases,
    Rule,
    Rules,
    Statements,
)
from opcheck.features.site.words import MEANINGS
from opcheck.render import html
from opcheck.render.coverage_plot import plot

#: What is in the menu: the page, its name, and the pages that stand below it.
_NAVIGATION: tuple[tuple[str, str, tuple[type, ...]], ...] = (
    ("Operators", "operators", (Operators, Operator)),
    ("Models", "models", (Models, Model)),
    ("Releases", "releases", (Releases, Release)),
    ("Advisories", "advisories", ()),
    ("Limits", "limitations", ()),
    ("Findings", "rules", (Rules, Rule)),
)


def files(pages: Collection[Page], progress: Callable[[str], None] | None = None) -> dict[str, str]:
    """Return the texts of all files of the site, by their paths.

    Args:
        pages: the front page first.
        progress: receives the path of each page as it is written.

    Raises:
        OSError: a template is not in the package.
    """
    home = next(page for page in pages if isinstance(page, Home))
    templates = html.environment().overlay()
    folder = package("opcheck.render") / "template" / "site"
    files = {
        ".nojekyll": "",  # GitHub Pages would leave files out whose names begin with _
        "style.css": (folder / "style.css").read_text(encoding="utf-8"),
        "search.js": (folder / "search.js").read_text(encoding="utf-8"),
        "search-index.js": search.index(pages),
        "schema.json": schema(),
        "coverage.svg": plot(home.counts, home.macos),
    }
    own = {addresses.page_of(page) for page in pages}
    for page in pages:
        path = addresses.page_of(page)
        if progress is not None:
            progress(path)
        templates.filters = {**html.environment().filters, **filters(path, own)}
        files[f"{path}.html"] = _html(templates, page, path, home, own)
        files[f"{path}.json"] = f"{msgspec.json.encode(page).decode()}\n"
    return files


def schema() -> str:
    """Return the JSON schema of what stands beside the pages: a record for each sort of page."""
    kinds = get_args(Page)
    references, components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for kind in kinds:
        default = next(f.default for f in msgspec.structs.fields(kind) if f.name == "schema")
        components[kind.__name__]["properties"]["schema"] = {"const": default}
        components[kind.__name__]["required"] = ["schema", *components[kind.__name__]["required"]]
    content = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The JSON of each page of a site of opcheck",
        "anyOf": references,
        "$defs": components,
    }
    return f"{json.dumps(content, indent=1)}\n"


def _html(templates: Environment, page: Page, path: str, home: Home, own: Collection[str]) -> str:
    title, description = _about(page)
    html = templates.get_template(f"site/{type(page).__name__.lower()}.html").render(
        page=page,
        home=home,
        home_page=isinstance(page, Home),
        title=title,
        description=description,
        top=addresses.to_top(path),
        json=f"{path.rpartition('/')[2]}.json",
        nav=list(_navigation(page, path, own)),
        lines=tuple(home.counts),
        meanings=MEANINGS,
    )
    # A model's name and what it says are other people's text.
    return shown(html)


def _navigation(page: Page, path: str, own: Collection[str]) -> Iterable[tuple[str, str, str]]:
    """Name, address, and ``page`` or ``true`` where the reader is there or below it."""
    for name, address, below in _NAVIGATION:
        if address in own:
            here = "page" if path == address else "true" if isinstance(page, below) else ""
            yield name, address, here


def _about(page: Page) -> tuple[str, str]:
    """Return the title and the description of a page."""
    if isinstance(page, Operator):
        return f"{page.name} on MPS", f"What PyTorch's releases do with {page.name} on Apple's GPU"
    if isinstance(page, Release):
        return f"torch {page.torch} on MPS", f"What torch {page.torch} brought and broke on MPS"
    if isinstance(page, Rule):
        return f"{page.id}: {page.title}", page.title
    if isinstance(page, Model):
        return f"{page.name} on MPS", f"What PyTorch's releases do with {page.name} on Apple's GPU"
    if isinstance(page, Statements):
        words = {"limitation": "Limits of MPS kernels", "advisory": "Advisories"}
        return words[page.sort], f"All entries of the op lists: {words[page.sort].lower()}"
    return _TITLES[type(page)]


_TITLES: dict[type, tuple[str, str]] = {
    Home: ("PyTorch on Apple's GPU", "What PyTorch does on Apple's GPU, operator by operator"),
    Operators: ("All operators on MPS", "Every operator of PyTorch, and what becomes of it on MPS"),
    Releases: ("All releases", "What each release of PyTorch brought and broke on MPS"),
    Rules: ("Findings and ways out", "Everything that opcheck finds, and tested ways out"),
    Models: ("All models", "Models of the libraries, and what becomes of them on MPS"),
}
