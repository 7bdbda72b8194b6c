"""The wheel file: its download, its metadata, and the files that are unpacked from it."""

import ast
import contextlib
import hashlib
import lzma
import os
import re
import struct
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from datetime import date
from pathlib import Path

import msgspec
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from opcheck.common import documents
from opcheck.common.caches import require_private
from opcheck.common.errors import OpListError, UsageError
from opcheck.common.files import is_out_of_space
from opcheck.data.wheels.damage import damage
from opcheck.worker import process

#: An unpacked wheel may take this many times its size, plus these bytes: torch's wheels take four times their size.
MOST_TIMES, MOST_BESIDE = 50, 64 << 20
#: The errors that zipfile, its decompressors, ast and the readers of members raise for damaged bytes.
#: RuntimeError: a member is encrypted, or compressed in an unknown way; ValueError: a date of zeros, no UTF-8.
_OF_FORMATS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error)
_OF_PYTHON = (EOFError, LookupError, SyntaxError, RuntimeError, ValueError, ArithmeticError, MemoryError)
_ERRORS = (*_OF_FORMATS, *_OF_PYTHON, OSError)


@contextlib.contextmanager
def report_damage(path: Path, hint: str) -> Iterator[None]:
    """Report an error that the block raises over the bytes of a wheel as damage of the wheel.

    Raises:
        OpListError: it is damaged.
    """
    try:
        yield
    except _ERRORS as error:
        if is_out_of_space(error):  # what the block writes
            raise
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise OpListError("the wheel is damaged", context=f"{path.name}: {reason}", hint=hint) from error


@contextlib.contextmanager
def open_archive(path: Path, hint: str) -> Iterator[zipfile.ZipFile]:
    """Open the archive of a wheel, so that the block can read its members.

    Raises:
        OpListError: the wheel is damaged, or is far larger unpacked than any real wheel.
    """
    with report_damage(path, hint), documents.open_file(path) as file, documents.open_zip(file) as wheel:
        size = sum(member.file_size for member in wheel.infolist())
        if size > MOST_TIMES * path.stat().st_size + MOST_BESIDE:
            message = "the wheel is no wheel: unpacked it takes far more than any does"
            raise OpListError(message, context=f"{path.name}: {size:,} bytes", hint=hint)
        yield wheel


LIBRARY = "torch/lib/libtorch_cpu.dylib"
_TORCHGEN = "torchgen/"
_APPLE_SILICON = re.compile(r"macosx_\w+_arm64")
_RELEASE = re.compile(r"\d+\.\d+\.\d+(?:\.dev\d+|(?:a|b|rc)\d+)?")
#: Only the platform of the tag matters: the dispatcher's registrations are the same for every Python.
_PLATFORMS = ("macosx_14_0_arm64", "macosx_11_0_arm64")
#: Newest first; 1.13.1 was built for 3.10 at most.
_PYTHONS = ("311", "310")
_HINT = "give a macOS arm64 wheel of torch, or a release such as 2.13.0"


class WheelMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """A macOS arm64 wheel: its metadata from its file name, its bytes and its ``version.py``."""

    path: Path
    package: str
    version: str
    sha256: str
    built: date
    #: the names that ``version.py`` assigns strings to
    variables: dict[str, str]

    @property
    def commit(self) -> str:
        """The commit that it was built from; empty: it does not say."""
        return self.variables.get("git_version", "")

    def python_sources(self) -> dict[str, str]:
        """Return the text of every Python file of the package, by its path in the wheel."""
        with open_archive(self.path, _HINT) as wheel:
            names = [each for each in wheel.namelist() if each.startswith(f"{self.package}/") and each.endswith(".py")]
            return {name: wheel.read(name).decode("utf-8", "replace") for name in names}

    def unpack(self, to: Path) -> None:
        """Write the library and torchgen, and nothing else, below ``to``.

        Raises:
            OpListError: the archive lacks them or is damaged.
        """
        with open_archive(self.path, _HINT) as wheel:
            names = [n for n in wheel.namelist() if n.startswith(_TORCHGEN) or n == LIBRARY]
            wheel.extractall(to, names)
        for needed in (LIBRARY, _TORCHGEN):
            if not (to / needed).exists():
                raise OpListError(f"the wheel has no {needed}", context=self.path.name, hint=_HINT)


def default_cache() -> Path:
    """Return the folder of downloaded wheels: ``OPCHECK_CACHE``, else a folder of the user's cache."""
    named = os.environ.get("OPCHECK_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "opcheck" / "wheels"


def obtain(source: str, cache: Path, package: str = "torch") -> Path:
    """Return the wheel at a path, or a release's wheel from the cache or by ``pip download``.

    Raises:
        UsageError: neither a release nor an existing wheel.
        OpListError: pip could not get it.
    """
    path = Path(source)
    if path.suffix == ".whl" and path.is_file():
        return path
    if not _RELEASE.fullmatch(source):
        raise UsageError(
            f"neither a {package} release nor a wheel file: {source!r}",
            hint=_HINT if package == "torch" else f"name all three numbers: {package}==X.Y.Z",
        )
    # Kernels and Inductor's Python are run out of it.
    require_private(cache, "give a wheel's path, or name another folder in OPCHECK_CACHE")
    problem = ""
    if wheel := _find_cached(source, cache, package):
        return wheel
    for python in _PYTHONS:
        # pip leaves a part of the file where the disk is full or a signal ends it.
        with tempfile.TemporaryDirectory(prefix=".download-", dir=cache) as folder:
            problem = _download(source, Path(folder), python, package)
            wheel = _find_cached(source, Path(folder), package)
            if wheel and not problem:
                return wheel.rename(cache / wheel.name)
    raise damage("no_wheel", problem, package=package, source=source)


#: Where PyTorch publishes its nightly builds; OPCHECK_NIGHTLY_INDEX names a mirror.
_NIGHTLY_INDEX = "https://download.pytorch.org/whl/nightly/cpu"


def obtain_nightly(cache: Path) -> Path:
    """Download the newest nightly wheel of torch, and return its path.

    Raises:
        OpListError: pip could not get it.
    """
    require_private(cache, "name another folder in OPCHECK_CACHE")
    index = os.environ.get("OPCHECK_NIGHTLY_INDEX", _NIGHTLY_INDEX)
    problem = ""
    for python in _PYTHONS:
        with tempfile.TemporaryDirectory(prefix=".nightly-", dir=cache) as folder:
            problem = _download("", Path(folder), python, "torch", "--pre", "--index-url", index)
            for wheel in () if problem else Path(folder).glob("torch-*_arm64.whl"):
                return wheel.rename(cache / wheel.name)
    raise damage("no_nightly", problem)


def _find_cached(release: str, cache: Path, package: str) -> Path | None:
    # Sorted: the choice among several builds of a release must not depend on the folder's order.
    return max(sorted(cache.glob(f"{package}-{release}-*_arm64.whl")), default=None)


def _download(release: str, folder: Path, python: str, package: str, *more: str) -> str:
    """Let pip download a wheel; return its last line if it failed."""
    command = process.python("-m", "pip", "download", "--no-deps", "--only-binary=:all:")
    command += [part for platform in _PLATFORMS for part in ("--platform", platform)]
    command += ["--python-version", python, "--implementation", "cp", "--abi", f"cp{python}"]
    command += [f"{package}=={release}" if release else package, "--dest", str(folder), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stderr.strip().splitlines() or ["pip failed"])[-1] if done.returncode else ""


def read_archive(path: Path) -> WheelMetadata:
    """Check that the file is a macOS arm64 wheel of torch, and read its metadata.

    Raises:
        OpListError: it is not, or it is damaged.
    """
    about = read_metadata(path, ("torch",), "torch: MPS exists on Apple silicon only", _HINT)
    if about.variables.get("__version__") != about.version or "git_version" not in about.variables:
        message = "torch/version.py disagrees with the wheel's file name"
        raise OpListError(message, context=f"{path.name}: {about.variables.get('__version__')}", hint=_HINT)
    return about


def read_metadata(path: Path, packages: Collection[str], what: str, hint: str) -> WheelMetadata:
    """Check that the file is a macOS arm64 wheel of one of the packages, and read its metadata.

    Raises:
        OpListError: it is not, or it is damaged.
    """
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise OpListError("not a wheel's file name", context=str(error), hint=hint) from error
    platforms = sorted(tag.platform for tag in tags)
    if name not in packages or not all(map(_APPLE_SILICON.fullmatch, platforms)):
        raise OpListError(
            f"not a macOS arm64 wheel of {what}", context=f"{path.name} is for {', '.join(platforms)}", hint=hint
        )
    with open_archive(path, hint) as wheel:
        return WheelMetadata(
            path=path,
            package=name,
            version=str(version),
            sha256=hashlib.sha256(documents.read(path, documents.MOST_LARGE)).hexdigest(),
            built=date(*max(info.date_time for info in wheel.infolist())[:3]),
            variables=dict(_assignments(wheel.read(f"{name}/version.py").decode())),
        )


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    """Return the names that a Python file assigns constant strings to, with the strings."""
    for node in ast.parse(text).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value))):
                yield name, value
