"""A program run in this process as ``python script.py`` or ``python -m module`` would run it.  Imports no torch."""

from __future__ import annotations

import builtins
import contextlib
import os
import runpy
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

#: torch's own files that stand between the program and the emulation, and between its parts.
_OVERRIDES = str(Path("torch", "overrides.py"))
_BETWEEN = (
    str(Path("torch", "_ops.py")),
    str(Path("torch", "utils", "_python_dispatch.py")),
    runpy.__file__,
)
#: What MPSFallback.mm warns of, as a filter of Python's warnings names it.
FALLBACK_WARNING = (
    r"The (?:distributed )?operator '.*' is not currently supported on the MPS backend"
)

_OWN = str(Path(__file__).parents[2]) + os.sep


def prepare(program: str, arguments: Sequence[str], *, is_module: bool) -> None:
    """The arguments and the path that python would set up; after all imports of ours, which are not the program's."""
    if is_module:
        sys.argv = ["-m", *arguments]
        sys.path.insert(0, os.getcwd())  # noqa: PTH109  (as python does)
    else:
        sys.argv = [program, *arguments]
        sys.path.insert(0, str(Path(program).resolve().parent))


def execute(program: str, *, is_module: bool) -> None:
    """Run it as ``__main__``; what it raises is left to the caller."""
    if is_module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    path = Path(program)
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=program, __builtins__=__builtins__, __cached__=None)
    # Not runpy.run_path: it takes __main__ away again, and what is pickled at exit needs it.
    sys.modules["__main__"] = module
    code = compile(path.read_bytes(), program, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - this is what it is for


#: audit events of the standard library that start another process.
_STARTS = frozenset({"os.exec", "os.fork", "os.posix_spawn", "os.system", "subprocess.Popen"})


class Watched:
    """What a program does beside its operator calls: when it imports torch, and whether it starts processes."""

    def __init__(self, imports_torch: Callable[[], None]) -> None:
        self._imports_torch = imports_torch
        self._imported = False
        self._processes = 0
        self._watching = False

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """For the length of the block, ``imports_torch`` is called before the first ``import torch`` returns.

        A Mac's torch reads its variables then; here torch is imported before the program starts.
        """
        original = builtins.__import__

        def watched(name: str, *args: Any, **kwargs: Any) -> Any:
            if not self._imported and name.partition(".")[0] == "torch":
                self._imported = True
                if builtins.__import__ is watched:
                    builtins.__import__ = original
                self._imports_torch()
            return original(name, *args, **kwargs)

        builtins.__import__ = watched
        self._watching = True
        sys.addaudithook(self._see)  # which cannot be taken away again
        try:
            yield
        finally:
            self._watching = False
            if builtins.__import__ is watched:
                builtins.__import__ = original

    def _see(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if self._watching and event in _STARTS:
            self._processes += 1

    @property
    def cause(self) -> str:
        """Why the program computes nothing on ``mps``, in words; empty where nothing is known."""
        if self._processes:
            return "the program started other processes, in which nothing is emulated"
        return "" if self._imported else "the program did not import torch"


def code_of(error: SystemExit) -> int:
    """As python: None is 0, a text is printed and is 1."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    sys.stderr.write(f"{error.code}\n")
    return 1


def print_error(error: BaseException, *, whole: bool = False) -> None:
    """The traceback of the program; without the frames of ours, unless ``whole``."""
    trace = error.__traceback__ if whole else _without_own(error)
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def is_between(file: str) -> bool:
    """Whether a file is ours, or torch's that stands between the program and us."""
    return file.startswith((_OWN, "<frozen runpy>")) or file.endswith(_BETWEEN)


def _without_own(error: BaseException) -> types.TracebackType | None:
    for other in (error.__cause__, error.__context__):
        if other is not None and other.__traceback__ is not None:
            other.with_traceback(_without_own(other))
    frames: list[types.TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.endswith(_OVERRIDES) and frames:
            # The function that asks whether it is overridden, and is then called as if it had not been asked.
            frames.pop()
        elif not is_between(file):
            frames.append(trace)
        trace = trace.tb_next
    chain = None
    for one in reversed(frames):
        chain = types.TracebackType(chain, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return chain
