"""``[tool.opcheck]`` of the working directory's pyproject.toml, or opcheck.toml: defaults for flags, and the gate's tables."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from opcheck.common import documents
from opcheck.common.documents import DocumentError
from opcheck.common.errors import UsageError
from opcheck.model.ignores import Entry, Ignores

FILE, OWN_FILE = "pyproject.toml", "opcheck.toml"

#: The verbs whose flags are keys: what one of them takes, the others leave alone.
_VERBS = ("audit", "gate")
#: The verbs that have a table of their own.
_OWN_TABLES = ("scan",)


def read(options: Iterable[click.Parameter], directory: Path) -> dict[str, object]:
    """The defaults by the parameters' names; empty without a file or a table.

    Raises:
        UsageError: a file is not TOML, both files have a configuration, a key that no flag of any verb takes and that is
            no table of the gate, or a value that its flag does not take.
    """
    content, where = table(directory)
    own = _keys(options)
    elsewhere: set[str] = set() if set(content) <= set(own) else _known_elsewhere()
    for key in content:
        if key not in own and key not in elsewhere:
            known = sorted({*own, *elsewhere})
            near = difflib.get_close_matches(key, known, 1)
            raise UsageError(
                f"unknown key: {key!r}",
                context=where,
                hint="; ".join(
                    [*(f"did you mean {name!r}?" for name in near), f"known: {', '.join(known)}"]
                ),
            )
    return {
        str(own[key].name): _value(key, value, own[key], where)
        for key, value in content.items()
        if key in own
    }


def table(directory: Path) -> tuple[dict[str, Any], str]:
    """The whole configuration of a directory, and the name of its file and table.

    Raises:
        UsageError: a file is not TOML, or both files have a configuration.
    """
    own = _toml(directory / OWN_FILE)
    tool = (_toml(directory / FILE) or {}).get("tool", {})
    shared = tool.get("opcheck") if isinstance(tool, dict) else None
    if own is not None and shared:
        raise UsageError(
            "opcheck is configured twice",
            context=f"{OWN_FILE}; {FILE}: [tool.opcheck]",
            hint="keep one of them",
        )
    found, where = (shared, f"{FILE}: [tool.opcheck]") if own is None else (own, OWN_FILE)
    return (found if isinstance(found, dict) else {}), where


def of_verb(verb: str, params: Iterable[click.Parameter], directory: Path) -> dict[str, object]:
    """The defaults in the verb's own table, ``[tool.opcheck.VERB]``: its flags, and ``paths``.

    Raises:
        UsageError: as ``read`` says.
    """
    content, where = table(directory)
    own = _keys(params)
    found: dict[str, object] = {}
    of_this = content.get(verb, {})
    if not isinstance(of_this, dict):
        raise _wrong(verb, f"[tool.opcheck.{verb}] and its keys below", where)
    where = f"{where} {verb}"
    for key, value in of_this.items():
        if key == "paths":
            if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
                raise _wrong(key, "a list of texts", where)
            found[key] = value
        elif key in own:
            found[str(own[key].name)] = _value(key, value, own[key], where)
        else:
            raise UsageError(
                f"unknown key: {key!r}",
                context=where,
                hint=f"known: {', '.join(sorted({*own, 'paths'}))}",
            )
    return found


def ignores(directory: Path) -> Ignores:
    """What is ignored today: by the entries of the configuration, and by comments of the files below the directory.

    Raises:
        UsageError: an entry has a mistake.
    """
    content, where = table(directory)
    entries: tuple[Entry, ...] = ()
    if "ignore" in content:
        from opcheck.project.gate.settings import ignored

        entries = ignored(content["ignore"], where)
    return Ignores(entries, today=today(), root=directory)


def today() -> date:
    """On which an ignore may expire: the only thing that a run asks the clock for."""
    return date.today()  # noqa: DTZ011  (the user's own)


def _toml(path: Path) -> dict[str, Any] | None:
    """What a file holds; None: there is none."""
    try:
        return documents.from_toml(documents.read(path))
    except DocumentError as error:
        if error.missing:
            return None
        raise UsageError(
            f"cannot read the configuration: {error}", context=path.name, hint="correct the file"
        ) from error


def _keys(options: Iterable[click.Parameter]) -> dict[str, click.Option]:
    """The flags that have a key, by it."""
    flags = [flag for flag in options if isinstance(flag, click.Option) and flag.envvar]
    return {max(flag.opts, key=len).removeprefix("--"): flag for flag in flags}


def _known_elsewhere() -> set[str]:
    """The keys of all verbs, and the tables."""
    from opcheck.project.gate.settings import TABLES

    commands = [import_module(f"opcheck.cli.{verb}").command for verb in _VERBS]
    return {key for command in commands for key in _keys(command.params)} | {*TABLES, *_OWN_TABLES}


def _value(key: str, value: object, option: click.Option, where: str) -> object:
    """The value as the flag's text, or a list of such texts."""
    if option.multiple:
        if isinstance(value, dict):
            # TOML has dates and times, which JSON has not: --config takes them as texts.
            return [f"{name}={json.dumps(item, default=str)}" for name, item in value.items()]
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        raise _wrong(key, "a list of texts", where)
    for asked, kinds, wanted in _KINDS:
        if asked(option):
            # A bool is an int to Python, and a version written as a number has lost its zero: 2.10 is 2.1.
            if isinstance(value, kinds) and isinstance(value, bool) is (kinds == (bool,)):
                return value
            raise _wrong(key, wanted, where)
    raise AssertionError(key)


#: What a flag's value is written as; the first that fits.
_KINDS: tuple[tuple[Callable[[click.Option], bool], tuple[type, ...], str], ...] = (
    (lambda option: option.is_flag, (bool,), "true or false"),
    (lambda option: isinstance(option.type, click.IntRange), (int,), "a whole number"),
    (lambda option: option.type is click.FLOAT, (int, float), "a number"),
    (lambda _: True, (str,), 'a text in quotes, such as "2.10"'),
)


def _wrong(key: str, wanted: str, where: str) -> UsageError:
    return UsageError(
        f"wrong value for the key {key!r}",
        context=f"{where} {key}",
        hint=f"write {wanted}",
    )
