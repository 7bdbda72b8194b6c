"""Chooses the environment of ``--exact``: the target's own torch, with the libraries that go with it."""

import ast
import contextlib
import functools
import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from opcheck.capture.word_lists import TABLES
from opcheck.common import documents
from opcheck.common.errors import UsageError
from opcheck.common.python_source import parse
from opcheck.common.versions import Target, Version
from opcheck.data.files import Release
from opcheck.data.registrations import OpLists, load
from opcheck.worker import environments

#: Libraries are released with a torch if they are at most this many days younger than its wheel.
_DAYS = 30
#: Bytes of a file, requirements that are read in it, characters of each.
_LARGEST, _MOST_PINS, _LONGEST = 8 << 20, 10_000, 1_000
#: What a loader's prefix is the name of, in addition to the library itself.
_LIBRARIES: dict[str, list[str]] = TABLES["loader_libraries"]
#: The distributions of each package that can be imported; reading them takes time.
_distributions = functools.cache(importlib.metadata.packages_distributions)


def interpreter(model: str, target: Target, progress: Callable[[str], None] | None = None) -> str:
    """Return the Python of an environment with the target's torch and the model's libraries.

    Raises:
        UsageError: the release is too old to be run.
        CaptureError: the environment cannot be made.
    """
    lists = load()
    release = lists.release(str(target.torch))
    if target.torch < environments.OLDEST:
        raise UsageError(
            f"torch {target.torch} is too old to be run: {environments.OLDEST} and newer are",
            context="--exact",
            hint=f"leave --exact out: torch {target.torch} is judged with the installed torch",
        )
    if environments.distribution_version("torch").partition("+")[0] == release.torch:
        return sys.executable
    return environments.interpreter(describe_environment(model, release, lists, Path.cwd(), progress), progress)


def describe_environment(
    model: str, release: Release, lists: OpLists, project: Path, say: Callable[[str], None] | None = None
) -> environments.Wanted:
    """Return what the environment of a model contains.

    A library has the version that the project pins, else that which was released with this torch: torchvision and
    torchaudio by the op lists, the others by their date.  ``say`` takes what was left out of the project's files.
    """
    pins = {canonicalize_name(pin.name): pin for pin in _pins(project, say or (lambda _text: None))}
    texts = {}
    for name in sorted({*_of_model(model, project)} - {"torch"}):
        own = _extension(name, release, lists)
        pin = pins.get(canonicalize_name(name))
        texts[name] = own or (f"{name}{pin.specifier}" if pin else name)
    before = release.built + timedelta(days=_DAYS)
    return environments.Wanted(torch=release.torch, libraries=tuple(texts.values()), before=before.isoformat())


def _extension(name: str, release: Release, lists: OpLists) -> str:
    # torchaudio and torchvision name one release of torch each.
    releases = lists.extensions.releases.get(name, ())
    line = Version.parse(release.line)
    own = [each for each in releases if Version.parse(each.torch_line) == line]
    return f"{name}=={own[0].version}" if own else ""


def _of_model(model: str, project: Path) -> Iterator[str]:
    """Yield the distributions that a model needs: of its library, of its file's imports."""
    prefix, _, _ = model.partition(":")
    if prefix in _LIBRARIES:
        yield from _LIBRARIES[prefix]
        return
    is_path = prefix.endswith(".py")
    file = project / (prefix if is_path else f"{prefix.replace('.', '/')}.py")
    yield from _imported_distributions(file)


def _imported_distributions(file: Path) -> Iterator[str]:
    """Yield the distributions that a file imports, and those of its neighbours that it imports."""
    waiting, seen = [file], {file}
    while waiting:
        file = waiting.pop()
        try:
            tree = parse(documents.read(file, _LARGEST))
        except (OSError, SyntaxError):
            continue
        for top in _imports(tree):
            neighbour = file.parent / f"{top}.py"
            if neighbour.is_file():
                if neighbour not in seen:
                    seen.add(neighbour)
                    waiting.append(neighbour)
            elif top not in sys.stdlib_module_names and top != "opcheck":
                yield from _distributions().get(top, [])[:1]


def _imports(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def _pins(project: Path, say: Callable[[str], None]) -> Iterator[Requirement]:
    """Yield what the project's own files ask for: requirements*.txt, pyproject.toml, uv.lock."""
    files = [*sorted(project.glob("requirements*.txt")), project / "pyproject.toml", project / "uv.lock"]
    for file in files:
        try:
            text = documents.read(file, _LARGEST).decode("utf-8-sig", "replace")
            wanted = text.splitlines() if file.suffix == ".txt" else _listed_requirements(documents.from_toml(text))
        except documents.DocumentError as error:
            if not error.missing:
                say(f"left out {file.name}: {error}")
            continue
        if len(wanted) > _MOST_PINS:
            say(f"left out all of {file.name} behind its first {_MOST_PINS:,} requirements")
        for line in wanted[:_MOST_PINS]:
            yield from _requirement(line.partition(" #")[0].partition(" --")[0].strip())


def _listed_requirements(document: dict[str, Any]) -> list[str]:
    """Return the requirements in a pyproject.toml or a uv.lock; a value of another type is none."""
    project, packages = document.get("project"), document.get("package")
    listed = project.get("dependencies") if isinstance(project, dict) else None
    texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
    return texts + [
        f"{package.get('name')}=={package['version']}"
        for package in (packages if isinstance(packages, list) else [])
        if isinstance(package, dict) and isinstance(package.get("version"), str)
    ]


def _requirement(text: str) -> Iterator[Requirement]:
    if not text or len(text) > _LONGEST or text[0] in "-#":
        return
    # A marker may nest thousands of brackets.
    with contextlib.suppress(InvalidRequirement, RecursionError):
        yield Requirement(text)
