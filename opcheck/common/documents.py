"""Reads files and texts of others with limits, so that any content takes bounded time and memory.

Every reader of JSON, YAML or TOML that a user or a document names goes through here.  A file may be
a device that never ends, a text may nest 50,000 levels deep (libyaml's composer then overflows the
C stack and the process dies of a signal), an alias may stand for a million others, and ``int`` of
5,000 digits raises a ValueError of its own.
"""

from __future__ import annotations

import functools
import json
import os
import reprlib
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, overload

import msgspec

#: bytes of a file, and of a YAML text: PyYAML takes a thousand times its size in the worst case
MOST, MOST_YAML = 256 << 20, 16 << 20
#: levels of a document, nodes of a YAML document with its aliases written out, characters of a number in it
DEPTH, NODES, DIGITS = 100, 1_000_000, 100
_CHUNK = 1 << 20

Kind = TypeVar("Kind")


class DocumentError(ValueError):
    """A file or a text cannot be read as expected; the message is the reason, on one line.

    Args:
        reason: why.
        line: where, counted from 1; 0: unknown.
        missing: the file does not exist.
    """

    def __init__(self, reason: str, *, line: int = 0, missing: bool = False) -> None:
        super().__init__(" ".join(reason.split()))
        self.line = line
        self.missing = missing


def read(path: str | Path, most: int = MOST, *, follow: bool = True) -> bytes:
    """Read the bytes of a regular file, or of a pipe that some process writes into.

    Args:
        path: the file.
        most: bytes that it may have.
        follow: whether the path may be a link.

    Raises:
        DocumentError: it does not exist, may not be read, is longer than ``most``, or is a folder or a device.
    """
    try:
        # Opening a pipe without a writer would wait for one.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(path, flags if follow else flags | getattr(os, "O_NOFOLLOW", 0))
        try:
            _check_kind(descriptor)
            return _bytes(descriptor, most)
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise DocumentError(str(error.strerror), missing=True) from error
    except OSError as error:
        raise DocumentError(error.strerror or str(error)) from error
    except ValueError as error:
        if isinstance(error, DocumentError):
            raise
        raise DocumentError(str(error)) from error  # a null character in the name


def read_text(path: str | Path, most: int = MOST) -> str:
    """Read a file as ``read`` does, and decode it from UTF-8.

    Raises:
        DocumentError: as ``read``, or it is not UTF-8.
    """
    return _text(read(path, most))


@overload
def from_json(content: str | bytes, kind: type[Kind]) -> Kind: ...


@overload
def from_json(content: str | bytes) -> Any: ...


def from_json(content: str | bytes, kind: Any = Any) -> Any:
    """Parse a JSON text as a value of that kind.

    Raises:
        DocumentError: it is no JSON, or holds something else.
    """
    try:
        value = msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise DocumentError(str(error)) from error
    except RecursionError as error:
        raise _too_deep() from error
    if kind is Any:
        _check_depth(value)
    return value


def from_python_json(content: str) -> Any:
    """Parse a JSON text in which ``NaN``, ``Infinity`` and ``-Infinity`` may stand, as Python's ``json`` writes them.

    Raises:
        DocumentError: as ``from_json``.
    """
    try:
        return from_json(content)
    except DocumentError:
        if "NaN" not in content and "Infinity" not in content:
            raise
    try:
        value = json.loads(content)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except ValueError as error:
        raise DocumentError(f"JSON is malformed: {error}") from error
    except RecursionError as error:
        raise _too_deep() from error
    _check_depth(value)
    return value


@overload
def from_yaml(content: str | bytes, kind: type[Kind]) -> Kind: ...


@overload
def from_yaml(content: str | bytes) -> Any: ...


def from_yaml(content: str | bytes, kind: Any = Any) -> Any:
    """Parse a YAML text as a value of that kind.

    Raises:
        DocumentError: it is no YAML, exceeds a limit of this module, or holds something else.
    """
    node = compose(content)
    if node is None:
        return convert(None, kind)
    try:
        value = _loader()("").construct_document(node)
    except Exception as error:  # PyYAML's constructors raise whatever a wrong value leads to
        raise _yaml_error(error) from error
    return value if kind is Any else convert(value, kind)


def compose(content: str | bytes) -> Any:
    """Parse a YAML text into its nodes, for readers that need line numbers; None: it is empty.

    Raises:
        DocumentError: as ``from_yaml``.
    """
    import yaml

    if len(content) > MOST_YAML:
        message = f"longer than {MOST_YAML >> 20} MiB, which is too long for YAML"
        raise DocumentError(message)
    text = content if isinstance(content, str) else _text(content)
    try:
        loader = _loader()(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except (yaml.YAMLError, UnicodeError, DocumentError) as error:
        raise _yaml_error(error) from error
    if node is not None:
        _check_aliases(node)
    return node


def from_toml(content: str | bytes) -> dict[str, Any]:
    """Parse a TOML text.

    Raises:
        DocumentError: it is no TOML, or nests too deep.
    """
    # Imported here, because an operator lookup rarely reads a configuration.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    text = content if isinstance(content, str) else _text(content)
    try:
        value: dict[str, Any] = tomllib.loads(text)
    except ValueError as error:
        raise DocumentError(str(error)) from error
    except RecursionError as error:
        raise _too_deep() from error
    _check_depth(value)
    return value


def convert(value: object, kind: type[Kind]) -> Kind:
    """Convert plain data to a record of that kind.

    Raises:
        DocumentError: it is of another kind.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise DocumentError(str(error)) from error
    except RecursionError as error:
        raise _too_deep() from error


def brief(value: object) -> str:
    """Describe a value of a document in an error message: a text in quotes, and never long."""
    return _BRIEF.repr(value)


_BRIEF = reprlib.Repr()
_BRIEF.maxlevel = 2
_BRIEF.maxstring = _BRIEF.maxother = 80


def _check_kind(descriptor: int) -> None:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        message = "Is a directory"
        raise DocumentError(message)
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        message = "neither a file nor a pipe"
        raise DocumentError(message)


def _bytes(descriptor: int, most: int) -> bytes:
    try:
        first = os.read(descriptor, _CHUNK)
    except BlockingIOError:
        first = None  # a pipe whose writer has written nothing yet
    if hasattr(os, "set_blocking"):
        os.set_blocking(descriptor, True)
    content = bytearray(first if first is not None else os.read(descriptor, _CHUNK))
    while part := os.read(descriptor, _CHUNK):
        content += part
        if len(content) > most:
            message = f"longer than {most >> 20} MiB"
            raise DocumentError(message)
    return bytes(content)


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"not UTF-8: byte {error.start}"
        raise DocumentError(message) from error


def _check_depth(value: object) -> None:
    level: list[object] = [value]
    for _ in range(DEPTH + 1):
        if any(isinstance(each, int) and each.bit_length() > 4 * DIGITS for each in level):
            raise _too_long()
        level = [item for each in level for item in _items(each)]
        if not level:
            return
    raise _too_deep()


def _too_long(line: int = 0) -> DocumentError:
    # Python refuses to print an integer of more than 4,300 digits, however it was written.
    return DocumentError(f"a number of more than {DIGITS} characters", line=line)


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _too_deep() -> DocumentError:
    return DocumentError(f"nested more than {DEPTH} levels deep")


@functools.cache
def _loader() -> Any:
    """PyYAML's safe loader, with limits.

    Composer.compose_node calls descend_resolver and ascend_resolver around each node, in C and in Python alike
    (PyYAML 6.0, yaml/_yaml.pyx and yaml/composer.py).
    """
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]  # PyYAML built with or without libyaml
        depth = 0
        nodes = 0

        def descend_resolver(self, _parent: Any, _index: Any) -> None:
            self.depth += 1
            self.nodes += 1
            if self.depth > DEPTH:
                raise _too_deep()
            if self.nodes > NODES:
                raise _too_many()

        def ascend_resolver(self) -> None:
            self.depth -= 1

        def construct_yaml_int(self, node: Any) -> int:
            _check_digits(node)
            return int(super().construct_yaml_int(node))

        def construct_yaml_float(self, node: Any) -> float:
            _check_digits(node)
            return float(super().construct_yaml_float(node))

    for kind in ("int", "float"):
        Loader.add_constructor(
            f"tag:yaml.org,2002:{kind}", getattr(Loader, f"construct_yaml_{kind}")
        )
    return Loader


def _check_digits(node: Any) -> None:
    if len(node.value) > DIGITS:
        raise _too_long(node.start_mark.line + 1)


def _check_aliases(root: Any) -> None:
    """Refuse aliases that, written out, make a document too large or too deep, or that contain themselves."""
    #: of each collection, by its identity, the nodes and the levels in it; None: it is being counted
    counted: dict[int, tuple[int, int] | None] = {}
    waiting = [root]
    while waiting:
        node = waiting[-1]
        children = [child for child in _children(node) if not isinstance(child.value, str)]
        if id(node) not in counted:
            counted[id(node)] = None
            for child in children:
                if id(child) not in counted:
                    waiting.append(child)
                elif counted[id(child)] is None:
                    message = "an alias stands for what contains it"
                    raise DocumentError(message, line=child.start_mark.line + 1)
            continue
        waiting.pop()
        if counted[id(node)] is not None:
            continue
        below = [counted[id(child)] or (1, 1) for child in children]
        nodes = 1 + len(_children(node)) + sum(size for size, _ in below)
        depth = 1 + max((levels for _, levels in below), default=0)
        if nodes > NODES:
            raise _too_many()
        if depth > DEPTH:
            raise _too_deep()
        counted[id(node)] = nodes, depth


def _children(node: Any) -> list[Any]:
    if isinstance(node.value, str):
        return []
    pairs = [pair if isinstance(pair, tuple) else (pair,) for pair in node.value]
    return [child for pair in pairs for child in pair]


def _too_many() -> DocumentError:
    return DocumentError(f"more than {NODES:,} values, its aliases written out")


def _yaml_error(error: Exception) -> DocumentError:
    if isinstance(error, DocumentError):
        return error
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or str(error) or type(error).__name__
    return DocumentError(str(reason), line=mark.line + 1 if mark else 0)
