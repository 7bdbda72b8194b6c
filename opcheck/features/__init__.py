"""A feature is a folder: all of one verb of the command line, found by its name.

``features/VERB/feature.json`` declares the verb (``Feature``) and ``features/VERB/verb.py`` has its ``command``; the
other files of the folder are named by their concept.  A feature imports the rooms below, never another feature.
"""

import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec

#: The groups of the help, in its order.
GROUPS = ("Look up", "Audit a model or its source", "Audit many models", "Run and observe", "Maintain and publish")


class Feature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the help, the completion, the schemas and the documentation's menu show of a verb."""

    #: from GROUPS
    group: str
    #: the place within the group; verbs of the same place follow by name
    position: int = 99
    #: one line
    help: str
    #: the notes below the options
    epilog: str = ""
    #: by subcommand what click shows of it: help, short_help, epilog
    commands: dict[str, dict[str, str]] = {}
    #: command line -> its purpose
    examples: dict[str, str] = {}
    #: the page in docs/how-to/ without its suffix; empty: it is named like the verb
    page: str = ""
    #: the documents that ``-f json`` writes, by the name that ``explain schema NAME`` takes: "module:Record"
    documents: dict[str, str] = {}
    #: the modules that write records in every format, by the name of the record
    pages: dict[str, str] = {}
    #: the keys that ``--brief`` keeps of a document, by its name; "findings.rule" is a key of the entries of a list
    brief: dict[str, tuple[str, ...]] = {}


@functools.cache
def verbs() -> Mapping[str, Path]:
    """Return the declarations of the features by verb, without importing them."""
    # importlib.resources would cost the help a fifth of its time.
    declarations = (file for folder in __path__ for file in Path(folder).glob("*/feature.json"))
    return {file.parent.name.replace("_", "-"): file for file in declarations}


def feature(verb: str) -> Feature | None:
    """Return the feature of a verb; None if there is no such verb."""
    if verb not in verbs():
        return None
    return msgspec.json.decode(verbs()[verb].read_bytes(), type=Feature)


def texts_of(verb: str, command: str = "") -> dict[str, str]:
    """Return click's texts of a verb, or of its subcommand: the help and the notes below the options."""
    declared = feature(verb)
    if declared is None:
        return {}
    whole = {"help": declared.help, "epilog": declared.epilog}
    return declared.commands[command] if command else whole


@functools.cache
def features() -> Mapping[str, Feature]:
    """Return all features by verb, in the order of the help."""
    named = {verb: declared for verb in verbs() if (declared := feature(verb))}

    def place(verb: str) -> tuple[int, int, str]:
        return GROUPS.index(named[verb].group), named[verb].position, verb

    return {verb: named[verb] for verb in sorted(named, key=place)}


def documents() -> Mapping[str, str]:
    """Return the record of each document that ``-f json`` writes, by its name; a report comes first."""
    named = {name: kind for each in features().values() for name, kind in each.documents.items()}
    return {"report": named.pop("report"), **named}


def pages() -> Mapping[str, str]:
    """Return the module that writes a record in every format, by the name of the record."""
    return {record: module for each in features().values() for record, module in each.pages.items()}


def brief_keys(document: str) -> tuple[str, ...]:
    """Return the keys that ``--brief`` keeps of a document; none: those of all."""
    return next((f.brief[document] for f in features().values() if document in f.brief), ())


def menu() -> list[dict[str, list[dict[str, str]]]]:
    """Return the documentation's pages of the verbs by group; verbs that share a page have one entry."""
    groups: dict[str, dict[str, list[str]]] = {}
    for verb, declared in features().items():
        page = f"how-to/{declared.page or verb}.md"
        groups.setdefault(declared.group, {}).setdefault(page, []).append(verb)
    return [{group: [{" and ".join(named): page} for page, named in pages.items()]} for group, pages in groups.items()]
