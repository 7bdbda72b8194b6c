"""Tables of a configuration -> records: what is wrong with one is said with its place, and the nearest that is known."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date
from typing import Any, TypeVar

import msgspec

from opcheck.common.errors import OpcheckError, UsageError

_Record = TypeVar("_Record", bound=msgspec.Struct)

_PATH = re.compile(r" - at `\$(?P<path>.*)`$")


def entries(
    content: object, place: str, *, short: str = "", named: bool = False
) -> list[dict[str, Any]]:
    """A list of tables, whichever way it is written: one table, several, names with tables, texts.

    Args:
        content: what the file holds.
        place: file and key, for errors.
        short: the key that a text alone stands for; empty: a text is none.
        named: a table may hold the entries by their names.

    Raises:
        UsageError: it is not such a list.
    """
    if named and isinstance(content, Mapping):
        content = [
            {"name": name, **({short: value} if isinstance(value, str) else dict(value))}
            for name, value in content.items()
            if isinstance(value, (str, Mapping))
        ]
    tables = [content] if isinstance(content, Mapping) else content
    if not isinstance(tables, (list, tuple)):
        raise UsageError(
            "not a list of tables",
            context=place,
            hint=f"write [[tool.opcheck.{place.rpartition(' ')[2]}]]",
        )
    found = []
    for entry in tables:
        if isinstance(entry, str) and short:
            found.append({short: entry})
        elif isinstance(entry, Mapping):
            found.append(dict(entry))
        else:
            raise UsageError(
                f"not a table: {entry!r}", context=place, hint="write [[tool.opcheck....]]"
            )
    return found


def of_kind(
    kind: type[_Record], tables: Iterable[dict[str, Any]], key: str, where: str
) -> tuple[_Record, ...]:
    """The tables as records of one kind, by the key that they stand below.

    Raises:
        UsageError: an unknown key, one that is missing, a value of another kind.
    """
    return tuple(
        _record(kind, entry, f"{where} {key}, {entry.get('name') or f'entry {number}'}")
        for number, entry in enumerate(tables, 1)
    )


def _record(kind: type[_Record], entry: dict[str, Any], place: str) -> _Record:
    fields = msgspec.structs.fields(kind)
    one_of(entry, [field.encode_name for field in fields], place, "key")
    for field in fields:
        if field.required and field.encode_name not in entry:
            raise UsageError(
                f"the key {field.encode_name!r} is missing",
                context=place,
                hint=f'write {field.encode_name} = "..."',
            )
    try:
        return msgspec.convert(entry, kind, builtin_types=(date,))
    except msgspec.ValidationError as error:
        text = str(error)
        match = _PATH.search(text)
        path = match["path"].lstrip(".") if match else ""
        raise UsageError(
            f"wrong value: {_PATH.sub('', text).replace('`', '')}",
            context=f"{place}: {path}" if path else place,
            hint='a text is written in quotes, such as "2.10"; a date without: 2027-01-31',
        ) from error


def one_of(names: Iterable[str], known: Collection[str], place: str, what: str) -> None:
    """See that all names are known.

    Raises:
        UsageError: one is not; the nearest is named.
    """
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            raise UsageError(
                f"unknown {what}: {name!r}",
                context=place,
                hint="; ".join(
                    [
                        *(f"did you mean {text!r}?" for text in near),
                        f"known: {', '.join(known) or 'none'}",
                    ]
                ),
            )


def within(place: str, work: Callable[[Any], Any], value: object) -> Any:
    """What it returns; an error says where the value stands."""
    try:
        return work(value)
    except OpcheckError as error:
        error.context = "; ".join(filter(None, (place, error.context)))
        raise
