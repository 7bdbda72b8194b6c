"""Read limitations/*.yaml and advisories/*.yaml, and report every problem in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from opcheck.common.errors import OpListError, UsageError
from opcheck.common.names import DTYPES, OperatorName
from opcheck.common.versions import Span, Version
from opcheck.common.vocabulary import EFFECTS, StatementSort
from opcheck.data.conditions import ConditionError, check_values, parse
from opcheck.data.statement_model import (
    EVERY_KERNEL,
    FIXED_BASES,
    ErrorText,
    Statement,
    StatementEvidence,
    program_text,
)
from opcheck.data.strict_yaml import Document, Path_, Problem, read

#: The sort of a statement, by the directory that holds its files.
SORTS: dict[str, StatementSort] = {"limitations": "limitation", "advisories": "advisory"}
SCHEMA = 1

_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_GLOB = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*\.?\*")
_LINE = re.compile(r"\d+\.\d+")
_MACOS = re.compile(r"\d+(\.\d+)?")
_FIXED = re.compile(r"\d+\.\d+(\.\d+)?")


class Place(msgspec.Struct, frozen=True):
    """The place of a statement: its file, line and key path."""

    file: str
    line: int
    path: str


class Written(msgspec.Struct, frozen=True):
    """A statement and the place that it was read from."""

    statement: Statement
    place: Place


def yaml_files(directory: Path, sort: str) -> list[Path]:
    """Return the files of a sort of statement, ordered by name."""
    return sorted((directory / sort).glob("*.yaml"))


def read_statements(directory: Path) -> tuple[Statement, ...]:
    """Read all statements below a directory.

    Raises:
        OpListError: there are problems; every one is named.
    """
    written, problems = read_written(directory)
    refuse(problems)
    return tuple(entry.statement for entry in written)


def refuse(problems: Iterable[Problem]) -> None:
    """Raise a single error for all problems, if there are any.

    Raises:
        OpListError: there are; one a line, in the order of the files.
    """
    ordered = sorted(set(problems))
    if ordered:
        count = "1 problem" if len(ordered) == 1 else f"{len(ordered)} problems"
        raise OpListError(
            f"the op lists hold {count}:\n" + "\n".join(f"  {problem}" for problem in ordered),
            context="the curated op lists",
            hint="mend each, then: python scripts/compile_statements.py, opcheck lists lint",
        )


def read_written(directory: Path) -> tuple[list[Written], list[Problem]]:
    """Return the statements that can be read, with their places, and the problems of the files."""
    written: list[Written] = []
    problems: list[Problem] = []
    for directory_name, sort in SORTS.items():
        for path in yaml_files(directory, directory_name):
            document = read(path, f"{directory_name}/{path.name}")
            for index, node in _entries(document, directory_name):
                entry = _statement(document, (directory_name, index), node, sort)
                if entry is not None:
                    written.append(entry)
            problems += document.problems
    first: dict[str, Place] = {}
    for entry in written:
        earlier = first.setdefault(entry.statement.id, entry.place)
        if earlier is not entry.place:
            place = entry.place
            message = f"the id {entry.statement.id} is taken: {earlier.file}:{earlier.line}"
            problems.append(Problem(place.file, place.line, f"{place.path}.id", message))
    return written, problems


def _entries(document: Document, key: str) -> Iterator[tuple[int, Any]]:
    value = document.value
    if not isinstance(value, dict):
        if not document.problems:
            document.report((), f"a mapping with schema and {key} is expected")
        return
    for unknown in sorted(value.keys() - {"schema", key}):
        document.report((unknown,), f"unknown key; known are schema, {key}")
    if value.get("schema") != SCHEMA:
        document.report(("schema",), f"the schema must be {SCHEMA}")
    entries = value.get(key)
    if not isinstance(entries, list):
        document.report((key,), "a list of statements is expected")
        return
    yield from enumerate(entries)


def _statement(document: Document, path: Path_, node: Any, sort: StatementSort) -> Written | None:
    """Read a statement, and report its problems to the document."""
    before = len(document.problems)
    if not isinstance(node, dict):
        document.report(path, "a mapping is expected")
        return None
    known = {name: field for name, field in _FIELDS.items() if sort in field.sorts}
    for unknown in sorted(node.keys() - known.keys()):
        document.report((*path, unknown), f"unknown key; known are {', '.join(known)}")
    fields: dict[str, Any] = {}
    for name, field in known.items():
        if name in node:
            try:
                fields[name] = field.read(node[name], document, (*path, name))
            except msgspec.ValidationError as error:
                document.report((*path, name), str(error))
        elif field.required:
            document.report(path, f"the key {name} is missing")
    if sort == "advisory" and "when" in fields and "program" not in fields:
        document.report(path, "the key program is missing: what shows on a Mac whether it bites?")
    kinds = {entry.kind for entry in fields.get("evidence", ())}
    says_text = not kinds & _WITHOUT_TEXT or bool(kinds - _WITHOUT_TEXT - {"inferred"})
    raises = fields.get("effect") == "raises"
    if len(document.problems) == before and raises and says_text and "error" not in fields:
        document.report(path, "the key error is missing: what does it raise?")
    if len(document.problems) > before:
        return None
    words = ".".join(map(str, path))
    place = Place(document.file, document.line(path), words)
    return Written(Statement(sort=sort, **fields), place)


#: Evidence that need not say what is printed: an expected failure, the description of a change.
_WITHOUT_TEXT = frozenset({"opinfo", "pr"})


class _Field(msgspec.Struct, frozen=True):
    """The way in which a key of a statement is read."""

    read: Callable[[Any, Document, Path_], Any]
    required: bool = False
    sorts: tuple[StatementSort, ...] = tuple(SORTS.values())


def _text(node: Any, document: Document, path: Path_) -> str:
    text = msgspec.convert(node, str)
    if not text.strip():
        document.report(path, "empty")
    return text


def _one_of(known: Iterable[str]) -> Callable[[Any, Document, Path_], str]:
    names = tuple(known)

    def convert(node: Any, document: Document, path: Path_) -> str:
        text = msgspec.convert(node, str)
        if text not in names:
            document.report(path, f"unknown: {text}; known are {', '.join(names)}")
        return text

    return convert


def _matching(pattern: re.Pattern[str], what: str) -> Callable[[Any, Document, Path_], str]:
    def convert(node: Any, document: Document, path: Path_) -> str:
        if isinstance(node, (int, float)) and not isinstance(node, bool):
            document.report(path, f"quote it, YAML reads 2.10 as 2.1: {node}")
            return ""
        text = msgspec.convert(node, str)
        if not pattern.fullmatch(text):
            document.report(path, f"not {what}: {text!r}")
        return text

    return convert


def _list_of(
    convert: Callable[[Any, Document, Path_], Any],
) -> Callable[[Any, Document, Path_], tuple[Any, ...]]:
    def every(node: Any, document: Document, path: Path_) -> tuple[Any, ...]:
        entries = msgspec.convert(node, list[Any])
        if not entries:
            document.report(path, "an empty list; leave the key out")
        converted = []
        for index, entry in enumerate(entries):
            try:
                converted.append(convert(entry, document, (*path, index)))
            except msgspec.ValidationError as error:  # noqa: PERF203  (each entry has its own)
                document.report((*path, index), str(error))
        for index, value in enumerate(converted):
            if value in converted[:index]:
                document.report((*path, index), f"listed twice: {value}")
        return tuple(converted)

    return every


def _op(node: Any, document: Document, path: Path_) -> str:
    text = msgspec.convert(node, str)
    if text not in {"*", EVERY_KERNEL} and not _GLOB.fullmatch(text):
        try:
            OperatorName.parse(text)
        except UsageError as error:
            document.report(path, error.message)
    return text


def _flat_ops(node: Any, document: Document, path: Path_) -> tuple[str, ...]:
    """Read a list of operators; a list inside of it, such as a YAML alias, counts as its entries."""
    nested = msgspec.convert(node, list[Any])
    parts = [part if isinstance(part, list) else [part] for part in nested]
    return cast(
        "tuple[str, ...]", _list_of(_op)([op for part in parts for op in part], document, path)
    )


def _span(pattern: re.Pattern[str], what: str) -> Callable[[Any, Document, Path_], Span]:
    convert = _matching(pattern, what)

    def span(node: Any, document: Document, path: Path_) -> Span:
        ends = msgspec.convert(node, dict[str, Any])
        for unknown in sorted(ends.keys() - {"since", "until"}):
            document.report((*path, unknown), "unknown key; known are since, until")
        versions: dict[str, Version] = {}
        for end in ("since", "until"):
            if ends.get(end) is None:
                continue
            before = len(document.problems)
            text = convert(ends[end], document, (*path, end))
            if len(document.problems) == before:
                versions[end] = Version.parse(text)
        made = Span(**versions)
        if made.empty:
            document.report(path, f"an empty span: since {made.since}, until {made.until}")
        return made

    return span


def _condition(node: Any, document: Document, path: Path_) -> str:
    text = " ".join(_text(node, document, path).split())
    try:
        parse(text)
    except ConditionError as error:
        document.report(path, str(error))
    return text


def _values(node: Any, document: Document, path: Path_) -> str:
    text = " ".join(_text(node, document, path).split())
    try:
        check_values(text)
    except ConditionError as error:
        document.report(path, str(error))
    return text


def _program(node: Any, document: Document, path: Path_) -> str:
    text = _text(node, document, path).rstrip()
    try:
        compile(program_text(text), "program", "exec")
    except (SyntaxError, ValueError) as error:
        document.report(path, f"not the body of a Python function: {error}")
    return text


def _record(
    kind: type[msgspec.Struct], check: Callable[[Any, Document, Path_], None]
) -> Callable[[Any, Document, Path_], Any]:
    known = kind.__struct_fields__

    def record(node: Any, document: Document, path: Path_) -> Any:
        values = msgspec.convert(node, dict[str, Any])
        for name, value in values.items():
            if name not in known:
                document.report((*path, name), f"unknown key; known are {', '.join(known)}")
            elif name in {"torch", "mended"} and isinstance(value, (int, float)):
                document.report((*path, name), f"quote it, YAML reads 2.10 as 2.1: {value}")
        made = msgspec.convert(
            {**values, "torch": str(values["torch"])} if "torch" in values else values, kind
        )
        check(made, document, path)
        return made

    return record


def _check_evidence(made: StatementEvidence, document: Document, path: Path_) -> None:
    if not made.where and not made.detail:
        document.report(path, "evidence says where, or gives a detail")


def _check_error(made: ErrorText, document: Document, path: Path_) -> None:
    if not made.text.strip():
        document.report((*path, "text"), "empty")


_FIELDS = {
    "id": _Field(_matching(_ID, "kebab-case"), required=True),
    "ops": _Field(_list_of(_op), required=True),
    "other_than": _Field(_flat_ops),
    "effect": _Field(_one_of(EFFECTS), required=True),
    "torch": _Field(_span(_LINE, "a release line such as 2.13"), required=True),
    "macos": _Field(_span(_MACOS, "a macOS version such as 15.1")),
    "dtypes": _Field(_list_of(_one_of(DTYPES))),
    "dtypes_of": _Field(_list_of(_text)),
    "condition": _Field(_condition),
    "when": _Field(_text),
    "values": _Field(_values),
    "error": _Field(_record(ErrorText, _check_error)),
    "summary": _Field(_text, required=True),
    "brief": _Field(_text),
    "way_out": _Field(_text),
    "program": _Field(_program),
    "fixed": _Field(_matching(_FIXED, "a release such as 2.13"), sorts=("advisory",)),
    "fixed_basis": _Field(_one_of(FIXED_BASES), sorts=("advisory",)),
    "links": _Field(_list_of(_text)),
    "evidence": _Field(_list_of(_record(StatementEvidence, _check_evidence)), required=True),
}
