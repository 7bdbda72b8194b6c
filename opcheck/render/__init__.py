"""Report -> text, one format a file; pure: the same report gives the same bytes."""

from __future__ import annotations

from importlib import import_module
from pathlib import PurePath
from typing import NamedTuple

from opcheck.common.sanitize import finished
from opcheck.model.records import Report


class Format(NamedTuple):
    """A format: the module that has its ``render``, and the suffixes of its files."""

    module: str
    #: none: no suffix of a file asks for it.
    suffixes: tuple[str, ...] = ()


#: The formats by name.  Each module is imported when it renders: rich and tabulate are slow to load.
FORMATS: dict[str, Format] = {
    "text": Format("opcheck.render.terminal", (".txt",)),
    "yaml": Format("opcheck.render.yaml", (".yaml", ".yml")),
    "markdown": Format("opcheck.render.markdown", (".md",)),
    "json": Format("opcheck.render.json", (".json",)),
    "jsonl": Format("opcheck.render.jsonl", (".jsonl", ".ndjson")),
    "sarif": Format("opcheck.render.sarif", (".sarif", ".sarif.json")),
    "junit": Format("opcheck.render.junit", (".xml",)),
    "github": Format("opcheck.render.github"),
    "gitlab": Format("opcheck.render.gitlab", (".gitlab.json",)),
    "csv": Format("opcheck.render.csv", (".csv",)),
    "html": Format("opcheck.render.html", (".html", ".htm")),
}


def render(report: Report, format_name: str) -> str:
    """The report in the format of that name."""
    text: str = import_module(FORMATS[format_name].module).render(report)
    return finished(text, format_name)


def format_of(path: str) -> str | None:
    """The format that a file's suffix asks for, if it asks for one: the longest that fits."""
    name = PurePath(path).name.lower()
    fitting = [
        (suffix, kind)
        for kind, about in FORMATS.items()
        for suffix in about.suffixes
        if name.endswith(suffix)
    ]
    return max(fitting, key=lambda entry: len(entry[0]), default=("", None))[1]
