"""Reports kept from one run to the next: found again only where all that they depend on is as it was.

The key of an entry is what is known beforehand: the request and its target, opcheck's own source
and op lists, Python, the installed distributions, the variables that native code reads.  In the
entry stands what the capture was seen to read (worker/dependency_tracking.py).  An entry is found
only if all that is as it was, and if it is not damaged.  A report is not kept if its run did not
come to its end, or if it depends on something that cannot be observed (another program, the
network, a database).  Writing is whole or not at all, so that two runs at once do each other no
harm.
"""

from __future__ import annotations

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

from opcheck.capture.parent import variables
from opcheck.capture.request import CaptureRequest
from opcheck.common import documents
from opcheck.common.documents import DocumentError
from opcheck.common.files import replaced
from opcheck.common.tool import TOOL
from opcheck.data.registrations import data_directory
from opcheck.model.records import Record, Report
from opcheck.worker.dependency_tracking import (
    Dependencies,
    collect,
    digest,
    file_digest,
    unchanged,
)

#: A change of what is kept, or of how, is another version: older entries are not found.
_VERSION = "opcheck-cache/3"
_OWN = Path(__file__).parents[1]
#: What an entry begins with: the SHA-256 of the rest.
_CHECKSUM = 32
#: The names of entries, and of what is not an entry yet.
_OWN_NAME = re.compile(
    r"[0-9a-f]{8,64}\.msgpack|\.[0-9a-f]{8,64}\.msgpack\.[0-9a-f]{12}\.tmp|tmp\w{8}\.tmp"
)
#: Days after which an entry that nobody asked for goes.
_KEPT = 30.0

#: Variables that are read where Python does not see it: by torch's C++, by Python as it starts, by the loader.
_NATIVE_VARIABLES = (
    *("ATEN_", "DNNL_", "KMP_", "LANG", "LC_", "LD_", "MKL_", "OMP_", "ONEDNN_"),
    *("PYTHON", "PYTORCH_", "TORCH_"),
)


class _Entry(Record, frozen=True, kw_only=True):
    #: the key that it was made for: a file that was given another name is no entry.
    key: str
    dependencies: Dependencies
    report: Report


_ENTRY = msgspec.msgpack.Decoder(_Entry)


def default_folder() -> Path:
    """Where this platform keeps what can be made again, ``opcheck/project/gate`` below it."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "opcheck" / "gate"


class Cache:
    """The entries of one folder; one that cannot be read or written is as good as empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, request: CaptureRequest) -> Report | None:
        """The report of this request and its target, if all that it depends on is as it was."""
        path = self._path(request)
        try:
            content = documents.read(path, follow=False)
            checksum, body = content[:_CHECKSUM], content[_CHECKSUM:]
            entry = _ENTRY.decode(body) if checksum == _checksum(body) else None
        except (DocumentError, msgspec.MsgspecError, RecursionError):
            return None
        # What the parent sets for the child is part of opcheck's own source, or of the request.
        given = variables(cpu_fallback=request.cpu_fallback)
        if entry is None or entry.key != path.stem or not unchanged(entry.dependencies, given):
            return None
        with contextlib.suppress(OSError):
            os.utime(path, follow_symlinks=False)
        return entry.report

    def keep(self, request: CaptureRequest, report: Report, read: Dependencies) -> None:
        """Keep a report, if it may be kept: it is whole, and what it depends on is known."""
        if read.unknowable or not report.capture.complete:
            return
        path = self._path(request)
        body = msgspec.msgpack.encode(_Entry(key=path.stem, dependencies=read, report=report))
        with contextlib.suppress(OSError):
            self._write(path, _checksum(body) + body)

    def _path(self, request: CaptureRequest) -> Path:
        key = _key(request)
        return self.folder / key[:2] / f"{key}.msgpack"

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent.is_symlink():
            return
        with replaced(path) as file:
            file.write(content)
        _forget_old(path.parent)


def dependencies(notes: Path, request: CaptureRequest) -> Dependencies:
    """What the children that wrote ``notes`` have read, with what the request itself names."""
    named = [file.rpartition("=")[2] for file in request.input_files]
    archive = [request.model] if request.model.endswith(".pt2") else []
    return collect(notes, (*named, *request.checkpoints, *archive))


def _key(request: CaptureRequest) -> str:
    """Of all that is known before a capture."""
    # How long a run that came to its end might have taken, and where its notes went, changes nothing.
    asked = msgspec.structs.replace(request, notes="", time_limit=0.0, memory_limit=0.0)
    given = variables(cpu_fallback=request.cpu_fallback)
    native = sorted(
        (name, value)
        for name, value in os.environ.items()
        if name.startswith(_NATIVE_VARIABLES) and name not in given
    )
    parts = [
        _VERSION,
        str(Path.cwd()),
        msgspec.json.encode(asked).decode(),
        msgspec.json.encode(native).decode(),
        *_process_parts(),
    ]
    return digest("\0".join(parts))


@functools.cache
def _process_parts() -> tuple[str, ...]:
    return (
        TOOL,
        _own_digest(),
        f"{sys.executable} {sys.version} {platform.platform()}",
        _installed_digest(),
    )


def _own_digest() -> str:
    """Of opcheck's source and its data."""
    data = data_directory()
    files = [path for root in (_OWN, data) for path in root.rglob("*") if _counts(path)]
    hasher = hashlib.sha256()
    for path in sorted(files):
        hasher.update(f"{path}\0{file_digest(str(path))}\0".encode())
    return hasher.hexdigest()


def _counts(path: Path) -> bool:
    return path.suffix in {".py", ".json", ".yaml"} and path.is_file()


def _installed_digest() -> str:
    """Of the names and versions of the installed distributions, and of what else is put on the path."""
    paths = sysconfig.get_paths()
    folders = {paths["purelib"], paths["platlib"], *site.getsitepackages()}
    entries = []
    for folder in sorted({*folders, site.getusersitepackages()}):
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder)):  # noqa: PTH208  (thousands of names)
                if name.endswith((".dist-info", ".egg-info", ".egg-link")):
                    entries.append(name)
                elif name.endswith(".pth"):
                    entries.append(f"{name}{file_digest(str(Path(folder) / name))}")
    return digest("\0".join(entries))


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def _forget_old(folder: Path) -> None:
    """Remove what nobody has asked for in a month, and what an interrupted run has left."""
    before = time.time() - _KEPT * 86400
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if _OWN_NAME.fullmatch(path.name) and path.lstat().st_mtime < before:
                path.unlink()
