"""Ends what does not end: the child's own limits of time and memory.  The parent ends a child that hangs in C."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

#: seconds after which a program that caught the end of its time is told again.
_AGAIN = 1.0

#: of the memory that this machine has.
_SHARE = 0.75


class TimeLimitReached(BaseException):
    """The run took longer than it was given."""


def limit_time(seconds: float) -> None:
    """Raise TimeLimitReached in the main thread after this long, again and again until ``rest``.

    Only POSIX has the timer; elsewhere, and where a program waits in C, the parent ends the process.
    """
    if not hasattr(signal, "setitimer"):
        return

    def expire(_number: int, _frame: FrameType | None) -> None:
        message = f"not done after {seconds:g} s"
        raise TimeLimitReached(message)

    signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)


def rest() -> None:
    """No limit of time any more: the program is done, what follows is ours."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 0)


def limit_memory(limit: int) -> None:
    """Let an allocation fail that would take ``limit`` bytes more than what is taken now.

    Linux alone counts what a program has reserved (RLIMIT_DATA, since 4.7); elsewhere nothing is limited.
    """
    taken = _taken()
    if taken is None:
        return
    import resource  # noqa: PLC0415 - POSIX only

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = taken + limit
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def default_memory() -> int:
    """Three quarters of what this machine, or the container, has; 0 where that is not known."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
    with contextlib.suppress(OSError, ValueError):
        # "max" where the container has no limit of its own
        machine = min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return int(machine * _SHARE)


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed: Python's, or that of torch's CPU allocator (c10/core/impl/alloc_cpu.cpp)."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def _taken() -> int | None:
    """The bytes of data that this process has reserved."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[5]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
