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
    ("features",),
    ("api", "cli"),
    ("render",),
    ("device",),
    ("orchestrator",),
    ("report_cache",),
    ("source",),
    ("lookup",),
    ("judge", "reproducer"),
    ("numerics",),
    ("capture",),
    ("simulator", "kernels"),
    ("tracing",),
    ("data",),
    ("worker", "weights"),
    ("model",),
    ("common",),
    ("__init__",),
)
DEPTH = {room: depth for depth, rooms in enumerate(LAYERS) for room in rooms}
#: What finds the features, and its names, which every room may import.
REGISTRY = ROOT / "features" / "__init__.py"
REGISTERED = {
    f"opcheck.features.{name}"
    for name in ("brief_keys", "documents", "feature", "features", "texts_of", "pages", "verbs")
}
#: Rooms in which torch may be imported; elsewhere only below a folder named ``child``.
WITH_TORCH = {"tracing", "simulator", "kernels"}


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
    own = path.relative_to(ROOT).parts
    depth = DEPTH["model"] if path == REGISTRY else DEPTH[room(own)]
    for name in imports(path):
        package, *rest = name.split(".")
        if package != "opcheck" or name in REGISTERED:
            continue
        other = room((*rest, "__init__")) if rest else "__init__"
        other = other if other in DEPTH else "__init__"
        assert DEPTH[other] >= depth, f"{path.relative_to(ROOT)} imports {name}"
        if other == "features":
            assert rest[1] == own[1], f"{path.relative_to(ROOT)} imports another feature: {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_where_models_run_is_torch_imported(path: Path) -> None:
    relative = path.relative_to(ROOT)
    folders = {folder.as_posix() for folder in relative.parents}
    if not folders & WITH_TORCH and "child" not in relative.parts:
        assert not [name for name in imports(path) if name.partition(".")[0] == "torch"]


def test_the_dispatcher_of_the_simulated_mac_imports_nothing_of_what_python_sees() -> None:
    for path in MODULES:
        if path.is_relative_to(ROOT / "simulator" / "dispatch"):
            seen = {name for name in imports(path) if name.startswith("opcheck.simulator.visible")}
            assert not seen, f"{path.relative_to(ROOT)} imports {', '.join(seen)}"


def test_every_room_has_its_place() -> None:
    rooms = {room(path.relative_to(ROOT).parts) for path in MODULES}
    assert rooms == set(DEPTH)


#: Calls that open a file, and the modules that may make them: each writes, or reads what no stranger can replace.
OPENS = {"fdopen", "getline", "getlines", "getsource", "open", "read_bytes", "read_text"}
READS_ITSELF = {
    "common/documents.py": "the one reader",
    "common/files.py": "writes, and reads what it has just written",
    "common/python_source.py": "takes what a loader put into linecache",
    "device/emulator/child/emulated_program.py": "writes the outcome of its own process in place",
    "kernels/kernel_child.py": "appends to the outcomes of its own run",
    "simulator/visible/torch_version.py": "the line of a frame, in a child whose time is limited",
    "cli/streams.py": "the null device, and the summary of GitHub, which it appends to",
    "features/doctor/machine_environment.py": "metadata of an installed distribution",
    "device/observe/child/mac_recorder.py": "appends to the answer of its own process",
    "worker/environments.py": "locks a file in the private cache, by a descriptor",
    "features/sweep/sweep_folder.py": "locks the sweep's folder, by a descriptor that is checked",
    "render/html.py": "templates of the package",
    "features/__init__.py": "the declarations of the verbs, which are files of the package",
    "features/site/render.py": "templates of the package",
    "worker/child.py": "the pipes between the processes",
    "worker/dependency_tracking.py": "appends to the notes of its own process",
    "worker/platform.py": "/proc and /sys",
    "worker/shares.py": "the pipes between the processes",
    "capture/naming.py": "the first bytes of a member of a zip file",
    "weights/stored.py": "the first bytes of a member of a zip file",
    "worker/worker.py": "the pipes between the processes",
}


def opened_in(path: Path) -> set[str]:
    """The calls of a module that open files without the one reader."""
    readers = {"documents", "source"}
    return {
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and (getattr(node.func, "attr", "") or getattr(node.func, "id", "")) in OPENS
        and ast.unparse(getattr(node.func, "value", node.func)) not in readers
    }


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_one_reader_opens_files(path: Path) -> None:
    opened = opened_in(path)
    if path.relative_to(ROOT).as_posix() in READS_ITSELF:
        assert opened, "leave it out of the list"
    else:
        assert opened == set(), "opcheck.common.documents reads files with limits"


#: Functions that read a path by themselves: they take an open file here.
LOADERS = {"np.load", "torch.load", "zipfile.ZipFile", "json.load", "tomllib.load", "yaml.load"}


def test_libraries_are_handed_open_files() -> None:
    handed = {
        ast.unparse(node.args[0])
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in LOADERS
    }
    assert handed == {
        *("file", "io.BytesIO(content)", "documents.read_text(path)"),
        "cast('BinaryIO', Directory())",  # of the one function that opens archives
    }


def test_only_the_orchestrator_joins_the_capture_and_the_judge() -> None:
    starts, judges = "opcheck.capture.parent", "opcheck.judge.assembly"
    by_file = {path.relative_to(ROOT).as_posix(): imports(path) for path in MODULES}
    joined = {
        name
        for name, imported in by_file.items()
        if all(any(each.startswith(room) for each in imported) for room in (starts, judges))
    }
    assert joined == {"orchestrator.py"}
    processes = {
        name
        for name, imported in by_file.items()
        if name.startswith("judge/") and any(each.startswith("opcheck.worker") for each in imported)
    }
    assert processes == set()


#: What typing has since Python 3.11 and newer; the oldest Python of pyproject.toml is 3.10.
NEWER_IN_TYPING = frozenset(
    {
        *("LiteralString", "Never", "NotRequired", "Required", "Self", "TypeVarTuple", "Unpack"),
        *("TypeAliasType", "assert_never", "assert_type", "dataclass_transform", "get_overloads"),
        *("override", "reveal_type", "TypeIs", "ReadOnly"),
    }
)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_oldest_python_parses_and_imports_it(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))
    names = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "typing"
        for alias in node.names
    }
    assert names.isdisjoint(NEWER_IN_TYPING)
