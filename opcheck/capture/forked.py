"""A piece of work in a process of its own that has all that this one has loaded: a fork, with limits."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK = 1 << 16


class EndedError(RuntimeError):
    """The fork was ended, or ended itself, before it was done."""


def forked(work: Callable[[], bytes], seconds: float, *, group: bool = True) -> bytes:
    """What ``work`` returns, from a fork of this process; where there is no fork, from this one.

    Args:
        work: what is done there.
        seconds: after which it is ended.
        group: it leads a process group, and what it has started is ended with it; else it stays in that of this
            process, and who ends that ends it.

    Raises:
        EndedError: it took longer than ``seconds``, or died.
    """
    if not hasattr(os, "fork"):
        return work()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 and later warn of threads: the fork takes no lock that one of ours could hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _work(work, reading, writing, group=group)
    os.close(writing)
    try:
        return _read(reading, child, seconds)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            (os.killpg if group else os.kill)(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)


def _work(work: Callable[[], bytes], reading: int, writing: int, *, group: bool) -> None:
    code = 1
    try:
        os.close(reading)
        if group:
            os.setpgid(0, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        with os.fdopen(writing, "wb") as file:
            file.write(work())
        code = 0
    finally:
        os._exit(code)


def _read(reading: int, child: int, seconds: float) -> bytes:
    end = time.monotonic() + seconds
    parts = []
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            message = f"not done after {seconds:g} s"
            raise EndedError(message)
        part = os.read(reading, _CHUNK)
        if not part:
            break
        parts.append(part)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        message = f"ended by {signal.Signals(-code).name}"
        raise EndedError(message)
    if code or not parts:
        message = f"exited with code {code}"
        raise EndedError(message)
    return b"".join(parts)
