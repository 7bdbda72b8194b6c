"""Finds the files below paths, and parses them."""

import ast
import errno
import functools
import itertools
import os
import re
import stat
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from opcheck.common import documents
from opcheck.common.errors import UsageError
from opcheck.common.globs import ignore_expression
from opcheck.common.notebooks import code_cells, without_magics
from opcheck.common.python_source import decode, split_lines
from opcheck.model.records import Problem, SourceLocation
from opcheck.source.call_tables import read_words
from opcheck.source.rules.lacking import requirement

FILE = ".gitignore"
#: Bytes of all files together: real ones have some thousand.
_MOST = 1 << 20
#: Bytes of git's index, which takes about 100 for each file.
_LARGEST_INDEX = 1 << 26
#: The times, modes, sizes and the hash of an entry of the index.
_ENTRY = 60
#: A line of a ``.gitignore``: whether it ignores the paths that match (``!`` takes them back), and their pattern.
_Rule = tuple[bool, re.Pattern[str]]


class GitIgnores:
    """Decides which paths below a folder the ``.gitignore`` files leave out: those of the folder, below, and above it.

    Above it, files count up to the top of the repository.  A folder that they leave out whole was named on purpose:
    then they do not count.  ``skipped`` counts the files that cannot be read.
    """

    def __init__(self, root: Path, skipped: Counter[str] | None = None) -> None:
        self._rules: dict[Path, list[_Rule]] = {}
        self._skipped = Counter[str]() if skipped is None else skipped
        self._left = _MOST
        self._root = root.resolve()
        self._above = [*reversed(_up_to_repository(self._root))]
        within = [self._root, *self._root.parents][: len(self._above)]
        if any(self._leaves_out(folder, self._above, is_directory=True) for folder in within):
            self._above = []

    def leaves_out(self, path: Path, *, is_directory: bool) -> bool:
        """Return whether a path below the folder is left out; the deepest file that speaks of it decides."""
        folder, folders = self._folders(path.parent)
        whole = folder / path.name
        if whole.as_posix() in self._tracked_files:
            return False
        is_left = self._leaves_out(whole, folders, is_directory=is_directory)
        return is_left or (bool(self._tracked_files) and self._is_left_folder(path.parent))

    @functools.lru_cache(maxsize=8)
    def _is_left_folder(self, path: Path) -> bool:
        """Return whether a folder is left out, but for the files in it that git tracks."""
        folder, folders = self._folders(path)
        up = [each for each in (folder, *folder.parents) if self._root in each.parents]
        return any(self._leaves_out(each, folders, is_directory=True) for each in up)

    @functools.cached_property
    def _tracked_files(self) -> frozenset[str]:
        """The files that git has in its index, and their folders: git follows them in spite of .gitignore."""
        top = next((each for each in (self._root, *self._root.parents) if (each / ".git").exists()), None)
        try:
            content = documents.read(top / ".git" / "index", _LARGEST_INDEX) if top else b""
        except documents.DocumentError:
            return frozenset()
        files = [top / name for name in read_index(content)] if top else []
        return frozenset(path.as_posix() for file in files for path in (file, *file.parents))

    @functools.lru_cache(maxsize=8)
    def _folders(self, folder: Path) -> tuple[Path, list[Path]]:
        """Return the whole path of a folder, and the folders whose files may name its entries, the top folder first."""
        whole = folder.resolve()
        below = [each for each in (whole, *whole.parents) if each.is_relative_to(self._root)]
        return whole, [*self._above, *reversed(below)]

    def _leaves_out(self, path: Path, folders: list[Path], *, is_directory: bool) -> bool:
        for folder in reversed(folders):
            rules = self._load_rules(folder) if folder in path.parents else []
            relative = path.relative_to(folder).as_posix() + "/" * is_directory if rules else ""
            for is_ignored, expression in rules:
                if expression.match(relative):
                    return is_ignored
        return False

    def _load_rules(self, folder: Path) -> list[_Rule]:
        if folder not in self._rules:
            self._rules[folder] = self._read(folder / FILE)
        return self._rules[folder]

    def _read(self, file: Path) -> list[_Rule]:
        """Return the rules of a file, the last ones first; consecutive rules of one kind are one expression."""
        try:
            content = documents.read(file, self._left)
        except documents.DocumentError as error:
            if not error.missing:
                self._skipped[f"{FILE}: {error}"] += 1
            return []
        self._left -= len(content)
        lines = content.decode("utf-8-sig", "replace").split("\n")
        rules = filter(None, (ignore_expression(line.removesuffix("\r")) for line in lines))
        return [
            (kind, re.compile(f"(?:{'|'.join(text for _, text in group)})\\Z", re.DOTALL))
            for kind, group in itertools.groupby(reversed([*rules]), lambda rule: rule[0])
        ]


def _up_to_repository(root: Path) -> list[Path]:
    """Return the folders above a folder up to its repository's; empty outside of a repository."""
    above: list[Path] = []
    if (root / ".git").exists():
        return above
    for folder in root.parents:
        above.append(folder)
        if (folder / ".git").exists():
            return above
    return []


def read_index(content: bytes) -> list[str]:
    """Return the paths in git's index; empty if the index is damaged or of another format.

    git's Documentation/gitformat-index.txt: versions 2 and 3 have whole paths, 4 leaves out what the last one had.
    """
    version, count = (int.from_bytes(content[place : place + 4], "big") for place in (4, 8))
    if content[:4] != b"DIRC" or version not in {2, 3, 4}:
        return []
    paths: list[str] = []
    place, last = 12, b""
    for _ in range(count):
        flags = int.from_bytes(content[place + _ENTRY : place + _ENTRY + 2], "big")
        start = place + _ENTRY + (4 if version > 2 and flags & 0x4000 else 2)
        shared = b""
        if version == 4:
            removed, more = content[start] & 127 if start < len(content) else 0, start
            while more < len(content) and content[more] & 128:
                more += 1
                removed = (removed + 1 << 7) | (content[more] & 127 if more < len(content) else 0)
            start, shared = more + 1, last[: max(0, len(last) - removed)]
        end = content.find(b"\0", start)
        if end < 0:
            return []
        last = shared + content[start:end]
        paths.append(last.decode("utf-8", "surrogateescape"))
        # Entries of versions 2 and 3 are padded to a multiple of eight bytes.
        place = end + 1 if version == 4 else place + ((end - place + 8) // 8) * 8
    return paths


# -- finds the files below paths, and parses them --

_LEFT_OUT = read_words("left_out_folders")
#: Larger files are data: bytes.
_LARGEST = {".py": 2_000_000, ".ipynb": 50_000_000}
_KINDS = {
    ".py": "python", ".ipynb": "notebook", ".yaml": "configuration", ".yml": "configuration",
}  # fmt: skip
_LARGEST_OTHER = 1_000_000
#: The names of Dockerfiles; a longer name may be that of another kind of file.
_CONTAINER = re.compile(
    r".*\.(?i:dockerfile)|(?i:dockerfile|containerfile)"
    r"|(?:Docker|Container)file\.(?!(?:.*\.)?(?:md|rst|txt|html|py|ipynb|ya?ml|json|dockerignore)$).*"
)
#: Levels of folders below the scanned folder: each may have a .gitignore for all levels below it.
_DEEPEST = 100
_PYTHON_2 = ("Missing parentheses in call to", "multiple exception types must be parenthesized")


class FoundFile(NamedTuple):
    """A file to read, and the directory that it was found in."""

    path: Path
    root: Path

    @property
    def kind(self) -> str:
        """python, notebook, configuration, container or requirements."""
        return "container" if is_container(self.path) else _KINDS.get(self.path.suffix, "requirements")


class Source(NamedTuple):
    """Parsed source."""

    tree: ast.Module
    text: str
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
    return path.suffix in _KINDS or requirement(path) or is_container(path) or path.name == "pyproject.toml"


def is_container(path: Path) -> bool:
    """Return whether the name of a file is that of a container's recipe."""
    return _CONTAINER.fullmatch(path.name) is not None


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
            raise UnreadableError(problem("too_large", f"{status.st_size:,} bytes: more than {limit:,}", shown))
        # The limit is repeated here: a file that the kernel makes up has no size, and any may have been replaced.
        return documents.read(path, limit)
    except FileNotFoundError as error:  # a link to nothing, or a file that has just been removed
        raise UnreadableError(problem("not_a_file", "not a regular file", shown)) from error
    except OSError as error:
        text = error.strerror or str(error)
        raise UnreadableError(problem("unreadable", text, shown)) from error
    except documents.DocumentError as error:
        raise UnreadableError(problem("unreadable", str(error), shown)) from error


def python(text: str, shown: str) -> Source:
    """Parse a Python file.

    Raises:
        UnreadableError: it does not parse.
    """
    return Source(parse(text, shown), text, split_lines(text), [])


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
    text = "\n".join(lines)
    return Source(parse(text, shown), text, lines, places)


def problem(kind: str, message: str, file: str, line: int = 0) -> Problem:
    """Describe a problem of a file, or of a line of it."""
    return Problem(
        kind=kind, message=message, location=SourceLocation(file=file, line=line) if line else None,
        module=file,
    )  # fmt: skip
