"""Read YAML that people write: duplicate keys are errors, and every value keeps its line number."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
import yaml

from opcheck.common import documents
from opcheck.common.errors import OpListError
from opcheck.common.versions import Span, Version

#: The path of a value in a file: the keys and indices that lead to it.
Path_ = tuple[str | int, ...]

Kind = TypeVar("Kind")

_TAG = "tag:yaml.org,2002:"
_CONVERTED = {f"{_TAG}{kind}" for kind in ("str", "int", "float", "bool", "null")}
_README = "correct the file; op_lists/README.md explains its fields"


class FileProblem(NamedTuple):
    """A problem of a file; problems sort by file, then by line."""

    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        """``file:line key.path: message``."""
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where} {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


class Document:
    """The value of a file, the line of each part of it, and the problems of the file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.value: Any = None
        self.problems: list[FileProblem] = []
        self._lines: dict[Path_, int] = {}

    def line(self, path: Path_) -> int:
        """Return the line of the value at a path, or of the nearest enclosing value."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def report(self, path: Path_, message: str, line: int | None = None) -> None:
        """Add a problem of the value at a path; its line is that of the value if none is named."""
        words, line = ".".join(map(str, path)), self.line(path) if line is None else line
        self.problems.append(FileProblem(self.file, line, words, message))

    def require_sound(self, path: Path, hint: str = _README) -> None:
        """Raise one error for all problems of the file, if it has any.

        Raises:
            OpListError: the file has problems; the message names each of them.
        """
        if self.problems:
            message = "\n".join(map(str, sorted(set(self.problems))))
            raise OpListError(message, context=str(path), hint=hint)


def read(path: Path, name: str) -> Document:
    """Read a file; problems name it ``name``.

    The function never raises: a file that cannot be read has a problem in ``problems``, and no value.
    """
    document = Document(name)
    try:
        content = documents.read(path)
    except documents.DocumentError as error:
        document.report((), f"cannot be read: {error}", 0)
        return document
    try:
        node = documents.compose(content)
    except documents.DocumentError as error:
        document.report((), f"not YAML: {error}", error.line or 1)
        return document
    if node is not None:
        document.value = _value(node, (), document)
    return document


def read_as(
    path: Path, kind: type[Kind], check: Callable[[Document, Kind], None] = lambda *_: None, hint: str = _README
) -> Kind:
    """Read, decode and check a file; a mapping of ``since`` and ``until`` becomes a ``Span``.

    Args:
        path: the file.
        kind: the record that it contains.
        check: reports to the document the values that contradict each other.
        hint: what to do about problems.

    Raises:
        OpListError: the file is missing or damaged; all of its problems are named.
    """
    document = read(path, path.name)
    value = _with_spans(document.value, (), document)
    record: Any = None
    if not document.problems:
        try:
            record = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            document.report(path_of(str(error)), str(error))
        else:
            check(document, record)
    document.require_sound(path, hint)
    return cast("Kind", record)


def path_of(message: str) -> Path_:
    """Return the path that msgspec's message ends in, up to the first key that it does not name."""
    place = message.partition("`$")[2].partition("[...]")[0]
    return tuple(name or int(index) for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", place))


def _with_spans(node: Any, path: Path_, document: Document) -> Any:
    if isinstance(node, list):
        return [_with_spans(item, (*path, index), document) for index, item in enumerate(node)]
    if not isinstance(node, dict):
        return node
    if node.keys() == {"since", "until"}:
        return read_span(node, path, document)
    return {key: _with_spans(item, (*path, key), document) for key, item in node.items()}


def read_span(ends: dict[str, Any], path: Path_, document: Document, pattern: str = r"\d+\.\d+") -> Span:
    """Return the span of a mapping of ``since`` and ``until``, and report what is no version to the document."""
    versions: dict[str, Version] = {}
    for end, text in ends.items():
        if isinstance(text, str) and re.fullmatch(pattern, text):
            versions[end] = Version.parse(text)
        elif text is not None:
            document.report((*path, end), f'write a version as "2.13", in quotes: {text}')
    span = Span(**versions)
    if span.empty:
        document.report(path, "no version lies in this span")
    return span


def _value(node: Any, path: Path_, document: Document) -> Any:
    document._lines.setdefault(path, node.start_mark.line + 1)  # noqa: SLF001  (built here)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, document)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, i), document) for i, item in enumerate(node.value)]
    if node.tag not in _CONVERTED:
        # The files have no dates, merge keys or binary values.
        document.report(path, f"quote it: YAML reads {node.value} as {node.tag.removeprefix(_TAG)}")
        return node.value
    if node.tag == f"{_TAG}str":
        return node.value
    try:
        return documents.from_yaml(node.value)
    except documents.DocumentError as error:
        document.report(path, str(error))
        return node.value


def _mapping(node: yaml.MappingNode, path: Path_, document: Document) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        line = key_node.start_mark.line + 1
        if key is None or key_node.tag != f"{_TAG}str":
            what = "a collection" if key is None else key
            document.report(path, f"a key must be a string: {what}", line)
        elif key in result:
            document.report((*path, key), "the key occurs twice", line)
        else:
            document._lines[(*path, key)] = line  # noqa: SLF001
            result[key] = _value(value_node, (*path, key), document)
    return result


def read_entries(path: Path, key: str, kind: Callable[..., Any]) -> tuple[list[tuple[int, Any]], Document]:
    """Read the entries of a small list file, by their index; the document keeps the problems.

    A file that does not exist has no entries.
    """
    if not path.exists():
        return [], Document(path.name)
    document = read(path, path.name)
    value = document.value
    if not isinstance(value, dict) or value.get("schema") != 1:
        if not document.problems:
            document.report((), f"a mapping with schema 1 and {key} is expected")
        return [], document
    entries = []
    nodes = value.get(key)
    for index, node in enumerate(nodes if isinstance(nodes, list) else []):
        try:
            entries.append((index, msgspec.convert(node, kind)))
        except msgspec.ValidationError as error:
            document.report((key, index), str(error))
    return entries, document
