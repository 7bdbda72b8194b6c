"""The index of the search box: every page by its name and by the names that people have for it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from opcheck.common.sanitize import shown
from opcheck.data.registrations import load
from opcheck.features.site import addresses
from opcheck.features.site.addresses import Page
from opcheck.features.site.records import Model, Operator, Release, Rule
from opcheck.lookup.aliases import aliases
from opcheck.lookup.words import WORDS

#: What a page is, in the order in which equally good matches stand.
KINDS = ("operator", "model", "release", "rule", "remedy")


def index(pages: Iterable[Page]) -> str:
    """Return the index as a script, ``opcheckIndex(...)``: a page that is opened as a file cannot fetch JSON.

    Each entry is [kind, name, address, what stands beside it, other names].
    """
    lists = load()
    others = aliases(lists.names(), lists.releases[-1].line)
    entries = [entry for page in pages if (entry := _entry(page, others))]
    text = json.dumps([KINDS, entries], ensure_ascii=True, separators=(",", ":"))
    return f"opcheckIndex({text});\n"


def usual_words(page: Operator) -> list[str]:
    """Return the usual words that stand for an operator on the command line (lookup/words.yaml): ``self attention``."""
    bare = page.name.partition("::")[2]
    names = {page.name, bare, *(name.removeprefix("torch.") for name in page.python)}
    return [word for word, name in WORDS.items() if name in names]


def _entry(page: Page, others: Mapping[str, Sequence[str]]) -> list[object] | None:
    address = f"{addresses.page_of(page)}.html"
    if isinstance(page, Operator):
        names = (*page.python, *usual_words(page), *others.get(page.name, ()))
        return [0, page.name, address, page.state, [*dict.fromkeys(names)]]
    if isinstance(page, Model):
        return [
            1,
            shown(page.name),
            address,
            next(iter(page.headlines.values()), "could not tell"),
            [],
        ]
    if isinstance(page, Release):
        return [2, f"torch {page.torch}", address, f"macOS {page.minimum_macos}+", [page.release]]
    if isinstance(page, Rule):
        return [4 if page.sort == "remedy" else 3, page.id, address, page.title, []]
    return None
