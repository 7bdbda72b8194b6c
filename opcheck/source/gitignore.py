"""Reads ``.gitignore``, so that a scan leaves out what the project's repository does."""

import functools
import itertools
import re
from collections import Counter
from pathlib import Path

from opcheck.common import documents
from opcheck.common.globs import ignore_expression

FILE = ".gitignore"
#: Bytes of all files together: real ones have some thousand.
_MOST = 1 << 20
#: Bytes of git's index, which takes about 100 for each file.
_LARGEST_INDEX = 1 << 26
#: The times, modes, sizes and the hash of an entry of the index.
_ENTRY = 60
#: Whether paths that match are ignored, and an expression for those paths.
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
        top = next(
            (each for each in (self._root, *self._root.parents) if (each / ".git").exists()), None
        )
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
