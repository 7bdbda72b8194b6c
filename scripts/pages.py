"""Texts of the pages that scripts write, and their places in files."""

from pathlib import Path

import msgspec

from opcheck.common.files import write_text

ROOT = Path(__file__).parents[1]
_TEXTS = Path(__file__).with_name("page_texts.yaml")


def page_text(name: str, **fields: object) -> str:
    """Return a text of page_texts.yaml with its fields filled in.

    Raises:
        KeyError: there is no such text, or it names a field that is not given.
    """
    return msgspec.yaml.decode(_TEXTS.read_bytes(), type=dict[str, str])[name].format(**fields)


def replace_between(path: Path, begin: str, end: str, text: str) -> None:
    """Write a text between two marks of a page.

    Raises:
        ValueError: the page lacks a mark.
    """
    head, rest = path.read_text(encoding="utf-8").split(begin)
    _, tail = rest.split(end)
    write_text(path, f"{head}{begin}{text}{end}{tail}")
