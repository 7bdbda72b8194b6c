"""Runs a program in this process as ``python script.py`` or ``python -m module`` would.

Imports no torch.
"""

import builtins
import contextlib
import os
import runpy
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from opcheck.common import documents, notebooks
from opcheck.common.replacing import replace_attributes
from opcheck.common.text import error_chain, error_text
from opcheck.worker import platform

#: torch's own files whose frames are between the program and the emulation.
_OVERRIDES = str(Path("torch", "overrides.py"))
_BETWEEN = (str(Path("torch", "_ops.py")), str(Path("torch", "utils", "_python_dispatch.py")), runpy.__file__)
#: The warning of MPSFallback.mm, as a filter of Python's warnings takes it.
FALLBACK_WARNING = r"The (?:distributed )?operator '.*' is not currently supported on the MPS backend"

_OWN = str(Path(__file__).parents[2]) + os.sep


def prepare(program: str, arguments: Sequence[str], *, is_module: bool) -> None:
    """Set the arguments, the path and Ctrl-C as python would; call it after all imports of ours."""
    platform.raise_at_interrupt()
    if is_module:
        sys.argv = ["-m", *arguments]
        sys.path.insert(0, os.getcwd())  # noqa: PTH109  (as python does)
    else:
        sys.argv = [program, *arguments]
        sys.path.insert(0, str(Path(program).resolve().parent))


def execute(program: str, *, is_module: bool) -> None:
    """Run the program as ``__main__``; its exceptions reach the caller."""
    if is_module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    path = Path(program)
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=program, __builtins__=__builtins__, __cached__=None)
    # Not runpy.run_path: it removes __main__ at the end, and pickling at exit needs it.
    sys.modules["__main__"] = module
    if path.suffix == notebooks.SUFFIX:
        del module.__file__  # as in Jupyter: a process that is spawned does not import a notebook
        notebooks.run(path, module.__dict__)
        return
    code = compile(documents.read(path), program, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - this is what it is for


@contextlib.contextmanager
def first_import_seen(at_torch: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """For the length of the block, call ``at_torch`` before the program's first ``import torch`` returns.

    A Mac's torch reads its variables then, and here torch is imported before the program starts.  The value is a
    function: has the program imported torch?
    """
    original = builtins.__import__
    is_imported = False

    def import_watched(name: str, *args: Any, **kwargs: Any) -> Any:
        nonlocal is_imported
        if not is_imported and name.partition(".")[0] == "torch":
            is_imported = True
            if builtins.__import__ is import_watched:
                builtins.__import__ = original
            at_torch()
        return original(name, *args, **kwargs)

    builtins.__import__ = import_watched
    try:
        yield lambda: is_imported
    finally:
        if builtins.__import__ is import_watched:
            builtins.__import__ = original


#: A number beyond C's long is -1 there.
_LONG, _OVERFLOWED = 1 << 63, 0xFF


def code_of(error: SystemExit) -> int:
    """The exit code, as python decides it: None is 0; a text is printed, and the code is 1.

    Of a number the system keeps the last eight bits; True is 1 (Python/pythonrun.c, ``_Py_HandleSystemExit``).
    """
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return int(error.code) & 0xFF if abs(error.code) < _LONG else _OVERFLOWED
    with contextlib.suppress(OSError, ValueError, AttributeError):  # the program closed it
        sys.stderr.write(f"{error_text(error)}\n")
    return 1


def print_error(error: BaseException, *, whole: bool = False) -> None:
    """Print the traceback of the program; without our frames, unless ``whole``."""
    last = error
    for last in error_chain(error):
        if not whole and last.__traceback__ is not None:
            last.__traceback__ = _without_own(last.__traceback__)
    last.__cause__ = last.__context__ = None  # Python itself crashes at a chain of a hundred thousand
    for hook in (sys.excepthook, sys.__excepthook__):  # the program's own may raise
        with contextlib.suppress(Exception):
            hook(type(error), error, error.__traceback__)
            break


def is_between(file: str) -> bool:
    """Return whether a file is ours, or a file of torch's that calls us for the program."""
    return file.startswith((_OWN, "<frozen runpy>")) or file.endswith(_BETWEEN)


def _without_own(trace: types.TracebackType | None) -> types.TracebackType | None:
    frames: list[types.TracebackType] = []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.endswith(_OVERRIDES) and frames:
            # A function of torch that calls its override; without opcheck it would not be in the
            # traceback.
            frames.pop()
        elif not is_between(file):
            frames.append(trace)
        trace = trace.tb_next
    chain = None
    for frame in reversed(frames):
        chain = types.TracebackType(chain, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return chain


@contextlib.contextmanager
def warnings_at_their_lines() -> Iterator[None]:
    """For the length of the block, a warning names the line that it would name on a Mac.

    C++ and ``warnings.warn`` count frames, and ours are between. What shows a warning, and what
    ``catch_warnings(record=True)`` keeps, goes through ``warnings._showwarnmsg`` (Lib/warnings.py,
    3.10 to 3.13).
    """
    original: Any = warnings._showwarnmsg  # type: ignore[attr-defined]

    def show(message: Any) -> None:
        if is_between(message.filename):
            _move(message)
        original(message)

    with replace_attributes([(warnings, "_showwarnmsg", show)]):
        yield


def _move(message: Any) -> None:
    """Let the message name the first line outside of our frames."""
    frame: Any = sys._getframe(2)
    while frame is not None and not is_between(frame.f_code.co_filename):
        frame = frame.f_back  # frames of the warnings module
    while frame is not None and is_between(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is not None:
        message.filename, message.lineno = frame.f_code.co_filename, frame.f_lineno
        message.line = None
