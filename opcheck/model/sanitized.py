"""Sanitizes a report, so that a program can be written from its texts."""

from __future__ import annotations

from typing import Any

import msgspec

from opcheck.common.sanitize import flat
from opcheck.model.records import Report


def sanitized(report: Report) -> Report:
    """Return the report without its graph, each text on one line with hidden characters as numbers."""
    return _sanitized(msgspec.structs.replace(report, graph=()))  # type: ignore[no-any-return]


def _sanitized(value: Any) -> Any:
    if isinstance(value, str):
        return flat(value)
    if isinstance(value, msgspec.Struct):
        fields = value.__struct_fields__
        return type(value)(**{name: _sanitized(getattr(value, name)) for name in fields})
    if isinstance(value, (tuple, list)):
        return type(value)(_sanitized(entry) for entry in value)
    if isinstance(value, dict):
        return {_sanitized(name): _sanitized(entry) for name, entry in value.items()}
    return value
