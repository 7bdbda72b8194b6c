"""Makes Python environments with other versions of torch and of libraries, once each, in a cache.

An environment has the interpreter's own Python version and sees this opcheck, whatever else is installed.
uv makes it where it is there: it installs what was released with a torch, by a date; pip takes the newest that fits.
"""

import contextlib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from packaging.requirements import Requirement

from opcheck.common import documents
from opcheck.common.caches import require_private
from opcheck.common.errors import CaptureError
from opcheck.common.files import write_text
from opcheck.common.versions import Version
from opcheck.model.records import Record
from opcheck.worker.platform import lock

#: Seconds that a step of making an environment may take.
MOST_SECONDS = 3600.0
_LOOK = 1.0
_PACKAGE = Path(__file__).parents[1]
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
#: What an environment has when it is complete: its description.
_READY = "opcheck-environment.json"


_Kind = TypeVar("_Kind", "Wanted", "LockedEnvironment")


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
        return f"torch-{self.torch}-py{_PYTHON}-{_digest((self, sorted(_own()), sys.version_info[:2]), 12)}"


def folder() -> Path:
    """Return where environments are kept: next to the wheels (``OPCHECK_CACHE``), else in the user's cache."""
    named = os.environ.get("OPCHECK_CACHE")
    return (Path(named) if named else Path.home() / ".cache" / "opcheck" / "wheels").parent / ("environments")


def interpreter(wanted: Wanted, progress: Callable[[str], None] | None = None) -> str:
    """Return the Python of the environment, which is made if it is not there.

    Raises:
        CaptureError: it cannot be made: no network, no such release for this Python.
    """
    libraries = " ".join(f"'{name}'" for name in wanted.libraries)
    hint = f"it installs torch=={wanted.torch} {libraries}; or leave --exact out"
    return _obtain(wanted, _commands, f"torch {wanted.torch}", hint, progress)


class LockedEnvironment(Record, frozen=True, kw_only=True):
    """The packages of an environment, each at one version: the lock that it is kept by."""

    packages: tuple[str, ...]

    @property
    def name(self) -> str:
        """The environment's folder: equal for requirements that come to the same versions."""
        return f"locked-{_digest((self, str(_PACKAGE), sys.version_info[:2]), 16)}"


def find_lock(libraries: Sequence[str]) -> LockedEnvironment | None:
    """Return the lock that these requirements came to before, with the torch of this environment; None: never."""
    file = _lock_file(libraries)
    try:
        return msgspec.json.decode(documents.read(file), type=LockedEnvironment)
    except (OSError, documents.DocumentError, msgspec.DecodeError):
        return None


def resolve(libraries: Sequence[str]) -> LockedEnvironment:
    """Return the versions that requirements come to with the torch of this environment; later calls return the same.

    Raises:
        CaptureError: uv is missing, or finds no versions.
    """
    if lock := find_lock(libraries):
        return lock
    uv = _uv() or ["uv"]
    try:
        resolving = [*uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "-"]
        resolving += ["--python-version", _PYTHON]
        rest = ["numpy", "setuptools", *libraries, *_own()]
        public = distribution_version("torch").partition("+")[0]
        text = _run(
            [resolving, [*resolving, "--torch-backend", "cpu"], resolving],
            inputs=["\n".join([f"torch=={torch}", *rest]) for torch in (distribution_version("torch"), public, public)],
        )
    except (_InstallError, OSError, subprocess.TimeoutExpired) as error:
        raise CaptureError(
            f"no versions of {', '.join(libraries)} fit this torch",
            context=" ".join(str(error).split())[-300:],
            hint="pip install 'opcheck[exact]' brings uv; it needs the package index once",
        ) from error
    lines = (line.strip() for line in text.splitlines())
    lock = LockedEnvironment(packages=tuple(sorted(line for line in lines if "==" in line)))
    file = _lock_file(libraries)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, msgspec.json.encode(lock).decode())
    return lock


def locked_interpreter(packages: tuple[str, ...], progress: Callable[[str], None] | None = None) -> str:
    """Return the Python of the environment with these packages, which is made if it is not there.

    Raises:
        CaptureError: it cannot be made.
    """
    about = next((p for p in packages if p.startswith("transformers==")), "other libraries")
    hint = "the gate resolves the lock again after its folder locks is deleted"
    return _obtain(LockedEnvironment(packages=packages), _locked_commands, about, hint, progress)


def _locked_commands(place: Path, wanted: LockedEnvironment) -> Iterator[list[list[str]]]:
    uv = _uv()
    yield [[*uv, "venv", "--quiet", "--no-project", "--python", sys.executable, str(place)]]
    install = [*uv, "pip", "install", "--quiet", "--no-deps", "--python", str(_python(place))]
    yield [[*install, *wanted.packages], [*install, "--torch-backend", "cpu", *wanted.packages]]


def _lock_file(libraries: Sequence[str]) -> Path:
    content = (sorted(libraries), distribution_version("torch"), sorted(_own()), sys.version_info[:2])
    return require_private(folder()) / "locks" / f"{_digest(content, 16)}.json"


def _digest(content: object, length: int) -> str:
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:length]


def _obtain(
    wanted: _Kind,
    commands: Callable[[Path, _Kind], Iterator[list[list[str]]]],
    about: str,
    hint: str,
    progress: Callable[[str], None] | None,
) -> str:
    place = require_private(folder()) / wanted.name
    if not (place / _READY).is_file():
        with _lock(place):
            if not (place / _READY).is_file():
                if progress:
                    progress(f"making an environment with {about}, once")
                shutil.rmtree(place, ignore_errors=True)
                try:
                    for alternatives in commands(place, wanted):
                        _run(alternatives)
                    _see_opcheck(place)
                except (_InstallError, OSError, subprocess.TimeoutExpired) as error:
                    shutil.rmtree(place, ignore_errors=True)
                    raise CaptureError(
                        f"no environment with {about} could be made for Python {_PYTHON}",
                        context=" ".join(str(error).split())[-300:],
                        hint=f"with a network run it once, and keep {folder()}; {hint}",
                    ) from error
                (place / _READY).write_bytes(msgspec.json.encode(wanted))
    return str(_python(place))


def _python(place: Path) -> Path:
    return place / ("Scripts" if os.name == "nt" else "bin") / ("python.exe" if os.name == "nt" else "python")


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


def _run(alternatives: Sequence[Sequence[str]], inputs: Sequence[str] = ()) -> str:
    """Run commands in turn until one succeeds, each with its own input, and return what that wrote."""
    # Where variables of pip name an index, those of uv name it too.
    index = {name: os.environ[of_pip] for name, of_pip in _SETTINGS.items() if os.environ.get(of_pip)}
    for number, command in enumerate(alternatives, 1):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=MOST_SECONDS,
            env={**index, **os.environ},
            input=inputs[number - 1] if inputs else None,
        )
        if done.returncode == 0:
            break
        if number == len(alternatives):
            lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
            raise _InstallError(" ".join(lines[-3:]) or f"{command[0]} failed")
    return done.stdout


#: uv reads no setting of pip's.
_SETTINGS = {
    "UV_DEFAULT_INDEX": "PIP_INDEX_URL",
    "UV_EXTRA_INDEX_URL": "PIP_EXTRA_INDEX_URL",
    "UV_FIND_LINKS": "PIP_FIND_LINKS",
}


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


# -- Checks that the installed torch can run the simulator --


#: The oldest release that was tested; tracing/torch_private has what the simulator takes from torch.
OLDEST = Version(2, 8)


def distribution_version(name: str) -> str:
    """Return the version of an installed distribution, without importing it; empty where there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def require() -> None:
    """Import torch.

    Raises:
        CaptureError: there is none, it cannot be imported, or it is older than the simulation needs.
    """
    context = f"the Python that runs opcheck: {sys.executable}"
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        raise CaptureError(
            "torch is not installed: a model cannot be run"
            if missing
            else f"the installed torch cannot be imported: {' '.join(str(error).split())}",
            context=context,
            hint="pip install 'opcheck[torch]'; opcheck op, scan, doctor and matrix need no torch",
        ) from error
    version = str(torch.__version__)
    if Version.parse(version) < OLDEST:
        raise CaptureError(
            f"the installed torch {version} is too old: a model is run with torch {OLDEST} or newer",
            context=context,
            hint=f"pip install 'torch>={OLDEST}'; --torch still chooses the release that is judged",
        )
