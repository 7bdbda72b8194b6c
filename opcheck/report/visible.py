"""Text of other people's programs, made fit to be shown.

Names of models and modules, source lines and messages come from whoever wrote the program.  An escape sequence in one would
command the reader's terminal, a right-to-left mark would show a line as what it is not, and XML has no way to write either.
JSON and YAML keep every character: they escape it by themselves.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from opcheck.model import Report

Record = TypeVar("Record", bound=msgspec.Struct)

#: Control characters but tab and newline, line separators, directional marks, surrogates, non-characters.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff"
    "\ud800-\udfff]"
)


def visible(report: Report) -> Report:
    """The report with every such character written as its number; without the single calls."""
    return _visible(msgspec.structs.replace(report, graph=()))  # type: ignore[no-any-return]


def every_text(record: Record) -> Record:
    """Any record with all its texts written so."""
    return _visible(record)  # type: ignore[no-any-return]


def shown(text: str) -> str:
    r"""One text, such a character as ``\x1b``."""
    if text.isprintable():
        return text
    return _HIDDEN.sub(lambda match: _escaped(match[0]), text)


def one_line(text: str) -> str:
    """The same, on one line."""
    return " ".join(shown(text).split())


def _escaped(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, msgspec.Struct):
        fields = value.__struct_fields__
        return type(value)(**{name: _visible(getattr(value, name)) for name in fields})
    if isinstance(value, (tuple, list)):
        return type(value)(_visible(entry) for entry in value)
    if isinstance(value, dict):
        return {_visible(name): _visible(entry) for name, entry in value.items()}
    return value
