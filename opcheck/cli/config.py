"""Reads ``[tool.opcheck]`` of the local pyproject.toml or opcheck.toml: defaults of flags, and the gate's tables."""

import contextlib
import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from opcheck.cli import streams
from opcheck.common import documents
from opcheck.common.errors import OpcheckError, UsageError, located_at
from opcheck.model.ignores import IgnoreEntry, Ignores
from opcheck.model.options import PATHS, READER, Action, check_inside
from opcheck.model.records import Record

FILE, OWN_FILE = "pyproject.toml", "opcheck.toml"

#: The verbs whose flags are keys of the shared table; each verb ignores the keys of the others.
_VERBS = ("audit", "gate")
#: The verbs that have a table of their own.
_OWN_TABLES = ("scan",)


def defaults(
    verb: str,
    params: Sequence[click.Parameter],
    directory: Path,
    *,
    takes: frozenset[Action] = READER,
    note: Callable[[str], None] = streams.note,
) -> dict[str, object]:
    """Return the defaults of a verb's parameters by name; empty without a file or a table.

    Args:
        verb: whose own table is read, ``[tool.opcheck.VERB]``; empty: ``[tool.opcheck]``, which verbs share.
        params: the parameters that may have defaults there.
        directory: where the file is looked for.
        takes: what options that the file sets may do; another key is left out.
        note: receives what is left out, and why.

    Raises:
        UsageError: a file is not TOML, both files have a configuration, an unknown key, a value that its flag does
            not take, or a path that leads out of the directory.
    """
    content, where = table(directory)
    keys: dict[str, click.Parameter] = dict(_keys(params))
    if verb:
        keys |= {str(param.name): param for param in params if isinstance(param, click.Argument)}
        content, where = content.get(verb, {}), f"{where} {verb}"
        if not isinstance(content, dict):
            raise _wrong(verb, f"[tool.opcheck.{verb}] and its keys below", where)
        one_of(content, sorted(keys), where, "key", near=False)
    elif not set(content) <= set(keys):
        # The keys of all verbs, and the names of the tables.
        commands = [import_module(f"opcheck.features.{each}.verb").command for each in _VERBS]
        others = {key for command in commands for key in _keys(command.params)}
        one_of(content, sorted({*keys, *others, *TABLES, *_OWN_TABLES}), where, "key")
    values: dict[str, object] = {}
    for key, param in keys.items():
        if key not in content:
            continue
        source = getattr(param, "source", None)
        # An argument names what is read.
        action: Action = source.option.action if source else "reads"
        if action not in takes:
            instead = f"({param.opts[0]} and {param.envvar} can)"
            note(f"{where} {key} is ignored: the file of a project cannot set what {_ACTIONS[action]} {instead}")
            continue
        value = _value(key, content[key], param, where)
        if action in PATHS:
            with located_at(f"{where} {key}"):
                check_inside(value, directory)
        values[str(param.name)] = value
    return values


#: What an option does that a verb may refuse to take from a file.
_ACTIONS = {"writes": "this command writes", "runs": "it runs or installs", "trusts": "code it trusts"}


def table(directory: Path) -> tuple[dict[str, Any], str]:
    """Return the whole configuration of a directory, and the name of its file and table.

    Raises:
        UsageError: a file is not TOML, or both files have a configuration.
    """
    own = _toml(directory / OWN_FILE)
    tool = (_toml(directory / FILE) or {}).get("tool", {})
    shared = tool.get("opcheck") if isinstance(tool, dict) else None
    place = f"{FILE}: [tool.opcheck]"
    if own is not None and shared:
        context, hint = f"{OWN_FILE}; {place}", "remove either configuration"
        raise UsageError("opcheck is configured twice", context=context, hint=hint)
    content, where = (shared, place) if own is None else (own, OWN_FILE)
    return (content if isinstance(content, dict) else {}), where


def ignores(directory: Path) -> Ignores:
    """Return what the configuration and the comments in files below the directory ignore today.

    Raises:
        UsageError: an entry has a mistake.
    """
    return Ignores(ignore_entries(directory), today=today(), root=directory)


def ignore_entries(directory: Path) -> tuple[IgnoreEntry, ...]:
    """Return the entries of ``[[tool.opcheck.ignore]]``.

    Raises:
        UsageError: an entry has a mistake.
    """
    content, where = table(directory)
    return read_ignores(content["ignore"], where) if "ignore" in content else ()


def today() -> date:
    """Return today's date, for the expiry of ignores; a run uses the clock for nothing else."""
    return date.today()  # noqa: DTZ011  (the user's own)


def _toml(path: Path) -> dict[str, Any] | None:
    """Parse a TOML file; None if there is no such file."""
    try:
        return documents.from_toml(documents.read(path))
    except documents.DocumentError as error:
        if error.missing:
            return None
        raise UsageError(
            f"cannot read the configuration: {error}", context=path.name, hint="correct the file"
        ) from error


def _keys(params: Iterable[click.Parameter]) -> dict[str, click.Option]:
    """Return the parameters that have a configuration key, by that key."""
    flags = [param for param in params if isinstance(param, click.Option) and param.envvar]
    return {max(flag.opts, key=len).removeprefix("--"): flag for flag in flags}


def _value(key: str, value: object, param: click.Parameter, where: str) -> object:
    """Convert a value to the text that the flag takes, or to a list of such texts."""
    if param.multiple or param.nargs == -1:
        if isinstance(value, dict) and param.multiple:
            # TOML has dates and times, which JSON lacks: --config takes them as texts.
            return [f"{name}={json.dumps(item, default=str)}" for name, item in value.items()]
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        raise _wrong(key, "a list of texts", where)
    for asked, kinds, wanted in _KINDS:
        if asked(param):
            # A bool is an int to Python, and a version written as a number has lost its zero: 2.10 is 2.1.
            if isinstance(value, kinds) and isinstance(value, bool) is (kinds == (bool,)):
                return value
            choices = param.type.choices if isinstance(param.type, click.Choice) else ()
            named = ", ".join(f'"{choice}"' for choice in choices)
            raise _wrong(key, f"one of {named}" if named else wanted, where)
    raise AssertionError(key)


#: How a flag's value is described in errors; the first that fits is used.
_KINDS: tuple[tuple[Callable[[click.Parameter], bool], tuple[type, ...], str], ...] = (
    (lambda param: isinstance(param, click.Option) and param.is_flag, (bool,), "true or false"),
    (lambda param: isinstance(param.type, click.IntRange), (int,), "a whole number"),
    (lambda param: param.type is click.FLOAT, (int, float), "a number"),
    (lambda _: True, (str,), 'a text in quotes, such as "2.10"'),
)


def _wrong(key: str, wanted: str, where: str) -> UsageError:
    return UsageError(f"wrong value for the key {key!r}", context=f"{where} {key}", hint=f"write {wanted}")


#: The keys of ``[tool.opcheck]`` with tables; the rest are flags.
TABLES = ("models", "targets", "ignore")

#: Where in a table msgspec found a wrong value.
_PATH = re.compile(r" - at `\$(?P<path>.*)`$")

_Kind = TypeVar("_Kind", bound=Record)


def read_ignores(content: object, where: str) -> tuple[IgnoreEntry, ...]:
    """Return the entries of ``[[tool.opcheck.ignore]]``.

    Raises:
        UsageError: an entry has a mistake, or no reason.
    """
    from opcheck.judge.rules import BY_ID
    from opcheck.source.rules import BY_ID as SCAN_BY_ID

    ignores = of_kind(IgnoreEntry, entries(content, f"{where} ignore"), "ignore", where)
    for number, entry in enumerate(ignores, 1):
        place = f"{where} ignore, entry {number}"
        one_of([entry.rule], {**BY_ID, **SCAN_BY_ID}, place, "rule")
        if not entry.reason.strip():
            message = f"{entry.rule} is ignored without a reason"
            raise UsageError(message, context=place, hint='write reason = "..."')
    return ignores


def entries(content: object, place: str, *, short: str = "", named: bool = False) -> list[dict[str, Any]]:
    """Normalise a list of tables, which may be written as one table, several, names with tables, or texts.

    Args:
        content: the value in the file.
        place: file and key, for errors.
        short: the key of an entry that is only a text; empty: a text is refused.
        named: a table may have the entries by their names.

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
        hint = f"write [[tool.opcheck.{place.rpartition(' ')[2]}]]"
        raise UsageError("not a list of tables", context=place, hint=hint)
    listed = [{short: entry} if isinstance(entry, str) and short else entry for entry in tables]
    for entry in listed:
        if not isinstance(entry, Mapping):
            raise UsageError(f"not a table: {entry!r}", context=place, hint="write [[tool.opcheck....]]")
    return [*map(dict, listed)]


def of_kind(kind: type[_Kind], tables: Iterable[dict[str, Any]], key: str, where: str) -> tuple[_Kind, ...]:
    """Convert the tables below ``key`` to records of one kind.

    Raises:
        UsageError: an unknown or missing key, a value of another kind.
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
                f"the key {field.encode_name!r} is missing", context=place, hint=f'write {field.encode_name} = "..."'
            )
    try:
        return msgspec.convert(entry, kind, builtin_types=(date,))
    except msgspec.ValidationError as error:
        text, *path = _PATH.split(str(error))
        where = ": ".join(filter(None, (place, "".join(path).lstrip("."))))
        hint = 'a text is written in quotes, such as "2.10"; a date without: 2027-01-31'
        raise UsageError(f"wrong value: {text.replace('`', '')}", context=where, hint=hint) from error


def one_of(names: Iterable[str], known: Collection[str], place: str, what: str, *, near: bool = True) -> None:
    """Check that all names are known.

    Raises:
        UsageError: a name is unknown; the nearest is suggested.
    """
    for name in names:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, 1, 0.5) if near else []
            meant = "".join(f"did you mean {text!r}?; " for text in nearest)
            hint = f"{meant}known: {', '.join(known) or 'none'}"
            raise UsageError(f"unknown {what}: {name!r}", context=place, hint=hint)


@contextlib.contextmanager
def prefix_errors(place: str) -> Iterator[None]:
    """Prefix the context of an error with the place of the value."""
    try:
        yield
    except OpcheckError as error:
        error.context = "; ".join(filter(None, (place, error.context)))
        raise
