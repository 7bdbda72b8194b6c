"""The history form: for each operator overload, the releases where its value changes.

A new release therefore adds only the lines that it changed to a file.  The file is the canonical
encoding of the full matrix of releases and overloads, so rebuilding any release in any order gives
the same bytes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from opcheck.common.versions import Version

#: The value from this release line on; None: the overload has no value there.
Entry = tuple[str, str | None]

SCHEMA = 1


class History(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a history file."""

    schema: int
    namespace: str
    key: str
    operators: dict[str, tuple[Entry, ...]]


def by_version(lines: Iterable[str]) -> list[str]:
    """Sort release lines by their versions: 2.9 before 2.10."""
    return sorted(lines, key=Version.parse)


def expand(history: Sequence[Entry], lines: Sequence[str]) -> dict[str, str]:
    """Return the value in each of the given lines (in order) that has a value."""
    changes = dict(history)
    value: str | None = None
    values: dict[str, str] = {}
    for line in lines:
        value = changes.get(line, value)
        if value is not None:
            values[line] = value
    return values


def column(operators: Mapping[str, Sequence[Entry]], lines: Sequence[str], line: str) -> dict[str, str]:
    """Return every overload that has a value in any of these lines (in order), with the value."""
    later = frozenset(lines[lines.index(line) + 1 :])
    values = {}
    for name, history in operators.items():
        value = None
        for at, changed in history:
            if at in later:
                break
            value = changed
        if value is not None:
            values[name] = value
    return values


def contract(values: Mapping[str, str], lines: Sequence[str]) -> tuple[Entry, ...]:
    """Return an entry for each line where the value changes: the inverse of ``expand``."""
    entries: list[Entry] = []
    previous: str | None = None
    for line in lines:
        value = values.get(line)
        if value != previous:
            entries.append((line, value))
        previous = value
    return tuple(entries)


def with_column(
    operators: Mapping[str, Sequence[Entry]], known: Sequence[str], line: str, column: Mapping[str, str]
) -> dict[str, tuple[Entry, ...]]:
    """Return the histories with the given release's values added; they replace its earlier values.

    Args:
        operators: the histories so far.
        known: the release lines that the histories cover.
        line: the release line of the column.
        column: its value for every overload that exists in it.
    """
    lines = by_version({*known, line})
    merged: dict[str, tuple[Entry, ...]] = {}
    for name in sorted({*operators, *column}):
        values = expand(operators.get(name, ()), known)
        values.pop(line, None)
        if name in column:
            values[line] = column[name]
        if values:
            merged[name] = contract(values, lines)
    return merged


def dump(history: History) -> str:
    """Return the text of a history file: one overload per line."""
    head = {"schema": history.schema, "namespace": history.namespace, "key": history.key}
    rows = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(entries, separators=(',', ':'))}"
        for name, entries in sorted(history.operators.items())
    )
    return f'{json.dumps(head)[:-1]},\n"operators": {{\n{rows}\n}}}}\n'
