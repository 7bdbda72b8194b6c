"""The threads of a threadgroup as fibers of one thread of this machine (threads.cpp), compiled once.

The kernels of ``opcheck compile --run-metal`` link the same file.
"""

import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from opcheck.common import documents
from opcheck.common.caches import require_private
from opcheck.common.errors import UsageError

THREADS = Path(__file__).with_name("threads.cpp")
_NAMES = ("c++", "g++", "clang++")
_FLAGS = ("-std=gnu++20", "-O3", "-w", "-fPIC", "-shared")


def cxx() -> str:
    """Return the path of a C++ compiler: of CXX, else the first that is found.

    Raises:
        UsageError: there is none, or this is no POSIX system.
    """
    problem = "the kernels cannot be run"
    if os.name != "posix":
        raise UsageError(f"{problem}: their threads need a POSIX system", context=os.name)
    names = (os.environ.get("CXX", ""), *_NAMES)
    path = next(filter(None, (shutil.which(name) for name in names if name)), None)
    if path is None:
        raise UsageError(
            f"{problem}: no C++ compiler is found",
            context=", ".join(_NAMES),
            hint="install g++ 12 or newer or clang++, or name a compiler in CXX",
        )
    return path


@functools.cache
def library(folder: Path) -> Path:
    """Return the compiled fibers, kept in a folder by the content of their source.

    Raises:
        UsageError: as ``cxx``, or the compiler refuses them.
    """
    command = (cxx(), *_FLAGS)
    key = hashlib.sha256(documents.read(THREADS) + repr(command).encode()).hexdigest()[:16]
    path = require_private(folder) / f"threads-{key}.so"
    if not path.exists():
        beside = path.with_suffix(f".{os.getpid()}")
        done = subprocess.run([*command, str(THREADS), "-o", str(beside)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(
                "the kernels cannot be run: the C++ compiler refuses their threads",
                context=(done.stderr.strip().splitlines() or [""])[0],
                hint="name another in CXX: g++ 12 or newer, or clang++",
            )
        beside.replace(path)
    return path
