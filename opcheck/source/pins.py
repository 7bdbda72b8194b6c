"""The releases of torch that a project allows, by the requirement files beside and above a source."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from opcheck.common.python_source import split_lines
from opcheck.common.versions import Version
from opcheck.source import requirements, source

#: Folders above a source that are looked at, up to the root of its repository.
_DEEPEST = 8
#: So many requirement files of a folder are read.
_MOST = 20
#: The release lines that a specifier may allow; later ones have all that a fix writes.
_LINES = (*(Version(1, minor) for minor in range(8, 14)), *(Version(2, n) for n in range(40)))
_PATCHES = range(4)


def allowed(folder: Path) -> tuple[Version, Version] | None:
    """Return the oldest and the newest release line that the nearest requirement files allow; None without a pin."""
    for each in (folder.absolute(), *folder.absolute().parents[:_DEEPEST]):
        lines = [line for text in _requirements(each) for line in [_lines(text)] if line]
        if lines:
            return max(line[0] for line in lines), min(line[-1] for line in lines)
        if (each / ".git").exists():
            break
    return None


def _requirements(folder: Path) -> Iterator[str]:
    for path in [*sorted(folder.glob("requirements*.txt"))[:_MOST], folder / "pyproject.toml"]:
        # The scan itself reports a requirement file that cannot be read.
        with contextlib.suppress(source.UnreadableError, OSError, ValueError):
            text = source.read_bytes(path, path.as_posix()).decode("utf-8-sig")
            found = (
                requirements.in_pyproject(text)
                if path.suffix == ".toml"
                else requirements.in_lines(split_lines(text))
            )
            yield from [each[0] for each in found]


def _lines(text: str) -> list[Version]:
    """The release lines that a requirement of torch allows, the oldest first; none for another package."""
    try:
        wanted = Requirement(text)
        if wanted.name.lower() != "torch" or not wanted.specifier:
            return []
        # ``==2.1.0+cu118`` is a build of 2.1.0.
        public = SpecifierSet(
            ",".join(
                f"{each.operator}{each.version.partition('+')[0]}" for each in wanted.specifier
            )
        )
    except (InvalidRequirement, InvalidSpecifier, RecursionError):
        return []
    return [
        line for line in _LINES if any(public.contains(f"{line}.{patch}") for patch in _PATCHES)
    ]
