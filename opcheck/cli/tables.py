"""Converts tables of the configuration from plain data to records; those of the ignores, too."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date
from typing import Any, TypeVar

import msgspec

from opcheck.common.errors import OpcheckError, UsageError
from opcheck.judge.rules import BY_ID
from opcheck.model.ignores import Entry
from opcheck.model.records import Record
from opcheck.source.rules import BY_ID as SCAN_BY_ID

#: The keys of ``[tool.opcheck]`` that hold tables; the rest are flags.
TABLES = ("models", "targets", "ignore")

#: Where in a table msgspec found a wrong value.
_PATH = re.compile(r" - at `\$(?P<path>.*)`$")

_Kind = TypeVar("_Kind", bound=Record)


def ignored(content: object, where: str) -> tuple[Entry, ...]:
    """Return the entries of ``[[tool.opcheck.ignore]]``.

    Raises:
        UsageError: as ``settings`` says; an entry without a reason.
    """
    ignores = of_kind(Entry, entries(content, f"{where} ignore"), "ignore", where)
    for number, entry in enumerate(ignores, 1):
        place = f"{where} ignore, entry {number}"
        one_of([entry.rule], {**BY_ID, **SCAN_BY_ID}, place, "rule")
        if not entry.reason.strip():
            raise UsageError(
                f"{entry.rule} is ignored without a reason",
                context=place,
                hint='write reason = "..."',
            )
    return ignores


def entries(
    content: object, place: str, *, short: str = "", named: bool = False
) -> list[dict[str, Any]]:
    """Normalise a list of tables, which may be written as one table, several, names with tables, or texts.

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
    listed = []
    for entry in tables:
        if isinstance(entry, str) and short:
            listed.append({short: entry})
        elif isinstance(entry, Mapping):
            listed.append(dict(entry))
        else:
            raise UsageError(
                f"not a table: {entry!r}", context=place, hint="write [[tool.opcheck....]]"
            )
    return listed


def of_kind(
    kind: type[_Kind], tables: Iterable[dict[str, Any]], key: str, where: str
) -> tuple[_Kind, ...]:
    """Convert the tables below ``key`` to records of one kind.

    Raises:
        UsageError: an unknown key, one that is missing, a value of another kind.
    """
    return tuple(
        _record(kind, entry, f"{where} {key}, {entry.get('name') or f'entry {number}'}")
        for number, entry in enumerate(tables, 1)
    )


def _record(kind: type[_Kind], entry: dict[str, Any], place: str) -> _Kind:
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
    """Check that all names are known.

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


@contextlib.contextmanager
def within(place: str) -> Iterator[None]:
    """Prefix the context of an error with the place of the value."""
    try:
        yield
    except OpcheckError as error:
        error.context = "; ".join(filter(None, (place, error.context)))
        raise
