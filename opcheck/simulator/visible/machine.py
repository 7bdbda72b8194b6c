"""Simulate the machine that a Mac's Python reports: ``platform``, ``os.uname``, ``sysctl`` and ``sw_vers``.

The reader decides what is answered.

* The program's own code gets a Mac's answers.
* An installed library gets ``platform.processor()`` and ``platform.mac_ver()``, which find Apple silicon
  (Lightning's MPSAccelerator, fabric/accelerators/mps.py).  Of ``system()``, ``machine()`` and ``uname()`` libraries
  choose what they load: soundfile, bitsandbytes and llama_cpp would look for a Mac's shared libraries, which cannot be
  loaded here.
* The standard library, torch and opcheck get this machine's.  So does everybody for ``sys.platform``, ``os.name`` and
  ``sysconfig``: subprocess, ctypes, signal, multiprocessing and the import of native modules work by them.

The machine is the M1 with 16 GB of op_lists/macs.yaml.
"""

import contextlib
import functools
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from opcheck.common.replacing import replace_attributes
from opcheck.common.versions import Target
from opcheck.common.yaml_text import load_shipped
from opcheck.simulator import target_reads
from opcheck.simulator.visible.requirements import caller, kind_of

#: Metal's recommended working set on it, in bytes (op_lists/macs.yaml)
WORKING_SET = 10922 << 20
#: Metal's largest buffer on it, in bytes (op_lists/macs.yaml, ``buffer``)
LARGEST_BUFFER = WORKING_SET * 3 // 4

_SYSCTL: dict[str, str] = load_shipped(Path(__file__).with_suffix(".yaml"))
_UNAME = {"-m": "arm64", "-s": "Darwin", "-p": "arm", "": "Darwin"}


def macos_text(target: Target) -> str:
    """Return the target's ``platform.mac_ver()[0]``."""
    return f"{target.macos.major}.{target.macos.minor}"


def darwin_text(target: Target) -> str:
    """Return the target's ``platform.release()``: macOS 15 is Darwin 24, macOS 26 is Darwin 25."""
    major = target.macos.major
    return f"{major + 9 if major < 26 else major - 1}.{target.macos.minor}.0"


def _kernel(release: str) -> str:
    return f"Darwin Kernel Version {release}: root:xnu/RELEASE_ARM64_T8103"


class _MacUname(platform.uname_result):
    """The Mac's ``platform.uname()``; the original would read the processor of this machine."""

    processor = "arm"


def _uname() -> tuple[str, str, str, str, str]:
    release = target_reads.READS.ask(darwin_text)
    return "Darwin", _HOST_UNAME().node, release, _kernel(release), "arm64"


def _platform(aliased: bool = False, terse: bool = False) -> str:
    del aliased
    name = f"macOS-{target_reads.READS.ask(macos_text)}"
    if terse:
        return name
    return f"{name}-arm64-arm-64bit" + ("-Mach-O" if sys.version_info >= (3, 13) else "")


_HOST_UNAME = platform.uname
#: None on Windows, which has neither.
_HOST_OS_UNAME: Callable[[], Any] | None = getattr(os, "uname", None)
_UNAME_RESULT: Callable[..., Any] = getattr(os, "uname_result", tuple)

#: what a Mac answers, and whether libraries get it too
_PLATFORM: dict[str, tuple[Callable[..., Any], bool]] = {
    "processor": (lambda: "arm", True),
    "mac_ver": (lambda *_, **__: (target_reads.READS.ask(macos_text), ("", "", ""), "arm64"), True),
    "system": (lambda: "Darwin", False),
    "machine": (lambda: "arm64", False),
    "release": (lambda: target_reads.READS.ask(darwin_text), False),
    "version": (lambda: _kernel(target_reads.READS.ask(darwin_text)), False),
    "uname": (lambda: _MacUname(*_uname()), False),
    "platform": (_platform, False),
}


def _by_caller(host: Callable[..., Any], mac: Callable[..., Any], *, libraries: bool) -> Any:
    kinds = ("program", "library") if libraries else ("program",)

    @functools.wraps(host)
    def function(*args: Any, **kwargs: Any) -> Any:
        return (mac if caller().kind in kinds else host)(*args, **kwargs)

    return function


def _os_uname_by_caller() -> Any:
    # sysconfig and others of the standard library ask it to know where they are: only the very caller counts.
    direct = kind_of(sys._getframe(1).f_code)
    return _UNAME_RESULT(_uname()) if _HOST_OS_UNAME is None or direct == "program" else _HOST_OS_UNAME()


# -- programs that describe the machine ----------------------------------------------------------------------


def find_output(command: Sequence[str]) -> str | None:
    """Return what a Mac's program prints; None for a program that opcheck does not know."""
    name, arguments = os.path.basename(command[0]), list(command[1:])  # noqa: PTH119  (any text)
    if name == "sysctl":
        return _sysctl(arguments)
    if name == "sw_vers":
        cached = {"-productVersion": target_reads.READS.ask(macos_text), "-productName": "macOS"}
        return cached.get(" ".join(arguments).replace("--", "-"))
    if name == "uname" and len(arguments) < 2:
        return _UNAME.get("".join(arguments))
    return "arm64" if name == "arch" and not arguments else None


def _sysctl(arguments: list[str]) -> str | None:
    keys = [word for word in arguments if not word.startswith("-")]
    values = [_SYSCTL.get(key) for key in keys]
    if not keys or None in values:
        return None
    bare = any("n" in word for word in arguments if word.startswith("-"))
    rows = zip(keys, values, strict=True)
    return "\n".join(str(value) if bare else f"{key}: {value}" for key, value in rows)


def _instead(args: Any) -> Any:
    """Replace a process's arguments by those of a process that prints what the Mac's program would."""
    whole = isinstance(args, str)
    try:
        words = shlex.split(args) if whole else [os.fsdecode(word) for word in args]
        text = find_output(words) if words else None
    except (TypeError, ValueError):
        return args
    if text is None:
        return args
    if os.name == "nt":
        instead = [sys.executable, "-c", "import sys; print(sys.argv[1])", text]
        return subprocess.list2cmdline(instead) if whole else instead
    instead = ["printf", "%s\\n", text]
    return shlex.join(instead) if whole else instead


@contextlib.contextmanager
def mac_machine() -> Iterator[None]:
    """Present a Mac with Apple silicon to the program for the length of the block."""
    start = subprocess.Popen.__init__

    @functools.wraps(start)
    def start_instead(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        start(self, _instead(args) if caller().kind == "program" else args, *rest, **options)

    changes: list[tuple[Any, str, Callable[..., Any]]] = [
        (platform, name, _by_caller(getattr(platform, name), mac, libraries=libraries))
        for name, (mac, libraries) in _PLATFORM.items()
    ]
    changes.append((subprocess.Popen, "__init__", start_instead))
    if _HOST_OS_UNAME is not None:
        changes.append((os, "uname", _os_uname_by_caller))
    with replace_attributes(changes):
        yield
