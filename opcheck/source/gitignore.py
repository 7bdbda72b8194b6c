"""Reads ``.gitignore``, so that a scan leaves out what the project's repository does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

FILE = ".gitignore"


class GitIgnores:
    """Tells which paths below a folder the ``.gitignore`` files leave out: those of the folder, below, and above it.

    Above it, files count up to the top of the repository.  A folder that they leave out whole was named on purpose:
    then they do not count.
    """

    def __init__(self, root: Path) -> None:
        self._specs: dict[Path, GitIgnoreSpec | None] = {}
        self._root = root.resolve()
        self._above = [*reversed(_up_to_repository(self._root))]
        if self._above and self._leaves_out(self._root, self._above, is_directory=True):
            self._above = []

    def leaves_out(self, path: Path, *, is_directory: bool) -> bool:
        """Return whether a path below the folder is left out; the deepest file that speaks of it decides."""
        absolute = path.parent.resolve() / path.name
        below = [*reversed([p for p in absolute.parents if p.is_relative_to(self._root)])]
        return self._leaves_out(absolute, [*self._above, *below], is_directory=is_directory)

    def _leaves_out(self, path: Path, folders: list[Path], *, is_directory: bool) -> bool:
        decision = False
        for folder in folders:
            spec = self._spec(folder)
            if spec is not None:
                relative = path.relative_to(folder).as_posix() + ("/" if is_directory else "")
                included = spec.check_file(relative).include
                decision = decision if included is None else included
        return decision

    def _spec(self, folder: Path) -> GitIgnoreSpec | None:
        if folder not in self._specs:
            self._specs[folder] = _read(folder / FILE)
        return self._specs[folder]


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


def _read(file: Path) -> GitIgnoreSpec | None:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # there is none, or it may not be read
        return None
    from pathspec import GitIgnoreSpec

    valid = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:  # git leaves such a line out, too
            continue
        valid.append(line)
    return GitIgnoreSpec.from_lines(valid)
