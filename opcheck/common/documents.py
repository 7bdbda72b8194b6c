"""Reads files and texts of others with limits, so that any content takes bounded time and memory.

Every file that opcheck reads goes through here (``tests/test_architecture.py``).  A file may be a device that never
ends, or a named pipe that nothing is written to, a text may nest 50,000 levels deep (libyaml's composer then overflows
the C stack and the process dies of a signal), an alias may expand to a million others, and ``int`` of 5,000 digits
raises a ValueError of its own.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import reprlib
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast, overload

import msgspec

if TYPE_CHECKING:
    import zipfile

#: bytes of a file, of a YAML text (PyYAML takes a thousand times its size in the worst case) and of a TOML text
MOST, MOST_YAML, MOST_TOML = 256 << 20, 16 << 20, 4 << 20
#: bytes of a wheel or a library in it
MOST_LARGE = 4 << 30
#: bytes of the directory of an archive: 100,000 members of long names take a tenth
MOST_DIRECTORY = 64 << 20
#: levels of a document, nodes of a YAML document with its aliases written out, characters of a number in it
DEPTH, NODES, DIGITS = 100, 1_000_000, 100
_MEBIBYTE = 1 << 20
#: a key of TOML with more parts than the levels of a document
_LONG_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{DEPTH + 1}}}""")

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


class FileError(DocumentError, OSError):
    """A file cannot be opened or read: for callers that treat it as they treat any failure of the system."""

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason, missing=missing)
        self.strerror = str(self)


def open_file(path: str | Path, *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading: never a named pipe, a device or a socket, which may have no end.

    A pipe of this process alone (``/dev/fd/63``, as the shell's ``<(command)`` is) is opened as well.

    Args:
        path: the file.
        follow: whether the path may be a link.

    Raises:
        FileError: it does not exist, may not be read, or is something else.
    """
    # Opening a pipe would wait for a writer; a terminal must not become this process's terminal.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    flags |= getattr(os, "O_BINARY", 0) | (0 if follow else getattr(os, "O_NOFOLLOW", 0))
    try:
        descriptor = os.open(path, flags)
        try:
            mode = os.fstat(descriptor).st_mode
            is_own_pipe = stat.S_ISFIFO(mode) and os.fspath(path).startswith("/dev/fd/")
            if stat.S_ISDIR(mode):
                raise FileError("Is a directory")  # the descriptor is closed below
            if not (stat.S_ISREG(mode) or is_own_pipe):
                raise FileError("not a regular file")
            if sys.platform != "win32" and is_own_pipe:
                os.set_blocking(descriptor, True)
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise
    except FileNotFoundError as error:
        raise FileError(str(error.strerror), missing=True) from error
    except FileError:
        raise
    except (OSError, ValueError) as error:  # a ValueError: a null character in the name
        raise FileError(getattr(error, "strerror", None) or str(error)) from error


def read(path: str | Path, most: int = MOST, *, follow: bool = True) -> bytes:
    """Read the bytes of a file as ``open_file`` opens it.

    Args:
        path: the file.
        most: bytes that it may have.
        follow: whether the path may be a link.

    Raises:
        FileError: as ``open_file``, or it is longer than ``most``.
    """
    with open_file(path, follow=follow) as file:
        try:
            # The size of a file that the kernel makes up is 0, and any file may grow.
            size = os.fstat(file.fileno()).st_size
            content = file.read(size + 1) if size <= most else b""
            if len(content) > size:
                content += file.read(most + 1 - size)
        except OSError as error:
            raise FileError(error.strerror or str(error)) from error
    if max(size, len(content)) > most:
        limit = f"{most >> 20} MiB" if most >= _MEBIBYTE else f"{most:,} bytes"
        raise FileError(f"longer than {limit}")
    return content


def read_text(path: str | Path, most: int = MOST) -> str:
    """Read a file as ``read`` does, and decode it from UTF-8.

    Raises:
        DocumentError: as ``read``, or it is not UTF-8.
    """
    return _text(read(path, most))


def open_zip(stream: BinaryIO) -> zipfile.ZipFile:
    """Open an archive whose directory has at most ``MOST_DIRECTORY`` bytes: zipfile reads all of it at once.

    Raises:
        zipfile.BadZipFile: it is no archive, or its directory is longer.
    """
    import zipfile

    class Directory:
        """The stream while zipfile reads the directory."""

        def read(self, size: int = -1) -> bytes:
            content = stream.read(min(size, MOST_DIRECTORY + 1) if size >= 0 else MOST_DIRECTORY + 1)
            if len(content) > MOST_DIRECTORY:
                message = f"its directory is longer than {MOST_DIRECTORY >> 20} MiB"
                raise zipfile.BadZipFile(message)
            return content

        def __getattr__(self, name: str) -> Any:
            return getattr(stream, name)

    archive = zipfile.ZipFile(cast("BinaryIO", Directory()))
    archive.fp = stream
    return archive


@overload
def from_json(content: str | bytes, kind: type[Kind]) -> Kind: ...


@overload
def from_json(content: str | bytes) -> Any: ...


def from_json(content: str | bytes, kind: Any = Any) -> Any:
    """Parse a JSON text as a value of that kind.

    Raises:
        DocumentError: it is no JSON, or has another type.
    """
    with _explain(msgspec.DecodeError, UnicodeError):
        value = msgspec.json.decode(content, type=kind)
    if kind is Any:
        _check_depth(value)
    return value


def from_python_json(content: str) -> Any:
    """Parse a JSON text that may contain ``NaN``, ``Infinity`` and ``-Infinity``, as Python's ``json`` writes them.

    Raises:
        DocumentError: as ``from_json``.
    """
    try:
        return from_json(content)
    except DocumentError:
        if "NaN" not in content and "Infinity" not in content:
            raise
    with _explain(ValueError, prefix="JSON is malformed: "):
        value = json.loads(content)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    _check_depth(value)
    return value


def from_yaml(content: str | bytes) -> Any:
    """Parse a YAML text.

    Raises:
        DocumentError: it is no YAML, or exceeds a limit of this module.
    """
    node = compose(content)
    if node is None:
        return None
    try:
        return _loader()("").construct_document(node)
    except Exception as error:  # PyYAML's constructors raise whatever a wrong value leads to
        raise _yaml_error(error) from error


def from_json_or_yaml(content: str | bytes) -> Any:
    """Parse a JSON text, a hundred times as fast as YAML, or else a YAML text.

    Raises:
        DocumentError: as ``from_yaml``.
    """
    try:
        return from_json(content)
    except DocumentError:
        return from_yaml(content)


def compose(content: str | bytes) -> Any:
    """Parse a YAML text into its nodes, for readers that need line numbers; None: it is empty.

    Raises:
        DocumentError: as ``from_yaml``.
    """
    import yaml

    if len(content) > MOST_YAML:
        raise DocumentError(f"longer than {MOST_YAML >> 20} MiB, which is too long for YAML")
    text = content if isinstance(content, str) else _text(content)
    try:
        loader = _loader()(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except (yaml.YAMLError, UnicodeError, DocumentError) as error:
        raise _yaml_error(error) from error
    if node is not None and "*" in text:
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

    if len(content) > MOST_TOML:
        raise DocumentError(f"longer than {MOST_TOML >> 20} MiB, which is too long for TOML")
    text = content if isinstance(content, str) else _text(content)
    # tomllib takes time that grows with the square of a key's parts (Python 3.13, Lib/tomllib/_parser.py, NestedDict).
    if _LONG_KEY.search(text):
        raise _too_deep()
    with _explain(ValueError):
        value: dict[str, Any] = tomllib.loads(text)
    _check_depth(value)
    return value


def convert(value: object, kind: type[Kind]) -> Kind:
    """Convert plain data to a record of that kind.

    Raises:
        DocumentError: it is of another kind.
    """
    with _explain(msgspec.ValidationError):
        return msgspec.convert(value, kind)


@contextlib.contextmanager
def _explain(*errors: type[Exception], prefix: str = "") -> Iterator[None]:
    """Turn a reader's errors, and that of a text that nests too deep, into a DocumentError."""
    try:
        yield
    except errors as error:
        raise DocumentError(f"{prefix}{error}") from error
    except RecursionError as error:
        raise _too_deep() from error


def brief(value: object) -> str:
    """Describe a value of a document in an error message: a text in quotes, and never long."""
    return _BRIEF.repr(value)


_BRIEF = reprlib.Repr()
_BRIEF.maxlevel = 2
_BRIEF.maxstring = _BRIEF.maxother = 80


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(f"not UTF-8: byte {error.start}") from error


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
        Loader.add_constructor(f"tag:yaml.org,2002:{kind}", getattr(Loader, f"construct_yaml_{kind}"))
    return Loader


def _check_digits(node: Any) -> None:
    if len(node.value) > DIGITS:
        raise _too_long(node.start_mark.line + 1)


def _check_aliases(
    node: Any, above: frozenset[int] = frozenset(), counted: dict[int, tuple[int, int]] | None = None
) -> tuple[int, int]:
    """Refuse aliases that, written out, make a document too large or too deep, or that contain themselves.

    Args:
        node: a node of the document.
        above: the identities of the nodes that contain it.
        counted: by the identity of a collection, the nodes and the levels in it.
    """
    counted = {} if counted is None else counted
    if id(node) in above:
        raise DocumentError("an alias refers to a node that contains it", line=node.start_mark.line + 1)
    if len(above) > DEPTH:
        raise _too_deep()
    if id(node) not in counted:
        inside = above | {id(node)}
        below = [_check_aliases(child, inside, counted) for child in _children(node)]
        counted[id(node)] = 1 + sum(size for size, _ in below), 1 + max((levels for _, levels in below), default=0)
    nodes, depth = counted[id(node)]
    if nodes > NODES:
        raise _too_many()
    if len(above) + depth > DEPTH + 1:
        raise _too_deep()
    return nodes, depth


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
