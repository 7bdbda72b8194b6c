"""``[tool.opcheck]`` of the working directory's pyproject.toml: defaults for the flags of audit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from opcheck.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "pyproject.toml"


def read(options: Iterable[click.Option], directory: Path) -> dict[str, object]:
    """The defaults by the parameters' names; empty without a file or a table.

    Raises:
        UsageError: the file is not TOML, or has a key or a value that no flag takes.
    """
    path = directory / FILE
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read the configuration: {error}", context=FILE, hint="correct the file"
        ) from error
    tool = content.get("tool", {})
    table = tool.get("opcheck", {}) if isinstance(tool, dict) else {}
    known = {max(option.opts, key=len).removeprefix("--"): option for option in options}
    for key in table:
        if key not in known:
            raise UsageError(
                f"unknown key: {key!r}",
                context=f"{FILE}: [tool.opcheck]",
                hint=f"known: {', '.join(sorted(known))}",
            )
    return {str(known[key].name): _value(key, value, known[key]) for key, value in table.items()}


def _value(key: str, value: object, option: click.Option) -> object:
    """The value as the flag's text, or a list of such texts."""
    if option.multiple:
        if isinstance(value, dict):
            return [f"{name}={json.dumps(item)}" for name, item in value.items()]
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        raise _wrong(key, "a list of texts")
    for asked, kinds, wanted in _KINDS:
        if asked(option):
            # A bool is an int to Python, and a version written as a number has lost its zero: 2.10 is 2.1.
            if isinstance(value, kinds) and isinstance(value, bool) is (kinds == (bool,)):
                return value
            raise _wrong(key, wanted)
    raise AssertionError(key)


#: What a flag's value is written as; the first that fits.
_KINDS: tuple[tuple[Callable[[click.Option], bool], tuple[type, ...], str], ...] = (
    (lambda option: option.is_flag, (bool,), "true or false"),
    (lambda option: isinstance(option.type, click.IntRange), (int,), "a whole number"),
    (lambda option: option.type is click.FLOAT, (int, float), "a number"),
    (lambda _: True, (str,), 'a text in quotes, such as "2.10"'),
)


def _wrong(key: str, wanted: str) -> UsageError:
    return UsageError(
        f"wrong value for the key {key!r}",
        context=f"{FILE}: [tool.opcheck] {key}",
        hint=f"write {wanted}",
    )
