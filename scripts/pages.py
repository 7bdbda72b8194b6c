"""Texts and tables of the pages that scripts write, and their places in files."""

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from tabulate import tabulate

from opcheck.common.files import write_text

ROOT = Path(__file__).parents[1]


def page_text(name: str, /, **fields: object) -> str:
    """Return a text of page_texts.yaml with its fields filled in.

    Raises:
        KeyError: there is no such text, or it names a field that is not given.
    """
    return _texts()[name].format(**fields)


@functools.cache
def _texts() -> dict[str, str]:
    path = Path(__file__).with_name("page_texts.yaml")
    return msgspec.yaml.decode(path.read_bytes(), type=dict[str, str])


def aligned_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown whose columns are aligned; cells stay as they are written."""
    return tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True)


def narrow_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown without padding, so that a changed cell changes a single line."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def replace_between(path: Path, begin: str, end: str, text: str) -> None:
    """Write a text between two marks of a page.

    Raises:
        ValueError: the page lacks a mark.
    """
    head, rest = path.read_text(encoding="utf-8").split(begin)
    _, tail = rest.split(end)
    write_text(path, f"{head}{begin}{text}{end}{tail}")
