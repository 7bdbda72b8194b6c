"""The filters of the templates: words, and links that start from the page being written."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable
from itertools import groupby
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from opcheck.features.site import addresses, words
from opcheck.features.site.records import Listed
from opcheck.render import wording

_OP = re.compile(r"\b(?:aten|torchvision|torchaudio)::\w+(?:\.\w+)?")
_ISSUE = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)")


def filters(path: str, pages: Collection[str]) -> dict[str, Callable[..., Any]]:
    """Return the filters for one page.

    Args:
        path: of the page that is written.
        pages: the paths of all pages: nothing else is linked to.
    """
    top = addresses.to_top(path)

    def link(address: str, name: str) -> Markup:
        code = Markup("<code>{}</code>").format(name)
        if address not in pages:
            return code
        return Markup('<a href="{}{}.html">{}</a>').format(top, address, code)

    def op(name: str) -> Markup:
        return link(addresses.operator(name), name)

    def linked(text: str) -> Markup:
        """Turn the names of operators in a text into links."""
        parts, end = [], 0
        for match in _OP.finditer(text):
            parts += [escape(text[end : match.start()]), op(match[0])]
            end = match.end()
        return Markup("").join((*parts, escape(text[end:])))

    def release(line: str) -> Markup:
        return Markup('<a href="{}{}.html">{}</a>').format(top, addresses.release(line), line)

    def statement(named: tuple[str, str]) -> str:
        return top + addresses.statement(*named)

    return {
        **_OF_ANY_PAGE,
        "op": op,
        "model": lambda name: link(addresses.model(name), name),
        "linked": linked,
        "release": release,
        "statement": statement,
    }


def _address(text: str) -> Markup:
    """Return a link to an address, an issue by its number; any other text as it is."""
    if not text.startswith("https://"):
        return Markup("<code>{}</code>").format(text)
    issue = _ISSUE.fullmatch(text)
    name = f"{issue[1]}#{issue[2]}" if issue else text
    return Markup('<a href="{}">{}</a>').format(text, name)


@functools.cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False})


def _namespaces(listed: Iterable[Listed]) -> list[tuple[str, list[Listed]]]:
    groups = groupby(listed, key=lambda operator: operator.name.partition("::")[0])
    return [(namespace, list(group)) for namespace, group in groups]


_OF_ANY_PAGE: dict[str, Callable[..., Any]] = {
    "address": _address,
    "dtype_changes": words.dtype_changes,
    "dtypes": words.dtypes,
    "grid": words.grid,
    "groupby_namespace": _namespaces,
    "headline_state": words.headline_state,
    "kinds": words.kinds,
    "label": wording.LABELS.__getitem__,
    "lines": words.lines,
    "macos": words.macos,
    "markdown": lambda text: Markup(_markdown().render(text)),  # noqa: S704  (it escapes)
    "prefixed": lambda names, prefix: [f"{prefix}{name}" for name in names],
    "sentence": words.sentence,
    "since": wording.since,
    "strip": words.strip,
    "targets": words.targets,
}
