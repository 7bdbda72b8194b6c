"""A function that chooses the device, for programs that need the choice in several places.

An existing function of the project is used; else, for three or more places, a new file or the script gets a function.
"""

import ast
import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from opcheck.common import documents
from opcheck.common.grouping import group_values
from opcheck.common.python_source import lines_with_endings
from opcheck.source import source
from opcheck.source.edits import apply, insert_line, is_too_long
from opcheck.source.engine import Proposal
from opcheck.source.program import Function, Program
from opcheck.source.source import FoundFile
from opcheck.source.words import last

#: In so many places a helper is shorter than the choice itself.
_ENOUGH = 3
#: The imports at the head of a file; a magic of a notebook is read as ``pass``.
HEAD = (ast.Import, ast.ImportFrom, ast.Pass)
_NAMES = ("get_device", "choose_device")
_FUNCTION = '''def get_device() -> str:
    """Return the first that the machine has of "cuda", "mps" and "cpu"."""
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"
'''
TEXT = f'''"""The device that this program computes on."""

import torch


{_FUNCTION}'''


class Helper(NamedTuple):
    """The function, seen from a file that calls it."""

    #: the text of the call; its value is a text
    call: str
    #: the statement that imports or defines it; empty where the file has it already
    statement: str


class New(NamedTuple):
    """A file to be written, and the files that import from it."""

    path: Path
    users: frozenset[Path]


class _Existing(NamedTuple):
    path: Path
    name: str
    #: whether it returns a torch.device and not a text
    is_object: bool
    line: int = 0


class Plan(NamedTuple):
    """Which files call a helper."""

    #: a file that is missing here has its choices written out
    by_file: Mapping[Path, Helper]
    new: Sequence[New]


def plan(proposals: Iterable[Proposal], files: Sequence[FoundFile], contents: Mapping[Path, bytes]) -> Plan:
    """Decide for each file whether its choices call a helper, and in which file the helper is."""
    lines, places = _places(proposals)
    project_files = {file.path for file in files}
    programs = {path: program for path in places if (program := _program(path, contents)) is not None}
    by_file: dict[Path, Helper] = {}
    groups: dict[Path, list[Path]] = {}
    searched = sorted(project_files) if places else ()
    existing = [each for path in searched for each in _existing(path, contents, project_files)]
    #: what one script of a folder imports, its neighbours can import, too
    packages: dict[Path, set[Path]] = defaultdict(set)
    for path, program in programs.items():
        packages[path.parent] |= _imported_packages(path, program, project_files)
    for path, program in programs.items():
        home = _home(path, program, project_files)
        own = _own(path, program, min(lines[path]))
        # A notebook imports nothing from the project: its folder need not be where it runs.
        homes = [each for each in (home, *sorted(packages[path.parent])) if each and path.suffix == ".py"]
        if own is None and not homes and places[path] >= _ENOUGH:
            own = _local(program)
        if own is not None:
            by_file[path] = own
        if own is not None or not homes:
            continue
        others = [each for each in existing if each.path != path]
        pairs = ((top, each) for top in homes for each in others if top in each.path.parents)
        reused = next(pairs, None)
        if reused is not None:
            by_file[path] = _call(path, *reused, program)
        else:
            for each in homes:
                groups.setdefault(each, []).append(path)
    new: list[New] = []
    while groups:
        # The home that most places can import from comes first, so that a repository gets one helper.
        home = max(groups, key=lambda each: sum(places[path] for path in groups[each]))
        paths = groups.pop(home)
        groups = {each: left for each in groups if (left := [p for p in groups[each] if p not in paths])}
        file = _free(home, project_files)
        if file is None or sum(places[path] for path in paths) < _ENOUGH:
            continue
        created = _Existing(file, _NAMES[0], is_object=False)
        by_file |= {path: _call(path, home, created, programs[path]) for path in paths}
        new.append(New(file, frozenset(paths)))
    return Plan(by_file, new)


def _places(proposals: Iterable[Proposal]) -> tuple[dict[Path, list[int]], dict[Path, int]]:
    """By file, the lines that may call a helper, and how many they count; a line that is too long counts as enough."""
    numbers: dict[Path, list[int]] = {}
    places: Counter[Path] = Counter()
    choices = ((each.file, each) for each in proposals if each.fix.helper_edits)
    for (path, _), of_file in group_values(choices).items():
        content = of_file[0].content
        is_notebook = path.suffix == ".ipynb"
        lines = source.notebook(content, "", []).lines if is_notebook else content.decode(errors="replace").splitlines()
        numbers[path] = [each.fix.helper_edits[0].line for each in of_file]
        places[path] += sum(_ENOUGH if is_too_long(each.fix.edits, lines) else 1 for each in of_file)
    return numbers, places


def read_content(path: Path, contents: Mapping[Path, bytes]) -> bytes:
    """Return the bytes of a file as it was changed; empty where it cannot be read."""
    try:
        return contents[path] if path in contents else documents.read(path)
    except OSError:
        return b""


def _program(path: Path, contents: Mapping[Path, bytes]) -> Program | None:
    try:
        shown, content = path.as_posix(), read_content(path, contents)
        if path.suffix == ".ipynb":
            return Program(source.notebook(content, shown, []).tree)
        return Program(source.parse(source.text(content, shown), shown))
    except (source.UnreadableError, RecursionError):
        return None


def _free(home: Path, project_files: Collection[Path]) -> Path | None:
    """The file that a helper may be written to."""
    files = (home / name for name in ("device.py", "device_choice.py"))
    file = next((each for each in files if each not in project_files), None)
    return file if file is not None and not file.exists() else None


def _own(path: Path, program: Program, line: int) -> Helper | None:
    """The helper that a file has itself above a line."""
    own = next((each for each in _choosing(path, program) if each.line < line), None)
    return Helper(_write_call(own.name, is_object=own.is_object), "") if own is not None else None


def _local(program: Program) -> Helper | None:
    """A helper that a script defines itself; None if the names are taken or torch is not imported as a whole."""
    taken = {*program.uses, *program.imports, *program.module_names()}
    name = next((name for name in _NAMES if name not in taken), "")
    torch = next((name for name, full in program.imports.items() if full == "torch"), "")
    if not name or not torch:
        return None
    function = _FUNCTION.replace(_NAMES[0], name).replace("torch.", f"{torch}.").rstrip()
    return Helper(_write_call(name, is_object=False), f"\n\n{function}")


def _write_call(name: str, *, is_object: bool) -> str:
    return f"{name}().type" if is_object else f"{name}()"


def _home(path: Path, program: Program, project_files: set[Path]) -> Path | None:
    """The folder for a helper that a file can surely import; None where that is not sure.

    A file of a package must import from its package already; a script must import a neighbour. That a neighbour imports
    it is not enough: run as ``python -m folder.file`` it does not see its neighbours.
    """
    package = _package(path, project_files)
    if package is not None:
        is_inside = _imports_from(package, program) or path.name == "__init__.py"
        return package if is_inside else None
    # At the top of a repository a script sees its neighbours, however it is run.
    is_at_top = (path.parent / ".git").exists()
    return path.parent if is_at_top or _has_neighbour(path, program, project_files) else None


def _has_neighbour(path: Path, program: Program, project_files: set[Path]) -> bool:
    """Return whether a file imports a neighbour by its plain name."""
    names = {full.partition(".")[0] for full in program.imports.values()}
    return any(path.with_name(f"{name}.py") in project_files for name in names if name)


def _imported_packages(path: Path, program: Program, project_files: set[Path]) -> set[Path]:
    """The packages of the project that a file imports by their names."""
    names = {full.partition(".")[0] for full in program.imports.values()}
    folders = {folder / name for folder in path.parents for name in names if name}
    return {each for each in folders if each / "__init__.py" in project_files} - {*path.parents}


def _package(path: Path, project_files: set[Path]) -> Path | None:
    """The outermost package around a file."""
    package = None
    for folder in path.parents:
        if folder / "__init__.py" not in project_files:
            break
        package = folder
    return package


def _call(path: Path, home: Path, helper: _Existing, program: Program) -> Helper:
    """How a file calls a helper, under a name that it does not have yet."""
    is_package = home / "__init__.py" == path or (home / "__init__.py").is_file()
    parts = helper.path.with_suffix("").relative_to(home.parent if is_package else home).parts
    module = ".".join(part for part in parts if part != "__init__")
    # The project may import a package by a longer name: ``diffusion`` as ``ldm.models.diffusion``.
    is_relative = path.name == "__init__.py" or any(full.startswith(".") for full in program.imports.values())
    if is_package and home in path.parents and is_relative:
        module = "." * len(path.relative_to(home).parts) + module.partition(".")[2]
    taken = {*program.uses, *program.imports}
    # The file may have the very same import.
    if program.imports.get(helper.name) == f"{module}.{helper.name}":
        return Helper(_write_call(helper.name, is_object=helper.is_object), "")
    name = next((name for name in (helper.name, *_NAMES) if name not in taken), f"opcheck_{helper.name}")
    alias = "" if name == helper.name else f" as {name}"
    return Helper(_write_call(name, is_object=helper.is_object), f"from {module} import {helper.name}{alias}")


def _existing(path: Path, contents: Mapping[Path, bytes], project_files: set[Path]) -> Iterable[_Existing]:
    """The functions of a file that choose a device and know MPS; not in a file that imports from the project."""
    content = read_content(path, contents) if path.suffix == ".py" else b""
    may_choose = all(word in content for word in (b"mps", b"device", b"def "))
    program = _program(path, contents) if may_choose else None
    if program is not None and not _imports_project(path, program, project_files):
        yield from _choosing(path, program)


def _choosing(path: Path, program: Program) -> Iterator[_Existing]:
    """The functions of a file that choose a device and know MPS."""
    for node in program.tree.body:
        if not isinstance(node, ast.FunctionDef) or "device" not in node.name:
            continue
        if not ast.unparse(node.args) and (kind := _find_kind(node)) is not None:
            yield _Existing(path, node.name, kind, node.lineno)


def _imports_project(path: Path, program: Program, project_files: set[Path]) -> bool:
    """Return whether a file imports from others of the project; they may import it in turn."""
    package = _package(path, project_files)
    return _imports_from(package, program) or _has_neighbour(path, program, project_files)


def _imports_from(package: Path | None, program: Program) -> bool:
    """Return whether a file imports from its package."""
    inside = (".", f"{package.name}.") if package is not None else (".",)
    return any(f"{full}.".startswith(inside) for full in program.imports.values())


def _find_kind(node: Function) -> bool | None:
    """Return whether a function returns torch devices (True) or texts (False), all three; None for anything else."""
    texts: set[object] = set()
    kinds: set[bool] = set()
    returned = (part.value for part in ast.walk(node) if isinstance(part, ast.Return))
    for value in (branch for each in returned for branch in _branches(each)):
        call = value if isinstance(value, ast.Call) and last(value.func) == "device" else None
        is_device = call is not None and len(call.args) == 1
        for text in _branches(call.args[0] if call and is_device else value):
            texts.add(text.value if isinstance(text, ast.Constant) else None)
            kinds.add(is_device)
    is_plain = not node.decorator_list and texts == {"cuda", "mps", "cpu"} and len(kinds) == 1
    return kinds.pop() if is_plain else None


def _branches(node: ast.expr | None) -> Iterator[ast.expr | None]:
    if isinstance(node, ast.IfExp):
        yield from _branches(node.body)
        yield from _branches(node.orelse)
    else:
        yield node


def add_import(after: str, helper: Helper) -> str:
    """Add the import of a helper to a changed text, if the text calls it and does not import it yet."""
    plain = after.replace("\r\n", "\n").replace("\r", "\n")
    if not helper.statement or helper.call not in after or helper.statement in plain:
        return after
    return add_below_imports(after, helper, after)


def add_below_imports(text: str, helper: Helper, python: str) -> str:
    """Add the import or the definition of a helper below the first imports; ``python`` is the text without magics."""
    lines = lines_with_endings(text)
    tree = source.parse(python, "").body
    line = 0
    for statement in tree:
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        is_head = is_text or isinstance(statement, HEAD)
        # The next statement may begin on the last line of an import, and end below it.
        if statement.lineno > line and not is_head:
            break
        line = statement.end_lineno or statement.lineno
    # Above the first statement, a comment of the interpreter or of the encoding stays in its place.
    if line == 0:
        line = sum(1 for _ in itertools.takewhile(lambda text: text.startswith("#"), lines[:2]))
    added = helper.statement
    if added.startswith("\n"):  # a function, with two blank lines below it
        blank = len(list(itertools.takewhile(lambda following: not following.strip(), lines[line:])))
        added += "\n" * max(0, 2 - blank) * (line < len(lines))
    return apply(lines, [(insert_line(line + 1, added),)])[0]
