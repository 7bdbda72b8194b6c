"""A feature is a folder: all of one verb of the command line, found by its name.

``features/VERB/__init__.py`` declares the verb (``FEATURE``) and ``features/VERB/verb.py`` has its ``command``; the
other files of the folder are named by their concept.  A feature imports the rooms below, never another feature.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module

#: The groups of the help, in its order.
GROUPS = (
    "Look up",
    "Audit a model or its source",
    "Audit many models",
    "Run and observe",
    "Maintain and publish",
)


@dataclass(frozen=True, kw_only=True)
class Feature:
    """What the help, the completion, the schemas and the documentation's menu show of a verb."""

    #: one of GROUPS
    group: str
    #: the place within the group; verbs of the same place follow by name
    position: int = 99
    #: one line
    help: str
    #: command line -> its purpose
    examples: Mapping[str, str] = field(default_factory=dict)
    #: the page in docs/how-to/ without its suffix; empty: it is named like the verb
    page: str = ""
    #: the documents that ``-f json`` writes, by the name that ``explain schema NAME`` takes: "module:Record"
    documents: Mapping[str, str] = field(default_factory=dict)
    #: the modules that write records in every format, by the name of the record
    pages: Mapping[str, str] = field(default_factory=dict)


@functools.cache
def verbs() -> frozenset[str]:
    """Return the names of the features, without importing them."""
    return frozenset(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)


def feature(verb: str) -> Feature | None:
    """Return the feature of a verb; None where there is none."""
    if verb not in verbs():
        return None
    declared: Feature = import_module(f"{__name__}.{verb}").FEATURE
    return declared


@functools.cache
def features() -> Mapping[str, Feature]:
    """Return all features by verb, in the order of the help."""
    named = {verb: import_module(f"{__name__}.{verb}").FEATURE for verb in verbs()}

    def place(verb: str) -> tuple[int, int, str]:
        return GROUPS.index(named[verb].group), named[verb].position, verb

    return {verb: named[verb] for verb in sorted(named, key=place)}


def documents() -> Mapping[str, str]:
    """Return the record of each document that ``-f json`` writes, by its name; a report comes first."""
    named = {
        name: record for each in features().values() for name, record in each.documents.items()
    }
    return {"report": named.pop("report"), **named}


def pages() -> Mapping[str, str]:
    """Return the module that writes a record in every format, by the name of the record."""
    return {record: module for each in features().values() for record, module in each.pages.items()}


def menu() -> list[dict[str, list[dict[str, str]]]]:
    """Return the documentation's pages of the verbs by group; verbs that share a page have one entry."""
    groups: dict[str, dict[str, list[str]]] = {}
    for verb, declared in features().items():
        page = f"how-to/{declared.page or verb}.md"
        groups.setdefault(declared.group, {}).setdefault(page, []).append(verb)
    return [
        {group: [{" and ".join(named): page} for page, named in pages.items()]}
        for group, pages in groups.items()
    ]
