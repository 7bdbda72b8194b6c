"""Finds the files below paths, and parses them."""

import ast
import errno
import os
import stat
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from opcheck.common import documents
from opcheck.common.errors import UsageError
from opcheck.common.notebooks import code_cells, without_magics
from opcheck.common.python_source import decode, split_lines
from opcheck.model.records import Problem, SourceLocation
from opcheck.source.gitignore import GitIgnores
from opcheck.source.rules.lacking import requirement

_LEFT_OUT = {"__pycache__", "node_modules", "site-packages", "venv", "env", "build", "dist"}
#: Larger files are data: bytes.
_LARGEST = {".py": 2_000_000, ".ipynb": 50_000_000}
_KINDS = {
    ".py": "python", ".ipynb": "notebook", ".yaml": "configuration", ".yml": "configuration",
}  # fmt: skip
_LARGEST_OTHER = 1_000_000
#: Levels of folders below the scanned folder: each may have a .gitignore for all levels below it.
_DEEPEST = 100
_PYTHON_2 = ("Missing parentheses in call to", "multiple exception types must be parenthesized")


class FoundFile(NamedTuple):
    """A file to read, and the directory that it was found in."""

    path: Path
    root: Path

    @property
    def kind(self) -> str:
        """python, notebook, configuration or requirements."""
        return _KINDS.get(self.path.suffix, "requirements")


class Source(NamedTuple):
    """Parsed source."""

    tree: ast.Module
    lines: list[str]
    #: (file, line) of each line; empty where the lines are the file's own
    places: list[tuple[str, int]]


class UnreadableError(Exception):
    """A file cannot be read; the problem has the reason."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def find(paths: list[str], skipped: Counter[str], problems: list[Problem]) -> Iterator[FoundFile]:
    """Find the files below the paths, in order; links inside are not followed.

    Args:
        paths: files and directories.
        skipped: counts what was left out, by reason.
        problems: takes the directories that cannot be listed.

    Raises:
        UsageError: a path does not exist.
    """
    for name in paths:
        path = Path(name)
        try:
            is_directory = stat.S_ISDIR(path.stat().st_mode)
        except (OSError, ValueError) as error:
            missing = isinstance(error, FileNotFoundError)
            reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
            raise UsageError(
                f"no such file or directory: {name}" if missing else f"{reason}: {name}",
                context=f"path {name}",
                hint="name a file or a folder that exists",
            ) from error
        if is_directory:
            yield from _walk_folder(path, skipped, problems)
        else:
            yield FoundFile(path, path.parent)


def _walk_folder(root: Path, skipped: Counter[str], problems: list[Problem]) -> Iterator[FoundFile]:
    # Not os.walk: it hides the directories that it cannot list, and recurses (Python 3.11,
    # Lib/os.py).
    ignores = GitIgnores(root, skipped)
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        try:
            entries = _entries(directory, root)
        except OSError as error:
            reason = error.strerror or str(error)
            problems.append(problem("unreadable", reason, directory.as_posix()))
            continue
        below = []
        for entry in entries:
            path = Path(directory, entry.name)
            if not _is_directory(entry):
                if _is_source(path) and ignores.leaves_out(path, is_directory=False):
                    skipped["files and directories that .gitignore names"] += 1
                elif _is_source(path):
                    yield FoundFile(path, root)
            elif entry.is_symlink():
                skipped["links to directories"] += 1
            elif entry.name in _LEFT_OUT or entry.name.startswith("."):
                skipped["hidden, built or installed directories"] += 1
            elif ignores.leaves_out(path, is_directory=True):
                skipped["files and directories that .gitignore names"] += 1
            else:
                below.append(path)
        waiting.extend(reversed(below))


def _entries(directory: Path, root: Path) -> list[os.DirEntry[str]]:
    if len(directory.parts) - len(root.parts) > _DEEPEST:
        raise OSError(errno.ELOOP, f"more than {_DEEPEST} folders deep")
    with os.scandir(directory) as listing:
        return sorted(listing, key=lambda entry: entry.name)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or through a directory that may not be read
        return False


def _is_source(path: Path) -> bool:
    return path.suffix in _KINDS or requirement(path) or path.name == "pyproject.toml"


def read_bytes(path: Path, shown: str) -> bytes:
    """Read the bytes of a file.

    Raises:
        UnreadableError: the file is too large, not a regular file, or may not be read.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError(problem("not_a_file", "not a regular file", shown))
        limit = _LARGEST.get(path.suffix, _LARGEST_OTHER)
        if status.st_size > limit:
            raise UnreadableError(
                problem("too_large", f"{status.st_size:,} bytes: more than {limit:,}", shown)
            )
        # The limit is repeated here: a file that the kernel makes up has no size, and any may have been replaced.
        return documents.read(path, limit)
    except FileNotFoundError as error:  # a link to nothing, or a file that has just been removed
        raise UnreadableError(problem("not_a_file", "not a regular file", shown)) from error
    except OSError as error:
        text = error.strerror or str(error)
        raise UnreadableError(problem("unreadable", text, shown)) from error
    except documents.DocumentError as error:
        raise UnreadableError(problem("unreadable", str(error), shown)) from error


def python(content: bytes, shown: str) -> Source:
    """Parse a Python file.

    Raises:
        UnreadableError: it does not decode or parse.
    """
    decoded = text(content, shown)
    return Source(parse(decoded, shown), split_lines(decoded), [])


def text(content: bytes, shown: str) -> str:
    """Decode a Python file.

    Raises:
        UnreadableError: it does not decode.
    """
    try:
        return decode(content)
    except ValueError as error:
        message = f"cannot be decoded: {error}"
        raise UnreadableError(problem("undecodable", message, shown)) from error


def parse(text: str, shown: str) -> ast.Module:
    """Parse a text; ``await`` may be outside of functions, as in notebooks.

    Raises:
        UnreadableError: it does not parse.
    """
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the parser warns of escapes
            tree = compile(text, shown, "exec", flags=flags, dont_inherit=True)
    except SyntaxError as error:
        kind = "python2" if (error.msg or "").startswith(_PYTHON_2) else "syntax_error"
        message = f"{'Python 2: ' * (kind == 'python2')}{error.msg}"
        raise UnreadableError(problem(kind, message, shown, error.lineno or 0)) from error
    except (ValueError, MemoryError, RecursionError) as error:
        message = str(error) or type(error).__name__
        raise UnreadableError(problem("syntax_error", message, shown)) from error
    assert isinstance(tree, ast.Module)
    return tree


def notebook(content: bytes, shown: str, problems: list[Problem]) -> Source:
    """Parse the code cells of a notebook as one program, without those that do not parse.

    Args:
        content: the file.
        shown: its name in messages.
        problems: takes the cells that do not parse.

    Raises:
        UnreadableError: the file is no notebook.
    """
    try:
        # Not documents.from_json: Jupyter writes NaN into outputs, which is no JSON.
        cells = list(code_cells(content))
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        message = f"not a notebook: {error}"
        raise UnreadableError(problem("damaged_notebook", message, shown)) from error
    lines: list[str] = []
    places: list[tuple[str, int]] = []
    for number, text in cells:
        name = f"{shown}#cell-{number}"
        cell = without_magics(text)
        try:
            parse("\n".join(cell), name)
        except UnreadableError as error:
            problems.append(error.problem)
            continue
        lines += cell
        places += [(name, line) for line in range(1, len(cell) + 1)]
    return Source(parse("\n".join(lines), shown), lines, places)


def problem(kind: str, message: str, file: str, line: int = 0) -> Problem:
    """Describe a problem of a file, or of a line of it."""
    return Problem(
        kind=kind, message=message, location=SourceLocation(file=file, line=line) if line else None,
        module=file,
    )  # fmt: skip
