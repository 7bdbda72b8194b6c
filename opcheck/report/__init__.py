"""Report -> text, one format a file; pure: the same report gives the same bytes."""

from __future__ import annotations

from importlib import import_module
from pathlib import PurePath
from typing import NamedTuple

from opcheck.model import Report


class Format(NamedTuple):
    """A format: the module that has its ``render``, and the suffixes of its files."""

    module: str
    suffixes: tuple[str, ...]


#: The formats by name.  Each module is imported when it renders: rich and tabulate are slow to load.
FORMATS: dict[str, Format] = {
    "text": Format("opcheck.report.terminal", (".txt",)),
    "yaml": Format("opcheck.report.yaml", (".yaml", ".yml")),
    "markdown": Format("opcheck.report.markdown", (".md",)),
    "json": Format("opcheck.report.json", (".json",)),
}


def render(report: Report, format_name: str) -> str:
    """The report in the format of that name."""
    text: str = import_module(FORMATS[format_name].module).render(report)
    return text


def format_of(path: str) -> str | None:
    """The format that a file's suffix asks for, if it asks for one."""
    suffix = PurePath(path).suffix.lower()
    return next((name for name, kind in FORMATS.items() if suffix in kind.suffixes), None)
