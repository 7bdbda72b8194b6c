"""The environment variables that a release reads for MPS, and those that only guides mention."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from opcheck.common.errors import OpListError
from opcheck.common.versions import Span, Version
from opcheck.common.vocabulary import VariableStatus
from opcheck.data.registrations import data_directory
from opcheck.data.statement_model import StatementEvidence
from opcheck.data.strict_yaml import Document, read
from opcheck.data.written_span import WrittenSpan
from opcheck.model.records import Record

FILE = "environment.yaml"
#: The names that occur in each wheel; scripts/check_environment.py writes the file.
FOUND = "environment.found.yaml"

#: The pattern of these variables' names in every release so far.
NAME = re.compile(r"PYTORCH_[A-Z0-9_]*MPS[A-Z0-9_]*")
_LINE = re.compile(r"\d+\.\d+")

_Kind = TypeVar("_Kind")


class Bit(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bit of a variable whose value is a sum of bits."""

    value: int
    name: str


class Variable(Record, frozen=True, kw_only=True):
    """A variable that a release reads."""

    name: str
    torch: Span
    meaning: str
    #: the values that it accepts, and its default.
    values: str
    default: str
    #: when PyTorch reads it: a later change has no effect.
    read: str
    bits: tuple[Bit, ...] = ()
    evidence: tuple[StatementEvidence, ...] = ()


class Explanation(Record, frozen=True, kw_only=True):
    """The meaning of a variable's name for a release."""

    name: str
    #: read, later, earlier, invented, unknown
    status: VariableStatus
    text: str
    #: the variable, if any release reads it.
    variable: Variable | None = None


class Environment(Record, frozen=True, kw_only=True):
    """The content of ``environment.yaml``."""

    variables: Mapping[str, Variable]
    #: name -> what to use instead.
    invented: Mapping[str, str]

    def known(self, line: str) -> tuple[Variable, ...]:
        """Return the variables that a release line such as ``2.13`` reads, by name.

        Raises:
            UsageError: not a version.
        """
        version = Version.parse(line)
        return tuple(v for _, v in sorted(self.variables.items()) if version in v.torch)

    def explain(self, name: str, line: str) -> Explanation:
        """Explain the effect of a variable in a release; the status of an unrecorded name is ``unknown``.

        Raises:
            UsageError: not a version.
        """
        version = Version.parse(line)
        if name in self.invented:
            text = f"no release of PyTorch reads {name}. {self.invented[name]}"
            return Explanation(name=name, status="invented", text=text)
        variable = self.variables.get(name)
        if variable is None:
            text = f"opcheck does not know {name}"
            if NAME.fullmatch(name):
                text += f"; torch {version} does not read it, as far as its wheel tells"
            return Explanation(name=name, status="unknown", text=text)
        if version in variable.torch:
            return Explanation(name=name, status="read", text=variable.meaning, variable=variable)
        since = variable.torch.since
        if since is not None and version < since:
            text = f"torch {version} does not read {name}: it came with {since}"
            return Explanation(name=name, status="later", text=text, variable=variable)
        text = f"torch {version} no longer reads {name}: it went with {variable.torch.until}"
        return Explanation(name=name, status="earlier", text=text, variable=variable)


def known(line: str) -> tuple[Variable, ...]:
    """Return the variables that a release line reads: ``Environment.known`` of the shipped data."""
    return load_environment().known(line)


def explain(name: str, line: str) -> Explanation:
    """Explain the effect of a variable: ``Environment.explain`` of the shipped data."""
    return load_environment().explain(name, line)


def number(text: str) -> float | None:
    """Return a variable's value as a number (decimal or 0x...); None where it is not a number."""
    try:
        return float(int(text, 0)) if text.lower().startswith("0x") else float(text)
    except (ValueError, OverflowError):
        return None


def load_environment(directory: Path | None = None) -> Environment:
    """Read ``environment.yaml``; the same directory is read once.

    Raises:
        OpListError: the file is missing or damaged; all of its problems are named.
    """
    return _load((directory or data_directory()).resolve())


class _Variable(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    torch: WrittenSpan
    meaning: str
    values: str
    default: str
    read: str
    evidence: tuple[StatementEvidence, ...]
    bits: tuple[Bit, ...] = ()


class _Invented(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    instead: str


@functools.cache
def _load(directory: Path) -> Environment:
    document = read(directory / FILE, FILE)
    value: Any = document.value if isinstance(document.value, dict) else {}
    if not document.problems and value.keys() != {"schema", "variables", "invented"}:
        document.report((), "a mapping with schema, variables and invented is expected")
    if not document.problems and value["schema"] != 1:
        document.report(("schema",), "the schema must be 1")
    written = _entries(document, value, "variables", _Variable)
    invented = _entries(document, value, "invented", _Invented)
    for name in sorted(written.keys() & invented.keys()):
        document.report(("invented", name), "a variable that releases read is not invented")
    for name, variable in written.items():
        _check(document, ("variables", name), variable)
    if document.problems:
        raise OpListError(
            "\n".join(f"{problem}" for problem in sorted(set(document.problems))),
            context=str(directory / FILE),
            hint="correct the file; op_lists/README.md explains its fields",
        )
    return Environment(
        variables={name: _variable(name, variable) for name, variable in written.items()},
        invented={name: entry.instead for name, entry in invented.items()},
    )


def _entries(document: Document, value: Any, key: str, kind: type[_Kind]) -> dict[str, _Kind]:
    """Return the entries below a key, and report their problems to the document."""
    entries = value.get(key, {})
    if not isinstance(entries, dict):
        document.report((key,), "a mapping of names is expected")
        return {}
    converted = {}
    for name, node in entries.items():
        if not NAME.fullmatch(name):
            document.report((key, name), "not the name of such a variable")
        try:
            converted[name] = msgspec.convert(node, kind)
        except msgspec.ValidationError as error:
            document.report((key, name), str(error))
    return converted


def _check(document: Document, path: tuple[str, ...], variable: _Variable) -> None:
    for end in variable.torch.ends:
        if not _LINE.fullmatch(end):
            document.report((*path, "torch"), f"not a release line: {end}")
    if not variable.evidence:
        document.report((*path, "evidence"), "no evidence")


def _variable(name: str, written: _Variable) -> Variable:
    return Variable(
        name=name,
        torch=written.torch.span(),
        meaning=written.meaning,
        values=written.values,
        default=written.default,
        read=written.read,
        bits=written.bits,
        evidence=written.evidence,
    )
