"""Writing down what a child process reads: the files, folders and variables that its result depends on.

An audit hook hears of every file that Python opens, in this process and in forks of it; ``os.environ`` and the one native
reader that models are loaded by (safetensors) are asked as well.  What was heard is appended line by line to a file, so
that a process that is killed has told what it knew.  Two things cannot be told: what another process or a network
said, and what native code reads by itself.  The first is noted as such, of the second the import of a library that does
it; ``opcheck.cache`` keeps no result of either.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.machinery
import importlib.util
import json
import os
import site
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opcheck.data.registrations import data_directory

_OWN = (Path(__file__).resolve().parents[1], data_directory().resolve())
#: What the versions of the installed distributions, of Python and of opcheck tell.
_INSTALLED = tuple(
    str(path) + os.sep
    for path in {
        *_OWN,
        *(
            Path(sysconfig.get_paths()[name])
            for name in ("stdlib", "platstdlib", "purelib", "platlib")
        ),
        *map(Path, [*site.getsitepackages(), site.getusersitepackages()]),
    }
)
#: Facts about the machine, which no model depends on, but for the memory that it has.
_MACHINE = ("/proc/", "/sys/", "/dev/")

#: Events after which nobody knows what a result depends on, and why.
_UNKNOWABLE = {
    "os.exec": "it starts a program",
    "os.posix_spawn": "it starts a program",
    "os.spawn": "it starts a program",
    "os.startfile": "it starts a program",
    "os.system": "it starts a program",
    "subprocess.Popen": "it starts a program",
    "socket.connect": "it uses the network",
    "socket.getaddrinfo": "it uses the network",
    "sqlite3.connect": "it reads a database",
}
#: Modules of Python whose programs tell of the machine alone: ``find_library`` asks ldconfig.
_OF_THE_MACHINE = frozenset({"ctypes.util", "platform"})
#: Libraries whose native code opens files by itself.
_NATIVE_READERS = frozenset(
    {"av", "cv2", "decord", "duckdb", "h5py", "lmdb", "netCDF4", "pyarrow", "sentencepiece"}
    | {"soundfile", "tables", "tensorstore"}
)
_FOLDERS = frozenset({"os.listdir", "os.scandir"})
_WRITES = os.O_WRONLY | os.O_RDWR
_ANEW = os.O_TRUNC | os.O_EXCL
_MODULES = tuple(importlib.machinery.all_suffixes())


def digest(content: bytes | str) -> str:
    """The first 32 hexadecimal digits of its SHA-256."""
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()[:32]


def names_in(folder: str, *, modules: bool) -> str:
    """The digest of the names in a folder; ``modules``: of what can be imported from there alone.

    Raises:
        OSError: it cannot be listed.
    """
    names = sorted(os.listdir(folder))  # noqa: PTH208  (as the events say it)
    if modules:
        names = [name for name in names if _importable(folder, name)]
    return digest("\0".join(names))


def _importable(folder: str, name: str) -> bool:
    if name.endswith((*_MODULES, ".dist-info", ".egg-info")):
        return True
    return "." not in name and os.path.isfile(os.path.join(folder, name, "__init__.py"))  # noqa: PTH113, PTH118


def note_down(path: str) -> None:
    """From here on append to the file at ``path`` what this process reads; it cannot be taken back."""
    notes = _Notes(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    notes.write("start")
    notes.watch_environment()
    notes.watch_safetensors()
    sys.addaudithook(notes.hear)


class _Notes:
    """The lines, each once: ``["file", path, mtime_ns, size]``, ``["environment", name, digest]`` ..."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._told: set[tuple[object, ...]] = set()
        self._written: set[str] = set()
        self._busy = False

    def write(self, *line: object) -> None:
        """Append a line, if it is new."""
        if line not in self._told:
            self._told.add(line)
            with contextlib.suppress(
                OSError
            ):  # user code may have closed it, and our pipes with it
                os.write(self._descriptor, (json.dumps(line) + "\n").encode())

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook: an exception here would stop the program."""
        if self._busy or event not in _HEARD:
            return
        self._busy = True
        try:
            self._note(event, arguments)
        except Exception as error:  # noqa: BLE001  (it runs inside user code)
            self.write("unknowable", f"what it opens could not be noted: {type(error).__name__}")
        finally:
            self._busy = False

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _UNKNOWABLE:
            if not _asks_about_the_machine():
                self.write("unknowable", _UNKNOWABLE[event])
        elif event == "open":
            self._opened(*arguments)
        elif event in _FOLDERS:
            self._listed(arguments[0])
        elif event == "ctypes.dlopen":
            if arguments[0] and os.sep in os.fspath(arguments[0]):
                self.file(arguments[0])
        elif event == "import":
            name, path = arguments[0], arguments[1]
            if str(name).partition(".")[0] in _NATIVE_READERS:
                self.write("unknowable", f"{str(name).partition('.')[0]} reads files by itself")
            if path:  # a module of native code
                self.file(path)

    def _opened(self, path: Any, _mode: object, flags: int) -> None:
        if isinstance(path, int) or path is None:
            return
        if flags & _WRITES:
            whole = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
            # Of files: torch 2.15 opens the null device to read and write as it is imported.
            if flags & os.O_RDWR and not flags & _ANEW and os.path.isfile(whole):  # noqa: PTH113
                self.write("unknowable", "it changes a file")
            self._written.add(whole)
            return
        self.file(path)

    def file(self, path: Any) -> None:
        """A file that is read; of compiled Python its source."""
        whole = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
        if whole.startswith((*_INSTALLED, *_MACHINE)) or whole in self._written:
            return
        if whole.endswith(".pyc"):
            try:
                source = importlib.util.source_from_cache(whole)
            except ValueError:
                source = whole
            whole = source if os.path.exists(source) else whole  # noqa: PTH110
        try:
            result = os.stat(whole)  # noqa: PTH116
        except OSError:
            self.write("absent", whole)
            return
        self.write("file", whole, result.st_mtime_ns, result.st_size)

    def _listed(self, path: Any) -> None:
        if isinstance(path, int):
            self.write("unknowable", "it lists a folder by its descriptor")
            return
        whole = os.path.abspath(os.fsdecode(path or "."))  # noqa: PTH100
        if f"{whole}{os.sep}".startswith((*_INSTALLED, *_MACHINE)):
            return
        modules = _looks_for_modules()
        try:
            self.write("modules" if modules else "folder", whole, names_in(whole, modules=modules))
        except OSError:
            self.write("absent", whole)

    def watch_environment(self) -> None:
        """Note each variable that is asked for, and what it was before anything was set here."""
        before = dict(os.environ)
        kind: Any = type(os.environ)
        get = kind.__getitem__

        def noted(environ: Any, name: Any) -> Any:
            if isinstance(name, str) and not _looks_through_all():
                value = before.get(name)
                self.write("environment", name, None if value is None else digest(value))
            return get(environ, name)

        kind.__getitem__ = noted

    def watch_safetensors(self) -> None:
        """Note the files that safetensors opens, which it does without Python."""
        if importlib.util.find_spec("safetensors") is None:
            return
        module: Any = importlib.import_module("safetensors")
        opened: Callable[..., Any] = module.safe_open

        def safe_open(filename: Any, *arguments: Any, **options: Any) -> Any:
            self.file(filename)
            return opened(filename, *arguments, **options)

        module.safe_open = safe_open


def _looks_for_modules() -> bool:
    """Whether the folder is being listed by Python's own import system."""
    frame: Any = sys._getframe(4)  # who called what raised the event
    file = frame.f_code.co_filename
    return "importlib" in file and file.startswith(("<frozen", *_INSTALLED))


def _asks_about_the_machine() -> bool:
    """Whether one of the modules that do nothing else has started it."""
    frame: Any = sys._getframe(3)  # who raised the event
    while frame is not None and frame.f_globals.get("__name__") == "subprocess":
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") in _OF_THE_MACHINE


def _looks_through_all() -> bool:
    """Whether an installed library goes through all variables, as tqdm does for those that are its own."""
    frame: Any = sys._getframe(2)  # who asks for the variable
    code = frame.f_code
    if code.co_name != "__iter__" or "_collections_abc" not in code.co_filename:
        return False
    return frame.f_back is not None and frame.f_back.f_code.co_filename.startswith(_INSTALLED)


_HEARD = frozenset({*_UNKNOWABLE, *_FOLDERS, "open", "ctypes.dlopen", "import"})
