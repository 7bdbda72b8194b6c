"""Tracks the files, folders and variables that a child process reads and its result depends on.

The child records them (``note_down``), its parent collects them (``collect``), and a later run
checks that they are unchanged (``is_unchanged``).  An audit hook sees every file that Python opens, in the
child and in forks of it; ``os.environ`` and the one native reader that models are loaded by
(safetensors) are watched as well.  The child appends line by line to a file, so that what it read
is known even if it is killed.  Two things cannot be observed: what another process or a network
answered, and what native code reads by itself.  The first is noted as such, of the second the
import of a library that does it; no result that depends on either is kept.
"""

import contextlib
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import json
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import msgspec

from opcheck.common import documents
from opcheck.model.records import Record
from opcheck.worker.platform import MACHINE_FILES, MARK
from opcheck.worker.protocol import Notes

#: Folders whose contents follow from the versions of the installed distributions, of Python and of opcheck.
_INSTALLED = tuple(
    str(path) + os.sep
    for path in {
        Path(__file__).resolve().parents[1],
        *(Path(sysconfig.get_paths()[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *map(Path, [*site.getsitepackages(), site.getusersitepackages()]),
    }
)

#: Events of Python that start a program.
_STARTS = ("os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "os.system", "subprocess.Popen")
#: Events after which the dependencies of a result cannot be observed, and why.
_UNOBSERVABLE = {
    **dict.fromkeys(_STARTS, "it starts a program"),
    **dict.fromkeys(("socket.connect", "socket.getaddrinfo"), "it uses the network"),
    "sqlite3.connect": "it reads a database",
}
#: Modules of Python that start programs to ask about the machine alone: ``find_library`` runs ldconfig.
_OF_THE_MACHINE = frozenset({"ctypes.util", "platform"})
#: Libraries whose native code opens files by itself.
_NATIVE_READERS = frozenset(
    {"av", "cv2", "decord", "duckdb", "h5py", "lmdb", "netCDF4", "pyarrow", "sentencepiece"}
    | {"soundfile", "tables", "tensorstore"}
)
_FOLDERS = frozenset({"os.listdir", "os.scandir"})
_OBSERVED = frozenset({*_UNOBSERVABLE, *_FOLDERS, "open", "ctypes.dlopen", "import"})
_WRITES = os.O_WRONLY | os.O_RDWR
_ANEW = os.O_TRUNC | os.O_EXCL
#: A line of the notes: its kind, and what it is about.
_LINE = msgspec.json.Decoder(Annotated[list[str | int | None], msgspec.Meta(min_length=1)])
#: What replaces notes that lack a line.
_LOST = b'["unknowable", "what it reads could not be noted"]\n'
_MODULES = tuple(importlib.machinery.all_suffixes())


class Dependencies(Record, frozen=True, kw_only=True):
    """The dependencies of a result."""

    #: Kind (a key of ``_NOW``), path or name, and the digest of its content; None: it did not exist.
    seen: tuple[tuple[str, str, str | None], ...] = ()
    #: Why further dependencies of the result cannot be known; empty: all are known.
    unknowable: str = ""


def digest(content: bytes | str) -> str:
    """Return the first 32 hexadecimal digits of a text's SHA-256."""
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()[:32]


def file_digest(path: str) -> str | None:
    """Return the digest of a file's content; None: there is no such file.

    Raises:
        OSError: there is, and it cannot be read.
    """
    if not os.path.lexists(path):
        return None
    whole = hashlib.sha256()
    with documents.open_file(path) as file:
        while part := file.read(1 << 20):
            whole.update(part)
    return whole.hexdigest()[:32]


def names_in(folder: str, *, modules: bool) -> str:
    """Return the digest of the names in a folder; with ``modules`` only of names that can be imported from there.

    Raises:
        OSError: it cannot be listed.
    """
    names = sorted(os.listdir(folder))
    if modules:
        names = [name for name in names if _importable(folder, name)]
    return digest("\0".join(names))


def _importable(folder: str, name: str) -> bool:
    if name.endswith((*_MODULES, ".dist-info", ".egg-info")):
        return True
    return "." not in name and os.path.isfile(os.path.join(folder, name, "__init__.py"))


def _variable(name: str) -> str | None:
    value = os.environ.get(name)
    return None if value is None else digest(value)


#: Functions that return the present digest of a dependency, by its kind.
_NOW: dict[str, Callable[[str], str | None]] = {
    "file": file_digest,
    "folder": functools.partial(names_in, modules=False),
    "modules": functools.partial(names_in, modules=True),
    "environment": _variable,
}


def is_unchanged(dependencies: Dependencies, given: Container[str]) -> bool:
    """Return whether all dependencies are unchanged; variables in ``given`` are set for each child."""
    try:
        seen = (each for each in dependencies.seen if each[0] != "environment" or each[1] not in given)
        return all(_NOW[kind](name) == was for kind, name, was in seen)
    except (OSError, KeyError):
        return False


def collect(notes: Path, files: Iterable[str]) -> Dependencies:
    """Return the dependencies that processes recorded in ``notes``, together with ``files``."""
    try:
        lines = [_LINE.decode(line) for line in documents.read(notes).splitlines()]
    except (OSError, RecursionError, msgspec.MsgspecError):
        lines = []
    problems = [] if ["start"] in lines else ["the capture did not say what it reads"]
    problems += [str(line[-1]) for line in lines if line[0] == "unknowable"]
    lines += [["file", str(Path(file).absolute())] for file in files]
    seen: dict[tuple[str, str], str | None] = {}
    for kind, *about in lines:
        if kind not in _NOW:
            continue
        try:
            name, *was = about
            file = Path(name).name  # a TypeError for a value that is no text
            value, same = _file_seen(name, was) if kind == "file" and was != [None] else (*was, True)
            if not same or seen.setdefault((kind, name), value) != value:
                problems.append(f"{file} was changed meanwhile")
        except (TypeError, ValueError):  # user code can write to the file
            problems.append("what it reads was not noted by opcheck alone")
    sorted_seen = tuple((*key, value) for key, value in sorted(seen.items()))
    return Dependencies(seen=sorted_seen, unknowable=next(iter(problems), ""))


def _file_seen(path: str, stat: list[int]) -> tuple[str | None, bool]:
    """Return a file's digest, and whether its time and size are those of the moment when it was opened."""
    try:
        now = Path(path).stat()
        return file_digest(path), stat in ([], [now.st_mtime_ns, now.st_size])
    except OSError:
        return None, False


def note_down(notes: Notes) -> None:
    """Start to append to a file what this process reads; this cannot be undone."""
    writer = _Writer(notes)
    writer.write("start")
    writer.watch_environment()
    writer.watch_safetensors()
    sys.addaudithook(writer.hook)


class _Writer:
    """Writes each line once: ``["file", path, mtime_ns, size]``, ``["environment", name, digest]`` ..."""

    def __init__(self, notes: Notes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._path = notes.path
        self._descriptor = os.open(notes.path, flags, 0o600)
        self._file = os.fstat(self._descriptor)
        self._ignored = (*_INSTALLED, *MACHINE_FILES, *(folder + os.sep for folder in notes.known))
        self._lines: set[tuple[object, ...]] = set()
        self._written: set[str] = set()
        self._busy = False

    def write(self, *line: object) -> None:
        """Append a line, if it is new."""
        if line in self._lines:
            return
        self._lines.add(line)
        content = (json.dumps(line) + "\n").encode()
        # User code may have closed the descriptor, together with those of the answers, or the disk may be full.
        with contextlib.suppress(OSError):
            is_ours = os.path.samestat(os.fstat(self._descriptor), self._file)
            if is_ours and os.write(self._descriptor, content) == len(content):
                return
        with contextlib.suppress(OSError):
            os.truncate(self._path, 0)
            with open(self._path, "ab") as file:
                file.write(_LOST)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Handle an audit event; an exception here would stop the program."""
        if self._busy or event not in _OBSERVED:
            return
        self._busy = True
        try:
            self._note(event, arguments)
        except Exception as error:  # noqa: BLE001  (it runs inside user code)
            self.write("unknowable", f"what it opens could not be noted: {type(error).__name__}")
        finally:
            self._busy = False

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _UNOBSERVABLE:
            if not _asks_about_the_machine():
                self.write("unknowable", _UNOBSERVABLE[event])
        elif event == "open":
            self._note_opened(*arguments)
        elif event in _FOLDERS:
            self._note_listed(arguments[0])
        elif event == "ctypes.dlopen":
            if arguments[0] and os.sep in os.fspath(arguments[0]):
                self.file(arguments[0])
        elif event == "import":
            package, path = str(arguments[0]).partition(".")[0], arguments[1]
            if package in _NATIVE_READERS:
                self.write("unknowable", f"{package} reads files by itself")
            if path:  # a module of native code
                self.file(path)

    def _note_opened(self, path: Any, _mode: object, flags: int) -> None:
        if isinstance(path, int) or path is None:
            return
        if flags & _WRITES:
            whole = os.path.abspath(os.fsdecode(path))
            # Of files: torch 2.15 opens the null device to read and write as it is imported.
            if flags & os.O_RDWR and not flags & _ANEW and os.path.isfile(whole):
                self.write("unknowable", "it changes a file")
            self._written.add(whole)
            return
        self.file(path)

    def file(self, path: Any) -> None:
        """Record a file that is read; for compiled Python its source."""
        whole = os.path.abspath(os.fsdecode(path))
        if whole.startswith(self._ignored) or whole in self._written:
            return
        if whole.endswith(".pyc"):
            with contextlib.suppress(ValueError):
                source = importlib.util.source_from_cache(whole)
                whole = source if os.path.exists(source) else whole
        try:
            result = os.stat(whole)
        except OSError:
            self.write("file", whole, None)
            return
        self.write("file", whole, result.st_mtime_ns, result.st_size)

    def _note_listed(self, path: Any) -> None:
        if isinstance(path, int):
            self.write("unknowable", "it lists a folder by its descriptor")
            return
        whole = os.path.abspath(os.fsdecode(path or "."))
        if f"{whole}{os.sep}".startswith(self._ignored):
            return
        # Whether Python's import system or importlib.metadata lists the folder.
        frame = _caller()
        file = "" if frame is None else frame.f_code.co_filename
        modules = "importlib" in file and file.startswith(("<frozen", *_INSTALLED))
        try:
            self.write("modules" if modules else "folder", whole, names_in(whole, modules=modules))
        except OSError:
            self.write("file", whole, None)

    def watch_environment(self) -> None:
        """Record each variable that is read, with its value before this process set any."""
        before = dict(os.environ)
        kind: Any = type(os.environ)
        get = kind.__getitem__

        def note_variable(environ: Any, name: Any) -> Any:
            # The mark is another in each run; a program that copies all variables reads it, too.
            if isinstance(name, str) and name != MARK and not _looks_through_all():
                value = before.get(name)
                self.write("environment", name, None if value is None else digest(value))
            return get(environ, name)

        kind.__getitem__ = note_variable

    def watch_safetensors(self) -> None:
        """Record the files that safetensors opens by native code."""
        if importlib.util.find_spec("safetensors") is None:
            return
        module: Any = importlib.import_module("safetensors")
        opened: Callable[..., Any] = module.safe_open

        def safe_open(filename: Any, *arguments: Any, **options: Any) -> Any:
            self.file(filename)
            return opened(filename, *arguments, **options)

        module.safe_open = safe_open


def _asks_about_the_machine() -> bool:
    """Return whether the program is started by a module that only queries the machine."""
    frame = _caller(besides="subprocess")
    return frame is not None and frame.f_globals.get("__name__") in _OF_THE_MACHINE


def _looks_through_all() -> bool:
    """Return whether an installed library iterates over all variables, as tqdm does to find its own."""
    frame = _caller()
    if frame is None or frame.f_code.co_name != "__iter__" or frame.f_back is None:
        return False
    library = frame.f_back.f_code.co_filename
    return "_collections_abc" in frame.f_code.co_filename and library.startswith(_INSTALLED)


def _caller(besides: str = "") -> FrameType | None:
    """Return the innermost frame that belongs neither to this module nor to the named one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in (__name__, besides):
        frame = frame.f_back
    return frame
