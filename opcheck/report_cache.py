"""A cache of reports between runs: an entry is used only while all its dependencies are unchanged.

The key of an entry covers what is known beforehand: the request and its target, opcheck's own source
and op lists, Python, the installed distributions, the variables that native code reads.  In the
entry is what the capture was observed to read (worker/dependency_tracking.py).  An entry is used
only if all that is as it was, and if this user wrote it here (common/caches.py): a checkout may come with
entries of its own.  A report is not kept if its run did not
come to its end, or if it depends on something that cannot be observed (another program, the
network, a database).  Writes are atomic, so that two runs at once do each other no
harm.
"""

import contextlib
import functools
import hashlib
import os
import platform
import re
import site
import sys
import sysconfig
import time
from pathlib import Path

import msgspec
from msgspec.structs import replace

from opcheck.capture.parent import variables
from opcheck.capture.request import CaptureRequest
from opcheck.common import caches
from opcheck.common.tool import TOOL
from opcheck.data.registrations import data_directory
from opcheck.model.records import Record, Report
from opcheck.worker.dependency_tracking import Dependencies, collect, digest, file_digest, is_unchanged

#: The version of the format: a change of it makes older entries invalid.
_VERSION = "opcheck-cache/4"
_OWN = Path(__file__).parent
#: The names of entries and of temporary files.
_OWN_NAME = re.compile(r"[0-9a-f]{8,64}\.msgpack|\.[0-9a-f]{8,64}\.msgpack\.[0-9a-f]{12}\.tmp|tmp\w{8}\.tmp")
#: Days until an unused entry is deleted.
_KEPT = 30.0

#: Variables that native code reads, which Python cannot observe: torch's C++, Python's start, the loader.
_NATIVE_VARIABLES = (
    *("ATEN_", "DNNL_", "KMP_", "LANG", "LC_", "LD_", "MKL_", "OMP_", "ONEDNN_"),
    *("PYTHON", "PYTORCH_", "TORCH_"),
)


class CachedReport(Record, frozen=True, kw_only=True):
    """A report and what it depends on."""

    dependencies: Dependencies
    report: Report


_ENTRY = msgspec.msgpack.Decoder(CachedReport)


def default_folder() -> Path:
    """Return ``opcheck/gate`` in the folder for caches of this platform."""
    return caches.user_cache() / "gate"


class Cache:
    """The entries of one folder; a folder that cannot be read or written counts as empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, request: CaptureRequest) -> Report | None:
        """Return the cached report of a request and its target if its dependencies are unchanged."""
        entry = self.entry(request)
        return None if entry is None else entry.report

    def entry(self, request: CaptureRequest, about: str = "") -> CachedReport | None:
        """Return the entry of a request and of the other inputs of its report, if its dependencies are unchanged."""
        path = self._path(request, about)
        try:
            body = caches.load(path)
            entry = None if body is None else _ENTRY.decode(body)
        except (msgspec.MsgspecError, RecursionError):
            return None
        # What the parent sets for the child is part of opcheck's own source, or of the request.
        settings = variables(cpu_fallback=request.target.cpu_fallback)
        if entry is None or not is_unchanged(entry.dependencies, settings):
            return None
        with contextlib.suppress(OSError):
            os.utime(path, follow_symlinks=False)
        return entry

    def keep(self, request: CaptureRequest, report: Report, read: Dependencies, about: str = "") -> None:
        """Store a report if it is complete and its dependencies are known."""
        if read.unknowable or not report.capture.complete:
            return
        path = self._path(request, about)
        body = msgspec.msgpack.encode(CachedReport(dependencies=read, report=report))
        with contextlib.suppress(OSError):
            caches.store(path, body)
            _forget_old(path.parent)

    def _path(self, request: CaptureRequest, about: str = "") -> Path:
        key = _key(request, about)
        return self.folder / key[:2] / f"{key}.msgpack"


def dependencies(notes: Path, request: CaptureRequest) -> Dependencies:
    """Return what the children that wrote ``notes`` have read, and the files that the request names."""
    named = [file.rpartition("=")[2] for file in request.input_files]
    archive = [request.model] if request.model.endswith(".pt2") else []
    return collect(notes, (*named, *request.checkpoints, *archive))


def _key(request: CaptureRequest, about: str) -> str:
    """Return the digest of all that is known before a capture."""
    # The time limit and the place of the notes do not change the result of a run that ended by itself.
    asked = replace(request, notes="", time_limit=0.0, memory_limit=0.0)
    settings = variables(cpu_fallback=request.target.cpu_fallback)
    variables_here = sorted(os.environ.items())
    native = [each for each in variables_here if each[0].startswith(_NATIVE_VARIABLES) and each[0] not in settings]
    inputs = (msgspec.json.encode(each).decode() for each in (asked, native))
    parts = (_VERSION, about, str(Path.cwd()), *inputs, *_process_parts())
    return digest("\0".join(parts))


@functools.cache
def _process_parts() -> tuple[str, ...]:
    python = f"{sys.executable} {sys.version} {platform.platform()}"
    return TOOL, _own_digest(), python, _installed_digest()


def _own_digest() -> str:
    """Return the digest of opcheck's source and its data."""
    paths = {path for root in (_OWN, data_directory()) for path in root.rglob("*")}
    hasher = hashlib.sha256()
    for path in sorted(each for each in paths if each.suffix in {".py", ".json", ".yaml"} and each.is_file()):
        hasher.update(f"{path}\0{file_digest(str(path))}\0".encode())
    return hasher.hexdigest()


def _installed_digest() -> str:
    """Return the digest of the installed distributions with their versions, and of the path's .pth files."""
    paths = sysconfig.get_paths()
    folders = {paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()}
    entries = []
    for folder in sorted(folders):
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder)):  # noqa: PTH208  (thousands of names)
                if name.endswith((".dist-info", ".egg-info", ".egg-link")):
                    entries.append(name)
                elif name.endswith(".pth"):
                    entries.append(f"{name}{file_digest(str(Path(folder) / name))}")
    return digest("\0".join(entries))


def _forget_old(folder: Path) -> None:
    """Delete entries that were unused for a month, and the temporary files of interrupted runs."""
    before = time.time() - _KEPT * 86400
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if _OWN_NAME.fullmatch(path.name) and path.lstat().st_mtime < before:
                path.unlink()
