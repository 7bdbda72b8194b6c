"""Makes Python environments with other versions of torch and of libraries, once each, in a cache.

An environment has the interpreter's own Python version and sees this opcheck, whatever else is installed.
uv makes it where it is there: it installs what was released with a torch, by a date; pip takes the newest that fits.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import Requirement

from opcheck.common.caches import require_private
from opcheck.common.errors import CaptureError
from opcheck.model.records import Record
from opcheck.worker.platform import lock

#: Seconds that a step of making an environment may take.
MOST_SECONDS = 3600.0
_LOOK = 1.0
_PACKAGE = Path(__file__).parents[1]
#: What an environment has when it is complete: its description.
_READY = "opcheck-environment.json"


class Wanted(Record, frozen=True, kw_only=True):
    """The packages of an environment, without opcheck and its own dependencies."""

    #: the exact release of torch
    torch: str
    #: requirements as pip reads them
    libraries: tuple[str, ...] = ()
    #: nothing that was uploaded later, as ``2025-12-11``; torch itself aside.  Empty: the newest
    before: str = ""

    @property
    def name(self) -> str:
        """The environment's folder: readable, and different for other content."""
        content = msgspec.json.encode((self, sorted(_own()), sys.version_info[:2]))
        digest = hashlib.sha256(content).hexdigest()[:12]
        return f"torch-{self.torch}-py{sys.version_info.major}.{sys.version_info.minor}-{digest}"


def folder() -> Path:
    """Return where environments are kept: next to the wheels (``OPCHECK_CACHE``), else in the user's cache."""
    named = os.environ.get("OPCHECK_CACHE")
    return (Path(named) if named else Path.home() / ".cache" / "opcheck" / "wheels").parent / (
        "environments"
    )


def interpreter(wanted: Wanted, progress: Callable[[str], None] | None = None) -> str:
    """Return the Python of the environment, which is made if it is not there.

    Raises:
        CaptureError: it cannot be made: no network, no such release for this Python.
    """
    place = require_private(folder()) / wanted.name
    python = _python(place)
    if not (place / _READY).is_file():
        with _lock(place):
            if not (place / _READY).is_file():
                if progress:
                    progress(f"making an environment with torch {wanted.torch}, once")
                _make(place, wanted)
    return str(python)


def _python(place: Path) -> Path:
    return (
        place
        / ("Scripts" if os.name == "nt" else "bin")
        / ("python.exe" if os.name == "nt" else "python")
    )


def _make(place: Path, wanted: Wanted) -> None:
    shutil.rmtree(place, ignore_errors=True)
    try:
        for alternatives in _commands(place, wanted):
            _run(alternatives)
        _see_opcheck(place)
    except (_InstallError, OSError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(place, ignore_errors=True)
        libraries = " ".join(f"'{library}'" for library in wanted.libraries)
        raise CaptureError(
            f"no environment with torch {wanted.torch} could be made for Python "
            f"{sys.version_info.major}.{sys.version_info.minor}",
            context=" ".join(str(error).split())[-300:],
            hint=f"with a network run it once, and keep {folder()}; it installs torch=={wanted.torch} "
            f"{libraries}; or leave --exact out",
        ) from error
    (place / _READY).write_bytes(msgspec.json.encode(wanted))


def _commands(place: Path, wanted: Wanted) -> Iterator[list[list[str]]]:
    """Yield the steps; of the alternatives of a step, the first that succeeds counts."""
    torch = f"torch=={wanted.torch}"
    # Inductor builds its C++ by setuptools, which torch names for newer Pythons alone.
    libraries = [torch, "numpy", "setuptools", *wanted.libraries]
    python = str(_python(place))
    uv = _uv()
    if not uv:
        yield [[sys.executable, "-m", "venv", str(place)]]
        pip = [python, "-m", "pip", "install", "--quiet", "--no-input"]
        yield [[*pip, *libraries]]
        yield [[*pip, torch, *_own()]]
        return
    yield [[*uv, "venv", "--quiet", "--no-project", "--python", sys.executable, str(place)]]
    install = [*uv, "pip", "install", "--quiet", "--python", python]
    # The build for CPUs is a tenth of the size, where its own index can be reached; elsewhere than on Linux it is the
    # usual one.
    small = [[*install, "--torch-backend", "cpu", torch]] if sys.platform == "linux" else []
    yield [*small, [*install, torch]]
    newest = ["--exclude-newer", wanted.before] if wanted.before else []
    yield [[*install, *newest, *libraries]]
    # opcheck's own may be younger than the release.
    yield [[*install, torch, *_own()]]


def _uv() -> list[str]:
    """Return the command that runs uv; empty where there is none."""
    if importlib.util.find_spec("uv"):
        return [sys.executable, "-m", "uv"]
    found = shutil.which("uv")
    return [found] if found else []


class _InstallError(Exception):
    """An installer failed; the text is the last lines that it wrote."""


def _run(alternatives: Sequence[Sequence[str]]) -> None:
    for number, command in enumerate(alternatives, 1):
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
        )
        if done.returncode == 0:
            return
        if number == len(alternatives):
            lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
            raise _InstallError(" ".join(lines[-3:]) or f"{command[0]} failed")


def _own() -> list[str]:
    """Return opcheck's dependencies at the versions that run it now."""
    try:
        texts = importlib.metadata.requires("opcheck") or []
    except importlib.metadata.PackageNotFoundError:
        texts = []
    requirements = [Requirement(text) for text in texts]
    core = [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    return [f"{r.name}=={importlib.metadata.version(r.name)}" for r in core]


def _see_opcheck(place: Path) -> None:
    """Let the environment import this opcheck, and nothing else of where it is installed."""
    seen = place / "opcheck"
    seen.mkdir()
    # A checkout has the data next to the package, an installed package inside of it.
    for name in ("opcheck", "op_lists", "docs"):
        source = _PACKAGE if name == "opcheck" else _PACKAGE.parent / name
        if source.is_dir() and (name == "opcheck" or not (_PACKAGE / "op_lists").is_dir()):
            (seen / name).symlink_to(source, target_is_directory=True)
    (packages,) = [*place.glob("lib/python*/site-packages"), *place.glob("Lib/site-packages")][:1]
    (packages / "opcheck.pth").write_text(f"{seen}\n", encoding="utf-8")


@contextlib.contextmanager
def _lock(place: Path) -> Iterator[None]:
    """Wait until no other process makes the same environment; the lock ends with the process that has it."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(place.with_name(f"{place.name}.making"), flags, 0o600)
    try:
        while not lock(descriptor):
            time.sleep(_LOOK)
        yield
    finally:
        os.close(descriptor)
