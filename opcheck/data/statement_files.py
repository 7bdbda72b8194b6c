"""Read limitations/*.yaml and advisories/*.yaml, and report every problem in them."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

from opcheck.common.errors import OpListError, UsageError
from opcheck.common.names import DTYPES, OperatorName
from opcheck.common.vocabulary import FixedBasis, StatementSort
from opcheck.data.conditions import ConditionError, check_values, parse
from opcheck.data.statement_model import EVERY_KERNEL, ErrorText, Statement, StatementEvidence, program_text
from opcheck.data.strict_yaml import Document, FileProblem, Path_, path_of, read, read_span

#: The sort of a statement, by the directory that has its files.
SORTS: dict[str, StatementSort] = {"limitations": "limitation", "advisories": "advisory"}
SCHEMA = 1

_GLOB = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*\.?\*")


class StatementPlace(NamedTuple):
    """The place of a statement: its file, line and key path."""

    file: str
    line: int
    path: str


class Written(NamedTuple):
    """A statement and the place that it was read from."""

    statement: Statement
    place: StatementPlace


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


def refuse(problems: Iterable[FileProblem]) -> None:
    """Raise a single error for all problems, if there are any.

    Raises:
        OpListError: there are; one a line, in the order of the files.
    """
    ordered = sorted(set(problems))
    if ordered:
        count = "1 problem" if len(ordered) == 1 else f"{len(ordered)} problems"
        message = f"the op lists have {count}:\n" + "\n".join(f"  {problem}" for problem in ordered)
        hint = "correct each problem, then run: python scripts/compile_statements.py, opcheck lists lint"
        raise OpListError(message, context="the curated op lists", hint=hint)


def read_written(directory: Path) -> tuple[list[Written], list[FileProblem]]:
    """Return the statements that can be read, with their places, and the problems of the files."""
    written: list[Written] = []
    problems: list[FileProblem] = []
    for directory_name, sort in SORTS.items():
        for path in yaml_files(directory, directory_name):
            document = read(path, f"{directory_name}/{path.name}")
            for index, node in _entries(document, directory_name):
                entry = _statement(document, (directory_name, index), node, sort)
                if entry is not None:
                    written.append(entry)
            problems += document.problems
    first: dict[str, StatementPlace] = {}
    for entry in written:
        earlier = first.setdefault(entry.statement.id, entry.place)
        if earlier is not entry.place:
            place = entry.place
            message = f"the id {entry.statement.id} is taken: {earlier.file}:{earlier.line}"
            problems.append(FileProblem(place.file, place.line, f"{place.path}.id", message))
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
    keys = [key for key in _TYPES if sort == "advisory" or key not in _OF_ADVISORIES]
    for unknown in sorted(node.keys() - {*keys}):
        document.report((*path, unknown), f"unknown key; known are {', '.join(keys)}")
    fields: dict[str, Any] = {}
    for name in keys:
        if name in node:
            fields[name] = _field(name, node[name], document, (*path, name))
        elif name in _REQUIRED:
            document.report(path, f"the key {name} is missing")
    if sort == "advisory" and "when" in fields and "program" not in fields:
        document.report(path, "the key program is missing: what shows on a Mac whether it bites?")
    if "rare" in fields and not fields.keys() & {"condition", "when"}:
        document.report((*path, "rare"), "a rare case needs a condition or a when")
    kinds = {entry.kind for entry in fields.get("evidence") or ()}
    says_text = not kinds & _WITHOUT_TEXT or bool(kinds - _WITHOUT_TEXT - {"inferred"})
    raises = fields.get("effect") == "raises"
    if len(document.problems) == before and raises and says_text and "error" not in fields:
        document.report(path, "the key error is missing: what does it raise?")
    if len(document.problems) > before:
        return None
    place = StatementPlace(document.file, document.line(path), ".".join(map(str, path)))
    return Written(Statement(sort=sort, **fields), place)


#: Evidence that need not say what is printed: an expected failure, the description of a change.
_WITHOUT_TEXT = frozenset({"opinfo", "pr"})

_Dtype: Any = Literal[tuple(DTYPES)]

#: The type of each key of a statement: that of its field, unless a file has it in another form.
_TYPES: dict[str, Any] = {
    **{field.name: field.type for field in msgspec.structs.fields(Statement) if field.name != "sort"},
    "other_than": Annotated[tuple[str | tuple[str, ...], ...], Meta(min_length=1)],
    "rare": Literal[True],
    "dtypes": Annotated[tuple[_Dtype, ...], Meta(min_length=1)],
    "error": ErrorText,
    "fixed_basis": Literal[get_args(FixedBasis)[1:]],
}
_REQUIRED = frozenset({"id", "ops", "effect", "torch", "summary", "evidence"})
_OF_ADVISORIES = frozenset({"fixed", "fixed_basis"})


def _field(name: str, node: Any, document: Document, path: Path_) -> Any:
    """Return the value of a key, and report its problems to the document."""
    before = len(document.problems)
    if name in {"torch", "macos"} and isinstance(node, dict):
        ends = {key: node.get(key) for key in ("since", "until")}
        for key in sorted(node.keys() - ends.keys()):
            document.report((*path, key), "unknown key; known are since, until")
        node = read_span(ends, path, document, r"\d+\.\d+" if name == "torch" else r"\d+(\.\d+)?")
    try:
        value = msgspec.convert(node, _TYPES[name])
    except msgspec.ValidationError as error:
        document.report((*path, *path_of(str(error))), str(error))
        return None
    if len(document.problems) > before:
        return None
    if isinstance(value, tuple):
        value = tuple(each for item in value for each in (item if isinstance(item, tuple) else (item,)))
        for index, entry in enumerate(value):
            if entry in value[:index]:
                document.report((*path, index), f"listed twice: {entry}")
    return _CHECKS[name](value, document, path) if name in _CHECKS else value


def _check_operators(ops: tuple[str, ...], document: Document, path: Path_) -> tuple[str, ...]:
    for index, op in enumerate(ops):
        if op not in {"*", EVERY_KERNEL} and not _GLOB.fullmatch(op):
            try:
                OperatorName.parse(op)
            except UsageError as error:
                document.report((*path, index), error.message)
    return ops


def _expression(parse: Callable[[str], object]) -> Callable[[str, Document, Path_], str]:
    def check(text: str, document: Document, path: Path_) -> str:
        text = " ".join(text.split())
        try:
            parse(text)
        except ConditionError as error:
            document.report(path, str(error))
        return text

    return check


def _check_program(text: str, document: Document, path: Path_) -> str:
    try:
        compile(program_text(text.rstrip()), "program", "exec")
    except (SyntaxError, ValueError) as error:
        document.report(path, f"not the body of a Python function: {error}")
    return text.rstrip()


def _check_evidence(
    entries: tuple[StatementEvidence, ...], document: Document, path: Path_
) -> tuple[StatementEvidence, ...]:
    for index, entry in enumerate(entries):
        if not entry.where and not entry.detail:
            document.report((*path, index), "evidence needs a place (where) or a detail")
    return entries


_CHECKS: dict[str, Callable[[Any, Document, Path_], Any]] = {
    "ops": _check_operators,
    "other_than": _check_operators,
    "condition": _expression(parse),
    "values": _expression(check_values),
    "program": _check_program,
    "evidence": _check_evidence,
}
