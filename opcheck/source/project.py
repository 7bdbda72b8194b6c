"""Follows imported names to the files of the same project.

Only files that the scan reads anyway are opened; libraries are not followed.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from opcheck.source.file_questions import FileQuestions
from opcheck.source.program import Function, Program

#: A name is followed through so many files that only import it in turn.
_DEEPEST = 4
#: A value that comes through more files is unknown: each takes about twenty of Python's 1000 frames.
_MOST_FILES = 12


_HERE = Path()
#: An import of names that the file does not spell.
_STAR = re.compile(rb"import[\\\s]*\*")
#: The next statement outside of a block, the parameters of a function, and a device or a name as a default in them.
_TOP_LEVEL = re.compile(rb"\n[^\s#)]")
_SIGNATURE = re.compile(rb".*?\)\s*(?:->[^\n]*)?:[ \t]*(?:#[^\n]*)?\n", re.DOTALL)
_DEFAULT = re.compile(rb"""=\s*(?!(?:None|True|False)\b|torch\.)[A-Za-z_(]|["']cuda""")


class Module(NamedTuple):
    """A parsed file of the project."""

    path: Path
    program: Program
    mac: FileQuestions


class Default(NamedTuple):
    """A parameter whose default is CUDA; the position is None if a call must name it."""

    position: int | None
    parameter: str
    constant: object
    line: int


class Project:
    """The Python files of a scan, by the names that other files use to import them."""

    def __init__(
        self,
        files: Iterable[Path],
        load: Callable[[Path], Module | None],
        content: Callable[[Path], bytes] = lambda _path: b"",
    ) -> None:
        paths = tuple(files)
        self._content = content
        self._words: dict[bytes, bool] = {}
        self._files = {path.as_posix(): path for path in paths}
        #: by module and folder, the files that the module may be, seen from a file of the folder
        self._modules: dict[tuple[str, Path], tuple[Path, ...]] = {}
        self._spelled: dict[tuple[Path, str], bool] = {}
        #: the names of files and folders: what begins with another name is a library
        self._names = {name for path in paths for name in (path.stem, *path.parent.parts)}
        self._load = load
        #: by name and importing file, the file that binds the name; the parsed files are kept elsewhere
        self._found: dict[tuple[str, Path], tuple[Path, str] | None] = {}
        #: by file, the names that it binds at its top level, and those that it imports
        self._bound: dict[Path, tuple[frozenset[str], Mapping[str, str]] | None] = {}
        #: by file and name, the values, so that 40 files that each import the next two take no 2**40 steps
        self._values: dict[tuple[Path, str], tuple[object, ...]] = {}
        self._origins: dict[tuple[str, Path], str] = {}
        self._full_names: dict[tuple[Path, str], str] = {}
        self._defaults: dict[tuple[Path, str], list[Default]] = {}
        self._open = 0

    def holds(self, dotted: str) -> bool:
        """Return whether an imported name belongs to this project, other than the name of a file."""
        first, _, rest = dotted.partition(".")
        is_ours = bool(rest) and (not first or first in self._names)
        return is_ours and dotted.rpartition(".")[2] not in self._names

    def has_word(self, word: bytes) -> bool:
        """Return whether a file of the project has a word."""
        if word not in self._words:
            self._words[word] = any(word in self._content(path) for path in self._files.values())
        return self._words[word]

    def constants(self, dotted: str, importer: Path) -> tuple[object, ...]:
        """Return the values that a module-level name of another file may have on a Mac; empty if unknown."""
        place = self._place(dotted, importer)
        if place is None or (place not in self._values and self._open >= _MOST_FILES):
            return ()
        if place not in self._values:
            self._values[place] = ()  # of a value that depends on itself
            self._open += 1
            try:
                self._values[place] = self._find_values(*place)
            finally:
                self._open -= 1
        return self._values[place]

    def _find_values(self, path: Path, name: str) -> tuple[object, ...]:
        module = self._load(path)
        if module is None:
            return ()
        values: list[object] = []
        for binding in module.program.module_bindings(name):
            if binding.value is None:
                return ()
            if module.mac.is_reached(binding.node, tries=False):
                values += [value.constant for value in module.mac.values(binding.value)]
        return tuple(values)

    def origin(self, dotted: str, importer: Path, load: Callable[[Path], Module | None]) -> str:
        """Return the full name that an imported name has in the file of the project that imports it in turn."""
        module, _, name = dotted.rpartition(".")
        is_ours = dotted[0] == "." or dotted.partition(".")[0] in self._names
        if self._open >= _DEEPEST or not is_ours:
            return ""
        key = (f"{dotted}?", importer)
        if key not in self._origins:
            self._origins[key] = ""  # of files that import each other
            self._open += 1
            path = self._find_module(module or ".", importer)
            if path is not None and self._spells(path, name):
                place = (path, name)
                if place not in self._full_names:
                    imported = load(path)
                    self._full_names[place] = imported.program.full_name(name) if imported else ""
                self._origins[key] = self._full_names[place]
            self._open -= 1
        return self._origins[key]

    def defaults(self, dotted: str, importer: Path) -> tuple[Path, list[Default]] | None:
        """Return the file of another file's function, or class, and the parameters that it leaves at CUDA."""
        place = self._place(dotted, importer)
        if place is None:
            return None
        if place not in self._defaults:
            self._defaults[place] = self._find_defaults(*place)
        return place[0], self._defaults[place]

    def _find_defaults(self, path: Path, name: str) -> list[Default]:
        definition = _find_definition(self._content(path), name)
        module = self._load(path) if definition is None or _has_device(self._content(path), definition) else None
        bindings = module.program.module_bindings(name) if module else []
        node = bindings[0].node if len(bindings) == 1 else None
        if isinstance(node, ast.ClassDef):
            parts = (part for part in node.body if isinstance(part, ast.FunctionDef))
            node = next((part for part in parts if part.name == "__init__"), None)
        if module is None or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return []
        return [
            Default(position, parameter, value.constant, default.lineno)
            for position, parameter, default in defaults(node)
            if (value := module.mac.cuda(default)) is not None
        ]

    def _place(self, dotted: str, importer: Path) -> tuple[Path, str] | None:
        """Return the file that binds a name of an importing file at its top level, and the name there."""
        if not dotted.startswith(".") and dotted.partition(".")[0] not in self._names:
            return None
        key = (dotted, importer)
        if key not in self._found:
            self._found[key] = self._define(dotted, importer, _DEEPEST)
        return self._found[key]

    def _define(self, dotted: str, importer: Path, depth: int) -> tuple[Path, str] | None:
        """Return the file that binds a name at its top level, and the name there."""
        module_name, _, name = dotted.rpartition(".")
        if not module_name.strip(".") and not module_name:
            return None
        path = self._find_module(module_name, importer)
        if path is None or not self._spells(path, name):
            return None
        if path not in self._bound:
            if _find_definition(self._content(path), name) is not None:
                return path, name
            program = getattr(self._load(path), "program", None)
            self._bound[path] = program and (program.module_names(), program.imports)
        bound = self._bound[path]
        if bound is None:
            return None
        if name in bound[0]:
            return path, name
        further = bound[1].get(name, "")
        return self._define(further, path, depth - 1) if further and depth else None

    def _spells(self, path: Path, name: str) -> bool:
        """Return whether a file may have a name, which Python also reads in letters beyond ASCII."""
        key = (path, name)
        if key not in self._spelled:
            content = self._content(path)
            is_spelled = name.encode() in content or not content.isascii()
            self._spelled[key] = is_spelled or _STAR.search(content) is not None
        return self._spelled[key]

    def _find_module(self, module: str, importer: Path) -> Path | None:
        """Return the file of a module of this name, seen from the file that imports it."""
        key = (module, importer.parent)
        if key not in self._modules:
            self._modules[key] = tuple(self._candidates(module, importer.parent))
        return next((path for path in self._modules[key] if path != importer), None)

    def _candidates(self, module: str, folder: Path) -> Iterator[Path]:
        """Yield the files that a module of this name may be, seen from a file of the folder."""
        name = module.lstrip(".")
        level = len(module) - len(name)
        above = [folder, *folder.parents]
        # ``from . import a`` and ``from .. import a`` both come as more dots than the statement has.
        levels = [up for up in (level, level - 1) if 1 <= up <= len(above)]
        inside = "/".join(part for part in name.split(".") if part)
        for directory in [above[up - 1] for up in levels] if level else above:
            base = "" if directory == _HERE else f"{directory.as_posix().rstrip('/')}/"
            # A set of names decides, not the disk.
            for file in (f"{inside}.py", f"{inside}/__init__.py") if inside else ("__init__.py",):
                if base + file in self._files:
                    yield self._files[base + file]


def _find_definition(content: bytes, name: str) -> int | None:
    """Return where a file defines a function or a class at its top level, as far as that shows without parsing it."""
    places = (content.find(f"\n{kind} {name}{end}".encode()) for kind in ("def", "class") for end in "(:")
    return next((place for place in places if place >= 0), None)


def _has_device(content: bytes, definition: int) -> bool:
    """Return whether a parameter of a function or a class may have a device as its default."""
    end = _TOP_LEVEL.search(content, definition + 1)
    block = content[definition : end.start() if end else None]
    start = block.find(b"def __init__(") if block.startswith(b"\nclass") else 0
    signature = _SIGNATURE.match(block, start) if start >= 0 else None
    return start >= 0 and (signature is None or _DEFAULT.search(signature[0]) is not None)


def defaults(function: Function) -> Iterator[tuple[int | None, str, ast.expr]]:
    """Yield position, name and default of each parameter with a default; a method's first parameter does not count."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args]
    first = len(named) - len(arguments.defaults)
    bound = int(bool(named) and named[0].arg in {"self", "cls"})
    for position, default in enumerate(arguments.defaults, first):
        yield position - bound, named[position].arg, default
    for parameter, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if keyword_default is not None:
            yield None, parameter.arg, keyword_default
