"""Follows imported names to the files of the same project.

Only files that the scan reads anyway are opened; libraries are not followed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from opcheck.source.mac import Mac
from opcheck.source.program import Function, Program

#: A name is followed through so many files that only import it in turn.
_DEEPEST = 4


class Module(NamedTuple):
    """A parsed file of the project."""

    path: Path
    program: Program
    mac: Mac


class Project:
    """The Python files of a scan, by the names under which others import them."""

    def __init__(self, files: Iterable[Path], load: Callable[[Path], Module | None]) -> None:
        paths = tuple(files)
        self._files = {path.as_posix() for path in paths}
        #: the names of files and folders: what begins with another name is a library
        self._names = {name for path in paths for name in (path.stem, *path.parent.parts)}
        self._load = load
        #: by name and importing file, the file that binds the name; the parsed files are kept elsewhere
        self._found: dict[tuple[str, Path], tuple[Path, str] | None] = {}

    def holds(self, dotted: str) -> bool:
        """Return whether an imported name is one of this project's own, other than the name of a file."""
        first, _, rest = dotted.partition(".")
        return (
            bool(rest)
            and (not first or first in self._names)
            and dotted.rpartition(".")[2] not in self._names
        )

    def constants(self, dotted: str, importer: Path) -> tuple[object, ...]:
        """Return the values that a module-level name of another file may have on a Mac; empty if unknown."""
        definition = self._definition(dotted, importer)
        if definition is None:
            return ()
        module, name = definition
        values: list[object] = []
        for binding in module.program.module_bindings(name):
            if binding.value is None:
                return ()
            if module.mac.reached(binding.node, tries=False):
                values += [value.constant for value in module.mac.values(binding.value)]
        return tuple(values)

    def function(self, dotted: str, importer: Path) -> tuple[Module, Function] | None:
        """Return the function of another file, or the ``__init__`` of a class there."""
        definition = self._definition(dotted, importer)
        if definition is None:
            return None
        module, name = definition
        nodes = [binding.node for binding in module.program.module_bindings(name)]
        if len(nodes) != 1:
            return None
        node = nodes[0]
        if isinstance(node, ast.ClassDef):
            inits = [
                part
                for part in node.body
                if isinstance(part, ast.FunctionDef) and part.name == "__init__"
            ]
            node = inits[0] if inits else node
        return (module, node) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None

    def _definition(
        self, dotted: str, importer: Path, depth: int = _DEEPEST
    ) -> tuple[Module, str] | None:
        if not dotted.startswith(".") and dotted.partition(".")[0] not in self._names:
            return None
        key = (dotted, importer)
        if key not in self._found:
            self._found[key] = self._define(dotted, importer, depth)
        place = self._found[key]
        module = self._load(place[0]) if place is not None else None
        return (module, place[1]) if place is not None and module is not None else None

    def _define(self, dotted: str, importer: Path, depth: int) -> tuple[Path, str] | None:
        """Return the file that binds a name at its top level, and the name there."""
        module_name, _, name = dotted.rpartition(".")
        if not module_name.strip(".") and not module_name:
            return None
        for path in self._candidates(module_name, importer):
            if path.as_posix() not in self._files or path == importer:
                continue
            module = self._load(path)
            if module is None:
                return None
            if module.program.module_bindings(name):
                return path, name
            further = module.program.imports.get(name, "")
            return self._define(further, path, depth - 1) if further and depth else None
        return None

    def _candidates(self, module: str, importer: Path) -> Iterator[Path]:
        """Yield the files that a module of this name may be, seen from the file that imports it."""
        level = len(module) - len(module.lstrip("."))
        parts = [part for part in module.split(".") if part]
        if level:
            # ``from . import a`` and ``from .. import a`` both come as more dots than the statement has.
            for up in (level, level - 1):
                if 1 <= up <= len(importer.parents):
                    yield from _files(importer.parents[up - 1], parts)
            return
        # A set of names is asked, not the disk.
        for directory in importer.parents:
            yield from _files(directory, parts)


def _files(directory: Path, parts: list[str]) -> Iterator[Path]:
    base = directory.joinpath(*parts)
    if parts:
        yield base.with_name(f"{base.name}.py")
    yield base / "__init__.py"
