"""Paths -> the files to read, and files -> source that parses."""

from __future__ import annotations

import ast
import io
import json
import os
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from opcheck.errors import UsageError
from opcheck.model import Problem, SourceLocation
from opcheck.scan.rules.oc214_package_without_macos import requirement

_LEFT_OUT = {"__pycache__", "node_modules", "site-packages", "venv", "env", "build", "dist"}
#: Larger files are data: bytes.
_LARGEST = {".py": 2_000_000, ".ipynb": 50_000_000}
_LARGEST_OTHER = 1_000_000
_PYTHON_2 = ("Missing parentheses in call to", "multiple exception types must be parenthesized")


class Found(NamedTuple):
    """A file to read, and the directory that was asked about."""

    path: Path
    root: Path

    @property
    def kind(self) -> str:
        """python, notebook or requirements."""
        return {".py": "python", ".ipynb": "notebook"}.get(self.path.suffix, "requirements")


class Source(NamedTuple):
    """Source that parses; ``places`` says of each line where it is written."""

    tree: ast.Module
    lines: list[str]
    #: (file, line) of each line; empty: the file's own lines
    places: list[tuple[str, int]]


class UnreadableError(Exception):
    """A file that cannot be read; the problem says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def find(paths: list[str], skipped: Counter[str]) -> Iterator[Found]:
    """The files below the paths, in order; links inside are not followed.

    Raises:
        UsageError: a path does not exist.
    """
    for name in paths:
        path = Path(name)
        if not path.exists():
            raise UsageError(
                f"no such file or directory: {name}", context="opcheck scan", hint="give a path"
            )
        if path.is_dir():
            yield from _below(path, skipped)
        else:
            yield Found(path, path.parent)


def _below(root: Path, skipped: Counter[str]) -> Iterator[Found]:
    for directory, names, files in os.walk(root):
        kept = []
        for name in sorted(names):
            if os.path.islink(Path(directory, name)):  # noqa: PTH114  (is_symlink, without a second stat)
                skipped["links to directories"] += 1
            elif name in _LEFT_OUT or name.startswith("."):
                skipped["hidden, built or installed directories"] += 1
            else:
                kept.append(name)
        names[:] = kept
        for name in sorted(files):
            path = Path(directory, name)
            if path.suffix in {".py", ".ipynb"} or requirement(path) or name == "pyproject.toml":
                yield Found(path, root)


def read_bytes(path: Path, shown: str) -> bytes:
    """The bytes of a file.

    Raises:
        UnreadableError: it is too large, no file, or may not be read.
    """
    try:
        if not path.is_file():
            raise UnreadableError(problem("not_a_file", "not a regular file", shown))
        size = path.stat().st_size
        limit = _LARGEST.get(path.suffix, _LARGEST_OTHER)
        if size > limit:
            raise UnreadableError(
                problem("too_large", f"{size:,} bytes: more than {limit:,}", shown)
            )
        return path.read_bytes()
    except OSError as error:
        text = error.strerror or str(error)
        raise UnreadableError(problem("unreadable", text, shown)) from error


def python(content: bytes, shown: str) -> Source:
    """The tree of a Python file.

    Raises:
        UnreadableError: it does not decode or parse.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        message = f"cannot be decoded: {error}"
        raise UnreadableError(problem("undecodable", message, shown)) from error
    return Source(parse(text, shown), text.splitlines(), [])


def parse(text: str, shown: str) -> ast.Module:
    """The tree of a text, ``await`` outside of functions allowed as notebooks have it.

    Raises:
        UnreadableError: it does not parse.
    """
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in other people's texts
            tree = compile(text, shown, "exec", flags=flags, dont_inherit=True)
    except SyntaxError as error:
        kind = "python2" if (error.msg or "").startswith(_PYTHON_2) else "syntax_error"
        message = f"{'Python 2: ' * (kind == 'python2')}{error.msg}"
        raise UnreadableError(problem(kind, message, shown, error.lineno or 0)) from error
    except (ValueError, MemoryError, RecursionError) as error:
        message = str(error) or type(error).__name__
        raise UnreadableError(problem("syntax_error", message, shown)) from error
    assert isinstance(tree, ast.Module)  # noqa: S101  (what these flags give)
    return tree


def notebook(content: bytes, shown: str, problems: list[Problem]) -> Source:
    """The code cells of a notebook as one program; a cell that does not parse is left out, and named.

    Raises:
        UnreadableError: it is no notebook.
    """
    try:
        cells = list(_cells(json.loads(content)))
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        message = f"not a notebook: {error}"
        raise UnreadableError(problem("damaged_notebook", message, shown)) from error
    lines: list[str] = []
    places: list[tuple[str, int]] = []
    for number, text in cells:
        name = f"{shown}#cell-{number}"
        cell = _without_magics(text)
        try:
            parse("\n".join(cell), name)
        except UnreadableError as error:
            problems.append(error.problem)
            continue
        lines += cell
        places += [(name, line) for line in range(1, len(cell) + 1)]
    return Source(parse("\n".join(lines), shown), lines, places)


def _cells(content: Any) -> Iterator[tuple[int, str]]:
    sheets = content.get("worksheets", [content])  # the form before version 4
    number = 0
    for sheet in sheets:
        for cell in sheet["cells"]:
            number += 1
            if cell["cell_type"] == "code":
                text = cell.get("source", cell.get("input", ""))
                yield number, text if isinstance(text, str) else "".join(text)


def _without_magics(text: str) -> list[str]:
    """The lines of a cell; what only IPython understands becomes ``pass``."""
    lines = text.splitlines()
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and not first.startswith(("%%time", "%%capture", "%%prun")):
        return [""] * len(lines)
    plain, continues = [], False
    for line in lines:
        # A shell command may go on in the next lines.
        plain.append("" if continues else _plain(line))
        is_command = continues or plain[-1] != line
        continues = is_command and line.endswith("\\")
    return plain


def _plain(line: str) -> str:
    code = line.lstrip()
    is_magic = code.startswith(("%", "!", "?")) or code.rstrip().endswith("?")
    return f"{line[: len(line) - len(code)]}pass" if is_magic and not code.startswith("#") else line


def problem(kind: str, message: str, file: str, line: int = 0) -> Problem:
    """The problem of a file, or of a line of it."""
    return Problem(
        kind=kind, message=message, location=SourceLocation(file=file, line=line) if line else None,
        module=file,
    )  # fmt: skip
