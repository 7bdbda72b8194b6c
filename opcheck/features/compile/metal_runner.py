"""Runs Inductor's Metal kernels on the CPU (experimental), compiled as C++ to a shared library.

The kernels are compiled with the header of ``check``; their threads, barriers and simdgroups are
emulated (threads.cpp).  What that does not prove is ``NOT_PROVEN``.
"""

import atexit
import functools
import itertools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from opcheck.common.errors import UsageError
from opcheck.features.compile.check import metal_check
from opcheck.kernels.fibers import THREADS, cxx

NOT_PROVEN: str = metal_check.NOT_CHECKED["run"]

_HERE = Path(__file__).parent

#: -O1: kernels are compiled once and run once.  The rest is what Metal's C++ takes for granted.
_FLAGS = (
    *("-std=gnu++20", "-O1", "-w", "-fPIC", "-fsigned-char", "-fno-exceptions"),
    *("-fwrapv", "-fno-strict-aliasing", "-ffp-contract=off", *metal_check.DEFINES),
    # A word of Metal: headers of 2.8 use it before they include its library.
    "-Dconstant=",
)
_ERROR = re.compile(r"error: (?P<message>.+)")
_numbers = itertools.count()
#: the folder of this process, once there is one
_FOLDER: list[Path] = []


class CompilerError(RuntimeError):
    """The compiler refuses a source; the message is its own."""


@functools.cache
def compiler() -> tuple[str, ...]:
    """Return the command that compiles kernels on this machine: of CXX, else the first that is found.

    Raises:
        UsageError: there is none, or this is no POSIX system.
    """
    return cxx(), *_FLAGS


def _folder(scratch: str = "", include: Path | None = None) -> Path:
    """Return the folder of this process and its forks: the threads and the headers, compiled at the first call."""
    if _FOLDER:
        return _FOLDER[0]
    metal_check.require_headers(include, "run")
    folder = Path(scratch or tempfile.mkdtemp(prefix="opcheck-kernels-"))
    if not scratch:
        # Not called in forks: they end at once.
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run(*compiler(), "-c", str(THREADS), "-o", str(folder / "threads.o"))
    written = folder / "c10" / "metal"
    written.mkdir(parents=True)
    for path, text in metal_check.single_precision_headers(include).items():
        (written / path.name).write_text(text)
    prefix = folder / "prefix.h"
    prefix.write_text(f'#include <c10/metal/utils.h>\n#include "{_HERE / "metal_entry.h"}"\n')
    # Both GCC and Clang take prefix.h.gch for prefix.h.
    run(*compiler(), *_includes(folder), "-x", "c++-header", str(prefix), "-o", f"{prefix}.gch")
    _FOLDER.append(folder)
    return folder


def prepare(scratch: str = "", include: Path | None = None) -> None:
    """Compile what all kernels share; call it before forking.

    Args:
        scratch: a folder for it and for the kernels, which the caller removes; else this process does as it exits.
        include: the ``torch/include`` of the release that writes the kernels; None: of the installed torch.

    Raises:
        UsageError: as ``compiler``; torch has no Metal headers; or it is too old for Metal's half.
    """
    try:
        _folder(scratch, include)
    except CompilerError as error:
        problem = "the kernels cannot be run: the C++ compiler does not take opcheck's Metal header"
        hint = "name another compiler in CXX: g++ 12 or newer, or clang++"
        raise UsageError(problem, context=str(error), hint=hint) from error


def shared_library(source: str) -> Path:
    """Compile kernels, and link them with their threads.

    Raises:
        UsageError: as ``prepare``.
        CompilerError: the compiler refuses them.
    """
    prepare()
    folder = _folder()
    path = folder / f"kernels-{os.getpid()}-{next(_numbers)}"
    text, library = path.with_suffix(".cpp"), path.with_suffix(".so")
    text.write_text(source)
    prefix = ("-include", str(folder / "prefix.h"))
    linked = ("-shared", str(text), str(folder / "threads.o"), "-o", str(library), "-lm")
    run(*compiler(), *_includes(folder), *prefix, *linked)
    return library


def _includes(folder: Path) -> Sequence[str]:
    return ("-isystem", str(metal_check.INCLUDE), "-isystem", str(folder))


def run(*command: str) -> None:
    """Run the compiler.

    Raises:
        CompilerError: it refuses.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        first = _ERROR.search(done.stderr)
        reason = first["message"] if first else f"exited with code {done.returncode}"
        raise CompilerError(f"{Path(command[0]).name}: {reason}")
