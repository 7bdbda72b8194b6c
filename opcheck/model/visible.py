"""Records whose texts are made fit to be shown.

JSON and YAML keep every character: they escape it by themselves.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from opcheck.common.sanitize import flat, one_line, shown
from opcheck.model.records import Report

__all__ = ["every_text", "one_line", "shown", "visible"]

Record = TypeVar("Record", bound=msgspec.Struct)


def visible(report: Report) -> Report:
    """The report with its texts on one line each and hidden characters as their numbers; without the single calls."""
    return _visible(msgspec.structs.replace(report, graph=()))  # type: ignore[no-any-return]


def every_text(record: Record) -> Record:
    """Any record with all its texts written so."""
    return _visible(record)  # type: ignore[no-any-return]


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return flat(value)
    if isinstance(value, msgspec.Struct):
        fields = value.__struct_fields__
        return type(value)(**{name: _visible(getattr(value, name)) for name in fields})
    if isinstance(value, (tuple, list)):
        return type(value)(_visible(entry) for entry in value)
    if isinstance(value, dict):
        return {_visible(name): _visible(entry) for name, entry in value.items()}
    return value
