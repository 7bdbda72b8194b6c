"""Services of the operating system for processes: signals, limits of time and memory, locks, other processes.

Nothing else in the package calls ``os.fork``, installs a signal handler, reads ``/proc`` for processes or sets a
resource limit.  Each service has a way for Linux, macOS and Windows; psutil serves where it can.  Imports no torch.

| service | Linux | macOS | Windows |
| --- | --- | --- | --- |
| copy this process | fork | no: a new process starts | no: the same |
| end with the parent | prctl | a thread looks for the parent | the same |
| signal no other process | Landlock, since 6.12 | no | no |
| limit memory | RLIMIT_DATA | a thread watches it | the same |
| limit time | SIGALRM | SIGALRM | a thread raises in the main thread |
| end a process and what it started | process group, mark | process group, mark | process tree, mark |
| lock a file | flock | flock | msvcrt |

macOS does have a fork, but Objective-C, Metal and Accelerate abort or hang in a fork after their first use
(objc4, ``objc-initialize.mm``; bugs.python.org, issue 33725: multiprocessing spawns processes there).
"""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from opcheck.common.errors import UsageError

#: A variable that marks a child and all that it starts, so that they are recognised in another session, too.
MARK = "OPCHECK_PROCESS"
#: The name of the system; tests on Linux set the variable to take the ways of "darwin" or "win32".
SYSTEM = os.environ.get("OPCHECK_TEST_SYSTEM") or sys.platform
#: Whether a copy of a process can continue to compute on this system.
CAN_FORK = hasattr(os, "fork") and SYSTEM not in {"darwin", "win32"}
#: Folders of files that describe the machine.
MACHINE_FILES = ("/proc/", "/sys/", "/dev/")
#: Audit events of Python that start another process.
START_EVENTS = frozenset({"os.exec", "os.fork", "os.posix_spawn", "os.system", "subprocess.Popen"})
#: Exit codes of a program that Ctrl-C and an abort ended, as shells report them.
INTERRUPTED, ABORTED = 128 + signal.SIGINT, 128 + signal.SIGABRT
#: The exit code of a process that exceeded its memory where the system does not limit it.
OVER_MEMORY = 137

#: Searches for processes that a child left behind: each may start more while the search runs.
_ROUNDS = 6
#: Seconds that a killed process gets to end; a process that waits for a disk takes longer.
_ORPHAN = 1.0
#: linux/prctl.h
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
#: asm-generic/unistd.h and linux/landlock.h
_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF, _LANDLOCK_SCOPE_SIGNAL = 444, 446, 2
#: Seconds after which a program that caught the end of its time is interrupted again.
_AGAIN = 1.0
#: Seconds before its end that the timer of a limit may run out.
_EARLY = 0.01
#: Seconds between two looks at a parent, and at the memory.
_PARENT_LOOK, _MEMORY_LOOK = 1.0, 0.1
#: Seconds that a program gets to free memory after a MemoryError.
_FREEING = 2.0
#: The share of this machine's memory that a program may take by default.
_SHARE = 0.75
#: The byte of a file that msvcrt locks: locked bytes cannot be read, and no lock file is as long.
_LOCKED_BYTE = 1 << 30
_CHUNK = 1 << 16


class SignalledError(BaseException):
    """This process received SIGTERM or SIGHUP; whatever Ctrl-C cleans up is cleaned up now."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


#: The exit code of a command that was ended but keeps what it has, by the signal.
ENDED = {"Ctrl-C": 130, "SIGTERM": 143, "SIGHUP": 129}


def ended_by(error: BaseException) -> str:
    """Return the key of ``ENDED`` for the exception that ends this process."""
    return signal_name(error.number) if isinstance(error, SignalledError) else "Ctrl-C"


class TimeLimitReached(BaseException):
    """The run took longer than its limit."""


class AlarmError(BaseException):
    """A timer of the user's code ran out, and nothing handles SIGALRM, which ends a process then."""


def handle_signals() -> None:
    """Let SIGTERM and SIGHUP raise, as SIGINT does, so that children and temporary folders go before this process.

    A signal that is ignored already, as by nohup, stays ignored.
    """
    raise_at_interrupt()
    for number in _ending_signals():
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _raise_signalled)


def raise_at_interrupt() -> None:
    """Let SIGINT raise where it ends the process."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore_signals() -> None:
    """Let nothing interrupt what is left to do at the end of this process."""
    for number in (signal.SIGINT, *_ending_signals()):
        signal.signal(number, signal.SIG_IGN)


def _ending_signals() -> list[signal.Signals]:
    names = ("SIGTERM", "SIGHUP", "SIGBREAK")
    return [signal.Signals[name] for name in names if hasattr(signal, name)]


def _raise_signalled(number: int, _frame: FrameType | None) -> None:
    # A second signal would interrupt the cleanup.
    for ending in _ending_signals():
        signal.signal(ending, signal.SIG_IGN)
    raise SignalledError(number)


@contextlib.contextmanager
def before_ending(work: Callable[[int], None]) -> Iterator[None]:
    """Call ``work`` with the signal before SIGTERM or SIGHUP ends this process in the block; in forks they end only."""
    process = os.getpid()

    def end(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() == process:
            work(number)
        signal.raise_signal(number)

    numbers = [each for each in _ending_signals() if signal.getsignal(each) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            if signal.getsignal(number) is end:
                signal.signal(number, signal.SIG_DFL)


def interrupt_main_thread(process: int = 0) -> None:
    """Raise KeyboardInterrupt in the main thread of a process, by default this one, also where it waits for a lock."""
    os.kill(process or os.getpid(), signal.SIGINT)


def after_fork(work: Callable[[], None]) -> None:
    """Call ``work`` in each fork of this process, as soon as it runs."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=work)


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
    """Let this process, which ``process.Child`` started, end when its parent ends, however that happens."""
    parent = os.environ.get(MARK, "").rpartition("/")[2].partition("-")[0]
    end_with_parent(int(parent) if parent.isdigit() else os.getppid())


def end_with_parent(parent: int | None = None) -> None:
    """Let this process end when its parent ends; at once if that is no longer the process with the given id."""
    expected = os.getppid() if parent is None else parent
    if SYSTEM == "linux":
        _prctl(_PR_SET_PDEATHSIG, 9)
    else:
        threading.Thread(target=_watch_parent, args=(expected,), daemon=True).start()
    # The python.exe of a Windows environment starts the real program and becomes its parent.
    if SYSTEM != "win32" and os.getppid() != expected:
        os._exit(1)  # the parent ended before the calls above


def _watch_parent(parent: int) -> None:
    while exists(parent) if SYSTEM == "win32" else os.getppid() == parent:
        time.sleep(_PARENT_LOOK)
    os._exit(1)


def exists(number: int) -> bool:
    """Return whether there is a process of this id that has not ended."""
    import psutil

    try:
        return bool(psutil.Process(number).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def adopt_orphans() -> None:
    """Become the parent of processes that children of this process leave behind; only Linux can do this."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def confine_signals() -> None:
    """Keep this process, and what it starts from now on, from sending signals to any other.

    It cannot read the memory and the environment of others either; only Linux 6.12 and later can do all this.
    """
    if SYSTEM != "linux":
        return
    import ctypes

    system = ctypes.CDLL(None)
    # struct landlock_ruleset_attr: no rule for files, none for the network, and the scope
    ruleset = struct.pack("QQQ", 0, 0, _LANDLOCK_SCOPE_SIGNAL)
    descriptor = system.syscall(_LANDLOCK_CREATE_RULESET, ruleset, len(ruleset), 0)
    if descriptor >= 0:
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        system.syscall(_LANDLOCK_RESTRICT_SELF, descriptor, 0)
        os.close(descriptor)


def end_orphans(keep: Container[int] = ()) -> None:
    """Kill the children of this process, adopted ones included, but for those to keep."""
    import psutil

    for _ in range(_ROUNDS):
        processes = [each for each in psutil.Process().children() if each.pid not in keep]
        ended = 0
        for process in processes:
            with contextlib.suppress(psutil.Error):
                if _may_be_killed(process):
                    process.kill()
                    process.wait(_ORPHAN)
                    ended += 1
        if not ended:
            return


def children_of_this_process() -> list[int]:
    """Return the ids of this process's children."""
    import psutil

    return [process.pid for process in psutil.Process().children()]


def kill_marked(token: str) -> None:
    """Kill the processes that began with this text in their environment, whatever their session.

    A system shows the environment of the user's own processes; macOS hides that of its own programs.
    """
    import psutil

    clean = 0
    for _ in range(_ROUNDS):
        killed = False
        for process in psutil.process_iter():
            # It may have ended meanwhile, or belong to another user.
            with contextlib.suppress(psutil.Error, OSError):
                if token in process.environ().get(MARK, "") and _may_be_killed(process):
                    process.kill()
                    killed = True
        # A process may start another and end while the list is read, so that neither is seen: look twice.
        clean = 0 if killed else clean + 1
        if clean == 2:
            return
        time.sleep(0.01)


def _may_be_killed(process: Any) -> bool:
    """Return False for this process and multiprocessing's resource tracker, which must outlive its files' owners."""
    return process.pid != os.getpid() and "resource_tracker" not in " ".join(process.cmdline())


def own_session() -> dict[str, Any]:
    """Return the arguments of subprocess.Popen that keep the terminal's Ctrl-C from a process."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def kill(number: int, *, group: bool = False) -> None:
    """Kill a process, or with ``group`` also what it started; nothing happens where it is gone."""
    import psutil

    with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
        if sys.platform == "win32" or SYSTEM == "win32":
            process = psutil.Process(number)
            for each in [*(process.children(recursive=True) if group else ()), process]:
                with contextlib.suppress(psutil.Error):
                    each.kill()
        elif group:
            os.killpg(number, signal.SIGKILL)
        else:
            os.kill(number, signal.SIGKILL)


def interrupt(number: int, *, in_other_group: bool) -> None:
    """Pass a Ctrl-C of this process on to a child, unless the terminal has sent it to the child as well."""
    if sys.platform == "win32":
        # The console sends it to all its processes outside of a group of their own, and there Ctrl-Break alone passes.
        if in_other_group:
            os.kill(number, signal.CTRL_BREAK_EVENT)
        return
    try:
        heard = not in_other_group and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        heard = False
    if not heard:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGINT)


def lock(descriptor: int) -> bool:
    """Lock an open file; return whether this process has the lock, which ends with the descriptor or the process.

    filelock is not used: it empties the file before it has the lock, and the file names the holder.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            finally:
                os.lseek(descriptor, 0, os.SEEK_SET)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def selectable(descriptor: int) -> int | socket.socket:
    """Return a selectable descriptor: Windows selects only sockets, so a thread copies the pipe to one there."""
    if SYSTEM != "win32":
        return descriptor
    reading, writing = socket.socketpair()

    def copy() -> None:
        with contextlib.suppress(OSError), writing:
            while part := os.read(descriptor, _CHUNK):
                writing.sendall(part)

    threading.Thread(target=copy, daemon=True).start()
    return reading


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def can_fork() -> bool:
    """Return whether a copy of this process can go on computing, a backward pass included.

    The first backward pass of a build with a GPU starts a thread for each device, and from then on autograd raises in
    every fork (``initialize_device_threads_pool`` of torch/csrc/autograd/engine.cpp, ``thread_init`` for the name).
    """
    if not CAN_FORK:
        return False
    names: list[str] = []
    for thread in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # the thread has ended
            names.append(thread.read_text())
    return not any(name.startswith("pt_autograd") for name in names)


class Fork:
    """A copy of this process that runs one function and exits.

    Args:
        work: the function; its result is the exit code of the fork, an exception is code 70.
        group: the fork leads a session of its own, which ends together with it; else it stays in that of this process.
    """

    #: What a fork exits with where opcheck's own code in it fails; a model that ends its process has another code.
    FAILED = 70
    _group: bool
    _number: int

    def __init__(self, work: Callable[[], int], *, group: bool = True) -> None:
        if sys.platform == "win32" or not CAN_FORK:
            raise UsageError(
                "a copy of this process is needed, and this system makes none that could compute",
                context=SYSTEM,
                hint="run it on Linux, as in a container",
            )
        self._group = group
        self._status: int | None = None
        with warnings.catch_warnings():
            # Python 3.12 and later warn of threads: the fork takes no lock that a thread of opcheck takes.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._number = os.fork()
        if not self._number:
            code = self.FAILED
            try:
                if group:
                    os.setsid()
                end_with_parent()
                stop_time_limit()
                code = work()
            except (KeyboardInterrupt, SignalledError):
                pass
            except BaseException:  # noqa: BLE001  (the fork ends with it)
                with contextlib.suppress(Exception):  # user code may have closed stderr
                    traceback.print_exc()
                    sys.stderr.flush()
            finally:
                os._exit(code)

    @property
    def alive(self) -> bool:
        """Return whether the fork has not ended."""
        if sys.platform != "win32" and self._status is None:
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

    Where a program waits in C code the parent ends the process.
    """
    if sys.platform == "win32" or SYSTEM == "win32":
        stop_time_limit()
        _alarms.append(_Alarm(seconds))
        return

    ends = time.monotonic() + seconds

    def expire(_number: int, _frame: FrameType | None) -> None:
        if (left := ends - time.monotonic()) < _EARLY:
            raise TimeLimitReached(_late(seconds))
        # User code has exchanged the one timer that a process has.
        signal.setitimer(signal.ITIMER_REAL, left, _AGAIN)
        raise AlarmError("SIGALRM ends the program: a timer that it set ran out (signal.alarm, signal.setitimer)")

    signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)


def _late(seconds: float) -> str:
    return f"not done after {seconds:g} s"


def stop_time_limit() -> None:
    """Remove the time limit: the program is done, and the rest is opcheck's own work."""
    if sys.platform == "win32" or SYSTEM == "win32":
        while _alarms:
            _alarms.pop().stop()
    else:
        signal.setitimer(signal.ITIMER_REAL, 0)


class _Alarm:
    """A thread that raises TimeLimitReached in the main thread, for a system without timers."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stopped = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        wait = seconds = self._seconds

        class Reached(TimeLimitReached):
            """Python makes an exception of another thread of its class alone."""

            def __init__(self) -> None:
                super().__init__(_late(seconds))

        while not self._stopped.wait(wait):
            _raise_in_main_thread(Reached)
            wait = _AGAIN

    def stop(self) -> None:
        self._stopped.set()
        _raise_in_main_thread(None)


#: The alarm that is set, if any.
_alarms: list[_Alarm] = []


def _raise_in_main_thread(error: type[BaseException] | None) -> None:
    """Raise an exception before the next instruction of the main thread; None cancels a pending exception."""
    import ctypes

    number = ctypes.c_ulong(threading.main_thread().ident or 0)
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(number, raised)


def limit_memory(limit: int) -> None:
    """Make allocations fail beyond the present memory of this process and ``limit`` bytes.

    Linux alone counts what a program has reserved (RLIMIT_DATA, since 4.7).  Elsewhere a thread watches what it uses:
    beyond the limit it raises MemoryError, and ends the process where that does not help.
    """
    if sys.platform == "linux" and SYSTEM == "linux":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, (_measure_memory().data + limit, hard))
    else:
        _memory_watch.limit_to(limit)


class _MemoryWatch:
    """Watches the memory of this process from a thread, where the system does not limit it."""

    def __init__(self) -> None:
        self._most = 0
        self._thread: threading.Thread | None = None

    def limit_to(self, limit: int) -> None:
        """Allow ``limit`` bytes beyond what the process uses now."""
        self._most = _measure_memory().rss + limit
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(_MEMORY_LOOK)
            if _measure_memory().rss <= self._most:
                continue
            _raise_in_main_thread(MemoryError)
            time.sleep(_FREEING)
            if _measure_memory().rss > self._most:
                with contextlib.suppress(OSError):
                    os.write(2, f"more than {self._most >> 20} MiB of memory\n".encode())
                os._exit(OVER_MEMORY)


_memory_watch = _MemoryWatch()


def _measure_memory() -> Any:
    """Return psutil's account of the memory that this process uses (``rss``) and has reserved for data (``data``)."""
    import psutil

    return psutil.Process().memory_info()


def default_memory() -> int:
    """Return three quarters of the memory of this machine or container, in bytes."""
    import psutil

    machine = int(psutil.virtual_memory().total)
    with contextlib.suppress(OSError, ValueError):
        # "max" where the container has no limit of its own
        machine = min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return int(machine * _SHARE)


def out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation of Python or of torch's CPU allocator failed (c10/core/impl/alloc_cpu.cpp)."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
