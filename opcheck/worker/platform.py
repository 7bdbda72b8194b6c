"""Services of the operating system for processes: signals, limits of time and memory, ``/proc``, ``prctl``.

Nothing else in the package calls ``os.fork``, installs a signal handler, reads ``/proc`` for processes or sets a
resource limit. Each function says what it does where the system lacks the call. Imports no torch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from types import FrameType

#: A variable that marks a child and all that it starts, so that they are recognised in another session, too.
MARK = "OPCHECK_PROCESS"
#: Whether this system can copy a process.
CAN_FORK = hasattr(os, "fork")

#: Searches for processes that a child left behind: each may start more while the search runs.
_ROUNDS = 5
#: linux/prctl.h
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
#: Seconds after which a program that caught the end of its time is interrupted again.
_AGAIN = 1.0
#: The share of this machine's memory that a program may take by default.
_SHARE = 0.75


class SignalledError(BaseException):
    """This process was asked to end by SIGTERM or SIGHUP; whatever Ctrl-C cleans up is cleaned up now."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class TimeLimitReached(BaseException):
    """The run took longer than its limit."""


def handle_signals() -> None:
    """Let SIGTERM and SIGHUP raise, as SIGINT does, so that children and temporary folders go before this process.

    A signal that is ignored already, as by nohup, stays ignored.
    """
    for number in _ending_signals():
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _raise_signalled)


def _ending_signals() -> list[signal.Signals]:
    names = ("SIGTERM", "SIGHUP")
    return [signal.Signals[name] for name in names if hasattr(signal, name)]


def _raise_signalled(number: int, _frame: FrameType | None) -> None:
    # A second signal would interrupt the cleanup.
    for ending in _ending_signals():
        signal.signal(ending, signal.SIG_IGN)
    raise SignalledError(number)


def how_it_ended(code: int) -> str:
    """Describe the end of a process by its exit code: ``was ended by SIGKILL``, ``exited with code 1``."""
    return f"was ended by {signal_name(-code)}" if code < 0 else f"exited with code {code}"


def signal_name(number: int) -> str:
    """Return the name of a signal; of the real-time signals Python names only the first and the last."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def die_with_parent() -> None:
    """Let this process, which ``process.Child`` started, end when its parent ends, however that happens.

    Only Linux can do this; elsewhere a child notices that its pipes are closed.
    """
    if sys.platform != "linux":
        return
    fork_dies_with_parent()
    parent = os.environ.get(MARK, "").rpartition("/")[2].partition("-")[0]
    if parent and parent != str(os.getppid()):
        os._exit(1)  # the parent ended before the call above


def fork_dies_with_parent() -> None:
    """Let this fork, whose parent is certainly alive, end when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, 9)


def adopt_orphans() -> None:
    """Become the parent of processes that children of this process leave behind; only Linux can do this."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_orphans(keep: Container[int]) -> None:
    """Kill the children of this process, adopted ones included, but for those to keep."""
    for _ in range(_ROUNDS):
        numbers = [number for number in children_of_this_process() if number not in keep]
        for number in numbers:
            with contextlib.suppress(OSError):
                kill(number)
                os.waitpid(number, 0)
        if not numbers:
            return


def children_of_this_process() -> list[int]:
    """Return the ids of this process's children; empty where there is no /proc."""
    children = []
    for name in _process_names():
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name of the program stands in parentheses, and may hold any character.
            fields = Path("/proc", name, "stat").read_text("utf-8", "replace").rpartition(")")[2]
            if int(fields.split()[1]) == os.getpid():
                children.append(int(name))
    return children


def kill_marked(token: str) -> None:
    """Kill the processes that began with this text in their environment, whatever their session.

    Linux alone shows the environment of other processes (/proc).
    """
    for _ in range(_ROUNDS):
        killed = False
        for number in _marked(token.encode()):
            with contextlib.suppress(OSError):
                kill(number)
                killed = True
        if not killed:
            return
        time.sleep(0.01)


def _marked(token: bytes) -> Iterator[int]:
    for name in _process_names():
        if int(name) != os.getpid():
            # The process may have ended meanwhile, or belong to another user.
            with contextlib.suppress(OSError):
                if token in Path("/proc", name, "environ").read_bytes() and not _is_tracker(name):
                    yield int(name)


def _is_tracker(name: str) -> bool:
    """Return whether it is multiprocessing's resource tracker, which must outlive the owners of its files."""
    return b"resource_tracker" in Path("/proc", name, "cmdline").read_bytes()


def _process_names() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  (names alone)
    except OSError:
        return []


def kill(number: int, *, group: bool = False) -> None:
    """Kill a process, or its whole process group; nothing happens where it is gone.

    Where the system has no SIGKILL (Windows) the process is terminated.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(number, signal.SIGTERM)
        elif group:
            os.killpg(number, signal.SIGKILL)
        else:
            os.kill(number, signal.SIGKILL)


def interrupt(number: int, *, in_other_group: bool) -> None:
    """Pass a Ctrl-C of this process on to a child, unless the terminal has sent it to the child as well."""
    try:
        heard = not in_other_group and os.tcgetpgrp(0) == os.getpgrp()
    except (OSError, AttributeError):
        heard = False
    if not heard:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGINT)


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class Fork:
    """A copy of this process that runs one function and exits.

    Args:
        work: the function; its result is the exit code of the fork, an exception is code 70.
        group: the fork leads a session of its own, which ends together with it; else it stays in that of this process.
    """

    #: What a fork exits with where opcheck's own code in it fails; a model that ends its process has another code.
    FAILED = 70

    def __init__(self, work: Callable[[], int], *, group: bool = True) -> None:
        self._group = group
        self._status: int | None = None
        with warnings.catch_warnings():
            # Python 3.12 and later warn of threads: the fork takes no lock that a thread of opcheck could hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._number = os.fork()
        if not self._number:
            code = self.FAILED
            try:
                if group:
                    os.setsid()
                fork_dies_with_parent()
                stop_time_limit()
                code = work()
            except BaseException:  # noqa: BLE001  (the fork ends with it)
                with contextlib.suppress(Exception):  # user code may have closed stderr
                    traceback.print_exc()
                    sys.stderr.flush()
            finally:
                os._exit(code)

    @property
    def alive(self) -> bool:
        """Return whether the fork has not ended."""
        if self._status is None:
            try:
                done, status = os.waitpid(self._number, os.WNOHANG)
            except ChildProcessError:  # user code has waited for all children of this process
                done, status = self._number, 0
            self._status = status if done else None
        return self._status is None

    def end(self, patience: float) -> int:
        """Kill the fork and what it started unless it ends within ``patience`` seconds; return its exit code."""
        # A pipe is closed a moment before its process ends by itself.
        ends = time.monotonic() + patience
        while self.alive and time.monotonic() < ends:
            time.sleep(0.001)
        if self._group:
            kill(self._number, group=True)
        if self._status is None:  # it may not lead its session yet
            kill(self._number)
        while self.alive:
            time.sleep(0.001)
        return os.waitstatus_to_exitcode(self._status or 0)


def limit_time(seconds: float) -> None:
    """Raise TimeLimitReached in the main thread after so many seconds, repeatedly until ``stop_time_limit``.

    Only POSIX has the timer; elsewhere, and where a program waits in C, the parent ends the process.
    """
    if sys.platform == "win32":
        return

    def expire(_number: int, _frame: FrameType | None) -> None:
        message = f"not done after {seconds:g} s"
        raise TimeLimitReached(message)

    signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)


def stop_time_limit() -> None:
    """Remove the time limit: the program is done, and the rest is opcheck's own work."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, 0)


def limit_memory(limit: int) -> None:
    """Make allocations fail that exceed what this process holds now by ``limit`` bytes.

    Linux alone counts what a program has reserved (RLIMIT_DATA, since 4.7); elsewhere nothing is limited.
    """
    reserved = _reserved()
    if reserved is None or sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (reserved + limit, hard))


def default_memory() -> int:
    """Return three quarters of the memory of this machine or container, in bytes; 0 if unknown."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
    with contextlib.suppress(OSError, ValueError):
        # "max" where the container has no limit of its own
        machine = min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return int(machine * _SHARE)


def out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation of Python or of torch's CPU allocator failed (c10/core/impl/alloc_cpu.cpp)."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def _reserved() -> int | None:
    """Return the bytes of data that this process has reserved."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[5]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
