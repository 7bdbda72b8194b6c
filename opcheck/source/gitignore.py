"""Reads ``.gitignore``, so that a scan leaves out what the project's repository does."""

from __future__ import annotations

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
#: Whether paths that match are ignored, and an expression for those paths.
_Rule = tuple[bool, re.Pattern[str]]


class GitIgnores:
    """Tells which paths below a folder the ``.gitignore`` files leave out: those of the folder, below, and above it.

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
        return self._leaves_out(folder / path.name, folders, is_directory=is_directory)

    @functools.lru_cache(maxsize=8)  # noqa: B019  (as long as the scan)
    def _folders(self, folder: Path) -> tuple[Path, list[Path]]:
        """Return the whole path of a folder, and the folders whose files speak of what is in it, the top one first."""
        whole = folder.resolve()
        below = [each for each in (whole, *whole.parents) if each.is_relative_to(self._root)]
        return whole, [*self._above, *reversed(below)]

    def _leaves_out(self, path: Path, folders: list[Path], *, is_directory: bool) -> bool:
        for folder in reversed(folders):
            rules = self._of(folder) if folder in path.parents else []
            relative = path.relative_to(folder).as_posix() + "/" * is_directory if rules else ""
            for is_ignored, expression in rules:
                if expression.match(relative):
                    return is_ignored
        return False

    def _of(self, folder: Path) -> list[_Rule]:
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
    """Return the folders above one, up to the one that holds ``.git``; none if no repository holds it."""
    above: list[Path] = []
    if (root / ".git").exists():
        return above
    for folder in root.parents:
        above.append(folder)
        if (folder / ".git").exists():
            return above
    return []
