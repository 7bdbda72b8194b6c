"""Chooses the environment of ``--exact``: the target's own torch, with the libraries that go with it."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from opcheck.common.documents import DocumentError, from_toml
from opcheck.common.errors import UsageError
from opcheck.common.files import is_file
from opcheck.common.versions import Target, Version
from opcheck.data.files import Release
from opcheck.data.registrations import OpLists, load
from opcheck.worker import environments
from opcheck.worker.environments import Wanted
from opcheck.worker.installed import OLDEST, distribution_version

#: Libraries are released with a torch if they are at most this many days younger than its wheel.
_DAYS = 30
#: Libraries that name one release of torch; op_lists/extensions.yaml says which goes with which.
_EXTENSIONS = ("torchaudio", "torchvision")
#: What a loader's prefix is the name of, beside the library itself.
_LIBRARIES = {
    "diffusers": ("diffusers", "transformers"),
    "timm": ("timm", "torchvision"),
    "torchvision": ("torchvision",),
    "transformers": ("transformers",),
}


def interpreter(model: str, target: Target, progress: Callable[[str], None] | None = None) -> str:
    """Return the Python of an environment with the target's torch and the model's libraries.

    Raises:
        UsageError: the release is too old to be run.
        CaptureError: the environment cannot be made.
    """
    lists = load()
    release = lists.release(str(target.torch))
    if target.torch < OLDEST:
        raise UsageError(
            f"torch {target.torch} is too old to be run: {OLDEST} and newer are",
            context="--exact",
            hint=f"leave --exact out: torch {target.torch} is judged by what is installed here",
        )
    if distribution_version("torch").partition("+")[0] == release.torch:
        return sys.executable
    return environments.interpreter(wanted(model, release, lists, Path.cwd()), progress)


def wanted(model: str, release: Release, lists: OpLists, project: Path) -> Wanted:
    """Return what the environment of a model holds.

    A library has the version that the project pins, else that which was released with this torch: torchvision and
    torchaudio by the op lists, the others by their date.
    """
    pins = {canonicalize_name(pin.name): pin for pin in _pins(project)}
    texts = {}
    for name in sorted({*_of_model(model, project)} - {"torch"}):
        own = _extension(name, release, lists)
        pin = pins.get(canonicalize_name(name))
        texts[name] = own or (f"{name}{pin.specifier}" if pin else name)
    before = release.built + timedelta(days=_DAYS)
    return Wanted(torch=release.torch, libraries=tuple(texts.values()), before=before.isoformat())


def _extension(name: str, release: Release, lists: OpLists) -> str:
    if name not in _EXTENSIONS:
        return ""
    known = lists.extensions.releases.get(name, ())
    line = Version.parse(release.line)
    own = [each for each in known if Version.parse(each.torch_line) == line]
    return f"{name}=={own[0].version}" if own else ""


def _of_model(model: str, project: Path) -> Iterator[str]:
    """Yield the distributions that a model needs: of its library, of its file's imports."""
    prefix, _, _ = model.partition(":")
    if prefix in _LIBRARIES:
        yield from _LIBRARIES[prefix]
        return
    is_path = prefix.endswith(".py")
    file = project / (prefix if is_path else f"{prefix.replace('.', '/')}.py")
    yield from _imported(file, frozenset())


def _imported(file: Path, seen: frozenset[Path]) -> Iterator[str]:
    """Yield the distributions that a file imports, and those of its neighbours that it imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    seen |= {file}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        else:
            continue
        for name in names:
            top = name.partition(".")[0]
            neighbour = file.parent / f"{top}.py"
            if neighbour.is_file():
                if neighbour not in seen:
                    yield from _imported(neighbour, seen)
            elif top not in sys.stdlib_module_names and top != "opcheck":
                yield from _distributions().get(top, [])[:1]


@functools.cache
def _distributions() -> dict[str, list[str]]:
    return {name: [*those] for name, those in importlib.metadata.packages_distributions().items()}


def _pins(project: Path) -> Iterator[Requirement]:
    """Yield what the project's own files ask for: requirements*.txt, pyproject.toml, uv.lock."""
    for file in sorted(project.glob("requirements*.txt")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            yield from _requirement(line.partition(" #")[0].partition(" --")[0])
    for name in ("pyproject.toml", "uv.lock"):
        file = project / name
        if not is_file(str(file)):
            continue
        try:
            document = from_toml(file.read_text(encoding="utf-8", errors="replace"))
        except (DocumentError, ValueError):
            continue
        listed = document.get("project", {})
        for text in listed.get("dependencies", []) if isinstance(listed, dict) else []:
            yield from _requirement(str(text))
        for package in document.get("package", []) if name == "uv.lock" else []:
            if isinstance(package, dict) and "version" in package:
                yield from _requirement(f"{package.get('name')}=={package['version']}")


def _requirement(text: str) -> Iterator[Requirement]:
    try:
        yield Requirement(text.strip())
    except InvalidRequirement:
        return
