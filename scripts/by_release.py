"""Writes what was recorded of each release as one file, in which an entry has a row only where it changes."""

import functools
import json
from collections.abc import Mapping
from typing import Any

from opcheck.common.versions import Version


def rows(recorded: Mapping[str, Mapping[str, tuple[Any, Any]]]) -> dict[str, list[Any]]:
    """Return the rows of each entry: the release line that changes it, and its two values."""
    lines = sorted(recorded, key=Version.parse)
    result: dict[str, list[Any]] = {}
    for name in sorted({name for line in lines for name in recorded[line]}):
        kept = result[name] = []
        for line in lines:
            value = list(recorded[line].get(name, (None, None)))
            if kept[-1][1:] != value if kept else value[0] is not None:
                kept.append([line, *value])
    return result


def text(head: Mapping[str, Any], key: str, recorded: Mapping[str, Mapping[str, tuple[Any, Any]]]) -> str:
    """Return the JSON of a file with one line an entry: each holds its rows from the release on that changes it.

    Args:
        head: what the file holds before the entries.
        key: where the entries stand.
        recorded: by release line, the two values of each entry; the first is None where there is none.
    """
    return lines(head, {key: rows(recorded)})


def lines(head: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the JSON of a file that holds a head and tables, with one line an entry of a table."""
    compact = functools.partial(json.dumps, separators=(",", ":"))
    parts = (
        f"{compact(key)}:{{\n"
        + ",\n".join(f"{compact(name)}:{compact(value)}" for name, value in table.items())
        + "\n}"
        for key, table in tables.items()
    )
    return f"{compact(head)[:-1]},\n" + ",\n".join(parts) + "}\n"
