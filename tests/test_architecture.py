"""Imports run downward only, and torch stays where the models run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import opcheck

ROOT = Path(opcheck.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

#: The layers, the top one first; a room may import itself, its neighbours in a row, and below.
LAYERS = (
    ("__main__",),
    ("cli", "pytest_plugin"),
    ("site",),
    ("report", "gate", "repro"),
    ("emulator", "observe"),
    ("changes", "sweep"),
    ("many", "outcomes", "api"),
    ("pipeline", "compiled", "cache"),
    ("doctor",),
    ("scan",),
    ("rules",),
    ("partition", "memory", "callgraph"),
    ("ask",),
    ("upgrade", "remedies"),
    ("judge",),
    ("limits", "flow", "ranges"),
    ("compile", "compare", "probe", "precision"),
    ("capture",),
    ("simulate",),
    ("oplists", "messages", "differences", "evidence"),
    ("examples",),
    ("catalogue",),
    ("model", "files", "wording", "traits", "fingerprint", "ignores"),
    ("names", "versions", "python_source", "children", "documents", "sanitize"),
    ("errors",),
    ("__init__",),
)
DEPTH = {room: depth for depth, rooms in enumerate(LAYERS) for room in rooms}
#: Rooms in which user code and torch run, and their modules that the torch-free rooms import.
WITH_TORCH = {
    "simulate",
    "capture",
    "compile",
    "compare",
    "probe",
    "emulator",
    "observe",
    "precision",
    "remedies",
}
TORCH_FREE = {
    "compile/__init__.py",
    "compile/check/__init__.py",
    "compile/check/clang.py",
    "compile/check/library.py",
    "compile/execute/__init__.py",
    "compile/execute/compiler.py",
    "compile/emit.py",
    "compile/judged.py",
    "compile/lint.py",
    "compile/parent.py",
    "compile/plan.py",
    "compile/records.py",
    "compare/__init__.py",
    "compare/parent.py",
    "compare/records.py",
    "compare/worker.py",
    "probe/__init__.py",
    "probe/child.py",
    "probe/parent.py",
    "probe/records.py",
    "capture/__init__.py",
    "capture/parent.py",
    "capture/noting.py",
    "capture/request.py",
    "capture/protocol.py",
    "emulator/__init__.py",
    "emulator/parent.py",
    "emulator/request.py",
    "emulator/child.py",
    "emulator/program.py",
    "observe/__init__.py",
    "observe/clean.py",
    "observe/frames.py",
    "observe/joined.py",
    "observe/log_report.py",
    "observe/merge.py",
    "observe/observed.py",
    "observe/parent.py",
    "observe/parse.py",
    "observe/pattern.py",
    "observe/patterns.py",
    "observe/profile.py",
    "observe/propose.py",
    "observe/records.py",
    "observe/request.py",
    "observe/sizes.py",
    "observe/statement_texts.py",
    "observe/system.py",
    "observe/told.py",
    "observe/variables.py",
    "observe/verify.py",
    "precision/__init__.py",
    "precision/parent.py",
    "precision/worker.py",
    "remedies/__init__.py",
    "remedies/remedy.py",
    "remedies/table.py",
    "remedies/complex_entries.py",
    "remedies/dtype_entries.py",
    "remedies/fourier_entries.py",
    "remedies/precision_entries.py",
}


def imports(path: Path) -> set[str]:
    """The dotted names that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported_at_once(tree: ast.Module) -> set[str]:
    """The modules that the statements at the top of a module import."""
    plain = {a.name for node in tree.body if isinstance(node, ast.Import) for a in node.names}
    return plain | {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}


def room(parts: tuple[str, ...]) -> str:
    return parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_downward(path: Path) -> None:
    if path == ROOT / "__init__.py":
        # It names the Python API to type checkers, and imports nothing until it is asked.
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert "opcheck" not in {name.partition(".")[0] for name in imported_at_once(tree)}
        return
    own = room(path.relative_to(ROOT).parts)
    for name in imports(path):
        package, _, rest = name.partition(".")
        if package == "opcheck":
            other = room(tuple(rest.split("."))) if rest else "__init__"
            other = other if other in DEPTH else "__init__"
            assert DEPTH[other] >= DEPTH[own], f"{path.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_where_models_run_is_torch_imported(path: Path) -> None:
    relative = path.relative_to(ROOT)
    if relative.parts[0] not in WITH_TORCH or relative.as_posix() in TORCH_FREE:
        assert not [name for name in imports(path) if name.partition(".")[0] == "torch"]


def test_every_room_has_its_place() -> None:
    rooms = {room(path.relative_to(ROOT).parts) for path in MODULES}
    assert rooms == set(DEPTH)
