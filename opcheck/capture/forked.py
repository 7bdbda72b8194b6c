"""A piece of work in a process of its own that has all that this one has loaded: a fork, with limits."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import warnings
from typing import TYPE_CHECKING

from opcheck.worker.children import GarbledError, LateError, Lines, how_it_ended

if TYPE_CHECKING:
    from collections.abc import Callable

#: seconds that a fork gets to end after its answer, or after it has closed its pipe
_DYING = 0.5

#: What a fork exits with where our own code in it fails; a model ends its process with another.
OURS = 70


class EndedError(RuntimeError):
    """The fork was ended, or ended itself, before it was done."""


def forked(work: Callable[[], bytes], seconds: float, *, group: bool = True) -> bytes:
    """What ``work`` returns, from a fork of this process; where there is no fork, from this one.

    Args:
        work: what is done there; it returns one line, such as JSON.
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
    fork = Fork(child)
    try:
        line = Lines(reading, lambda: fork.alive).next(time.monotonic() + seconds)
    except LateError as error:
        message = f"not done after {seconds:g} s"
        raise EndedError(message) from error
    except GarbledError as error:
        raise EndedError(str(error)) from error
    finally:
        os.close(reading)
        code = fork.end(group=group)
    if line is None:
        raise EndedError(how_it_ended(code).removeprefix("was "))
    return line


class Fork:
    """A fork of this process."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._status: int | None = None

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        if self._status is None:
            try:
                done, status = os.waitpid(self._number, os.WNOHANG)
            except ChildProcessError:  # user code has waited for all children of this process
                done, status = self._number, 0
            self._status = status if done else None
        return self._status is None

    def end(self, *, group: bool, patience: float = _DYING) -> int:
        """Kill it, if it is still there, and what it started; its exit code."""
        # A pipe is closed a moment before its process ends by itself.
        ends = time.monotonic() + patience
        while self.alive and time.monotonic() < ends:
            time.sleep(0.001)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(self._number, signal.SIGKILL)
            elif self._status is None:
                os.kill(self._number, signal.SIGKILL)
        while self.alive:
            time.sleep(0.001)
        return os.waitstatus_to_exitcode(self._status or 0)


def _work(work: Callable[[], bytes], reading: int, writing: int, *, group: bool) -> None:
    code = OURS
    try:
        os.close(reading)
        if group:
            os.setpgid(0, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        with os.fdopen(writing, "wb") as file:
            # JSON has no line breaks of its own.
            file.write(work() + b"\n")
        code = 0
    finally:
        os._exit(code)
