"""The addresses of pages: a path within the site, and links from one page to another."""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath

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

Page = Home | Operator | Operators | Release | Releases | Statements | Rule | Rules | Model | Models

_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
#: Sorts with a single page.
_SINGLE: dict[type, str] = {
    Home: "index",
    Operators: "operators",
    Releases: "releases",
    Rules: "rules",
    Models: "models",
}


def page_of(page: Page) -> str:
    """Return the path of a page without its suffix, as ``op/aten/nonzero``."""
    if isinstance(page, Operator):
        return operator(page.name)
    if isinstance(page, Release):
        return release(page.torch)
    if isinstance(page, Rule):
        return rule(page.id)
    if isinstance(page, Model):
        return model(page.name)
    if isinstance(page, Statements):
        return {"limitation": "limitations", "advisory": "advisories"}[page.sort]
    return _SINGLE[type(page)]


def operator(name: str) -> str:
    """Return the address of an operator or an overload: ``aten::add.Tensor`` is on the page of ``aten::add``."""
    namespace, _, base = name.partition(".")[0].partition("::")
    return f"op/{namespace}/{base}"


def release(line: str) -> str:
    """Return the address of a release line."""
    return f"release/{line}"


def rule(name: str) -> str:
    """Return the address of a finding or a remedy."""
    return f"rule/{name}"


def statement(name: str, sort: str) -> str:
    """Return the address of a limitation or an advisory, which is a place on the page of all."""
    return f"{'limitations' if sort == 'limitation' else 'advisories'}.html#{name}"


def model(name: str) -> str:
    """Return the address of a model: characters that no file name can hold become a dash and a digest."""
    prefix, _, rest = name.partition(":")
    parts = [prefix, rest] if rest else [prefix]
    return "/".join(("model", *map(_file_name, parts)))


def _file_name(text: str) -> str:
    if _PLAIN.fullmatch(text) and not text.startswith("."):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") + f"-{digest}"


def to_top(path: str) -> str:
    """Return what leads from a page to the site's top: ``../../``, empty at the top."""
    return "../" * (len(PurePosixPath(path).parts) - 1)
