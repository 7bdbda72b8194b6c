"""Child processes: started, heard with limits, and ended together with all that they started.  Imports no torch.

User code runs in most of them.  It may print without end, write to the pipe that our answers come from, start processes
that outlive it and hold that pipe open, and die in any way.  Whoever waits for a child does so by ``Answers`` or ``run``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Generic, NamedTuple, TypeVar

from opcheck.common.sanitize import for_stderr

#: In the environment of a child and of all that it starts: how they are found again, also in another session.
MARK = "OPCHECK_PROCESS"
#: bytes of an answer: more are a mistake, or an attack on our memory
MOST = 256 << 20
#: bytes of what a child prints that ``run`` keeps
PRINTED = 64 << 20

_CHUNK = 1 << 16
#: seconds between two looks at whether a child is still there
_LOOK = 0.2
#: seconds that a pipe's reader gets after the child's end: a process that it started may hold the pipe open
_REST = 1.0
#: seconds that a program gets to end by itself when it is asked to
_STOPPING = 3.0
#: searches for processes that a child left behind: each may start others while they are searched for
_ROUNDS = 5
#: linux/prctl.h
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
#: ``python -P`` for Python 3.10, which has no such flag.
_SAFE = "import sys; sys.path.pop(0); "
_RUN_MODULE = "del sys.argv[0]; import runpy; runpy.run_module(sys.argv[0], None, '__main__', True)"
#: The variable that is ``-P`` to Python 3.11 and later, and a value by which ours is known.
_SAFE_PATH, _OURS = "PYTHONSAFEPATH", "opcheck"

Message = TypeVar("Message")


class LateError(Exception):
    """The child did not answer in time."""


class GarbledError(Exception):
    """What came is no answer: user code wrote it, or it is too long."""


def python(*arguments: str) -> list[str]:
    """The command that runs this Python without the working directory on its path.

    ``python -m`` and ``python -c`` put it first: a json.py there would take the place of Python's own.
    """
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", *arguments]
    flag, first, *rest = arguments
    if flag == "-m":
        return [sys.executable, "-c", _SAFE + _RUN_MODULE, first, *rest]
    return [sys.executable, flag, _SAFE + first if flag == "-c" else first, *rest]


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """Processes that libraries start in the block get no working directory on their path, from Python 3.11 on."""
    if _SAFE_PATH in os.environ:
        yield
        return
    os.environ[_SAFE_PATH] = _OURS
    try:
        yield
    finally:
        leave_safe_path()


def leave_safe_path() -> None:
    """What such a process starts itself is none of ours."""
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]


def how_it_ended(code: int) -> str:
    """What a process did, by its exit code: ``was ended by SIGKILL``, ``exited with code 1``."""
    return f"was ended by {signal_name(-code)}" if code < 0 else f"exited with code {code}"


def signal_name(number: int) -> str:
    """Of a signal; real-time signals but the first and the last have none in Python."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def die_with_parent() -> None:
    """In a child of ours: end when the process that started it ends, however that happens.

    Only Linux has this; elsewhere a child notices that its pipes are closed.
    """
    if sys.platform != "linux":
        return
    end_with_parent()
    parent = os.environ.get(MARK, "").rpartition("/")[2].partition("-")[0]
    if parent and parent != str(os.getppid()):
        os._exit(1)  # it ended before it was asked about


def end_with_parent() -> None:
    """The same in a fork, which knows its parent to be there."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of what this process's children started and left behind; only Linux has this."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_orphans(others: Container[int]) -> None:
    """Kill the children of this process, but for the others, and what they leave behind, which it has adopted."""
    for _ in range(_ROUNDS):
        numbers = [number for number in children_of_this() if number not in others]
        for number in numbers:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)
        if not numbers:
            return


def children_of_this() -> list[int]:
    """The processes whose parent this one is, where /proc tells."""
    found = []
    for name in _processes():
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name of the program stands in parentheses, and may hold any.
            fields = Path("/proc", name, "stat").read_text("utf-8", "replace").rpartition(")")[2]
            if int(fields.split()[1]) == os.getpid():
                found.append(int(name))
    return found


def _processes() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  (names alone)
    except OSError:
        return []


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415  (only where it is used)

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class EndedError(BaseException):
    """This process was asked to end; what is cleaned up on Ctrl-C is cleaned up now, too."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def heed_signals() -> None:
    """Let SIGTERM and SIGHUP raise, as SIGINT does, so that children and temporary folders go before this process.

    What is ignored already, as by nohup, stays ignored.
    """
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _frame: object) -> None:
    # Once: another one would break off the cleaning.
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    raise EndedError(number)


@contextlib.contextmanager
def household() -> Iterator[None]:
    """All that is started in the block has ended after it, if it is left by an exception, such as that of a signal."""
    token = f"{os.getpid()}-{secrets.token_hex(8)}"
    before = os.environ.get(MARK)
    os.environ[MARK] = f"{before or ''}/{token}"
    try:
        yield
    except BaseException:
        kill_marked(token)
        raise
    finally:
        if before is None:
            del os.environ[MARK]
        else:
            os.environ[MARK] = before


class Child:
    """A process, and all that it starts.

    Args:
        command: what is started.
        environment: its variables.
        group: it leads a session of its own; else the terminal's Ctrl-C reaches it, too.
        streams: stdin, stdout and stderr, as subprocess.Popen takes them.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        group: bool = True,
        **streams: Any,
    ) -> None:
        self._group = group and hasattr(os, "killpg")
        self._token = f"{os.getpid()}-{secrets.token_hex(8)}"
        mark = f"{os.environ.get(MARK, '')}/{self._token}"
        self.process = subprocess.Popen(
            command, env={**environment, MARK: mark}, start_new_session=self._group, **streams
        )

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def wait(self) -> int:
        """Its exit code; what Ctrl-C does is left to it."""
        while True:
            try:
                return self.process.wait()
            except KeyboardInterrupt:  # noqa: PERF203  (it waits)
                self.interrupt()

    def interrupt(self) -> None:
        """After a Ctrl-C: it has heard of it where a terminal sent it, to all of the group; else it hears of it now."""
        try:
            heard = not self._group and os.tcgetpgrp(0) == os.getpgrp()
        except (OSError, AttributeError):
            heard = False
        if not heard:
            self.process.send_signal(signal.SIGINT)

    def stop(self) -> int:
        """Ask it to end, and then kill it; its exit code."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOPPING)
        return self.end()

    def end(self) -> int:
        """Kill it and what it started, if it is still there; its exit code."""
        if self.alive or self._group:
            # The group outlives its leader.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if self._group:
                    os.killpg(self.process.pid, signal.SIGKILL)
                else:
                    self.process.kill()
        kill_marked(self._token)
        code = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        return code


def kill_marked(token: str) -> None:
    """Kill the processes that have this text in the environment that they began with, of whatever session.

    Linux alone shows the environment of other processes (/proc).
    """
    for _ in range(_ROUNDS):
        found = False
        for number in _marked(token.encode()):
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGKILL)
                found = True
        if not found:
            return
        time.sleep(0.01)


def _marked(token: bytes) -> Iterator[int]:
    own = os.getpid()
    for name in _processes():
        if int(name) != own:
            # It has ended meanwhile, or is another user's.
            with contextlib.suppress(OSError):
                if token in Path("/proc", name, "environ").read_bytes() and not _is_tracker(name):
                    yield int(name)


def _is_tracker(name: str) -> bool:
    """Whether it is what removes the files of multiprocessing's processes; it ends when all of them have."""
    return b"resource_tracker" in Path("/proc", name, "cmdline").read_bytes()


class Lines:
    """The lines of a pipe that a child writes into.

    Args:
        descriptor: the pipe's end.
        alive: whether the child has not ended: a process that it started may hold the pipe open for ever.
        most: bytes of a line.
    """

    def __init__(self, descriptor: int, alive: Callable[[], bool], most: int = MOST) -> None:
        self._pipe = _selectable(descriptor)
        self._alive = alive
        self._most = most
        self._rest = bytearray()
        self._searched = 0

    def next(self, deadline: float) -> bytes | None:
        """The next line, without its end; None: there is none any more.

        Args:
            deadline: by time.monotonic().

        Raises:
            LateError: it did not come by then.
            GarbledError: it is too long.
        """
        while True:
            end = self._rest.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._rest[:end])
                del self._rest[: end + 1]
                self._searched = 0
                return line
            self._searched = len(self._rest)
            if self._searched > self._most:
                message = f"a line of more than {self._most >> 20} MiB"
                raise GarbledError(message)
            part = self._read(deadline)
            if not part:
                return None
            self._rest += part

    def _read(self, deadline: float) -> bytes:
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise LateError
            alive = self._alive()
            ready, _, _ = select.select([self._pipe], [], [], min(left, _LOOK))
            if ready:
                return (
                    os.read(self._pipe, _CHUNK)
                    if isinstance(self._pipe, int)
                    else self._pipe.recv(_CHUNK)
                )
            if not alive:
                return b""


def _selectable(descriptor: int) -> int | socket.socket:
    """Windows waits for sockets alone: there a thread copies the pipe to one."""
    if os.name != "nt":
        return descriptor
    reading, writing = socket.socketpair()

    def copy() -> None:
        with contextlib.suppress(OSError), writing:
            while part := os.read(descriptor, _CHUNK):
                writing.sendall(part)

    threading.Thread(target=copy, daemon=True).start()
    return reading


class Answers(Generic[Message]):
    """What a child answers: one JSON object a line, of a kind.

    Args:
        lines: where they come from.
        kind: what each is.
    """

    def __init__(self, lines: Lines, kind: Any) -> None:
        self._lines = lines
        import msgspec  # noqa: PLC0415  (the command line imports this module for its help, too)

        self._decoder = msgspec.json.Decoder(kind)

    def next(self, deadline: float) -> Message | None:
        """The next answer; None: there is none any more.

        Args:
            deadline: by time.monotonic().

        Raises:
            LateError: it did not come by then.
            GarbledError: what came is none.
        """
        line = self._lines.next(deadline)
        return None if line is None else decoded(line, self._decoder)


def decoded(line: bytes, decoder: Any) -> Any:
    """One answer.

    Raises:
        GarbledError: it is none.
    """
    try:
        return decoder.decode(line)
    except (
        ValueError,
        RecursionError,
    ) as error:  # msgspec.DecodeError and UnicodeError are ValueErrors
        message = f"{line[:80].decode(errors='replace')!r} ({error})"
        raise GarbledError(message) from error


class Printed:
    """The end of what a child prints: it may print without end.

    Args:
        stream: its pipe; None: it prints elsewhere.
        most: bytes that are kept.
        pass_on: write its lines to stderr, too, made fit for a terminal and a log.
    """

    def __init__(self, stream: IO[bytes] | None, most: int, *, pass_on: bool = False) -> None:
        self._stream = stream
        self._most = most
        self._pass_on = pass_on
        self._parts: list[bytes] = []
        self._size = 0
        self._line = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        if self._stream is None:
            return
        with self._stream as stream:
            while part := os.read(stream.fileno(), _CHUNK):
                if self._pass_on:
                    self._write(part)
                self._parts.append(part)
                self._size += len(part)
                while self._size - len(self._parts[0]) >= self._most:
                    self._size -= len(self._parts.pop(0))
        if self._line:
            self._write(b"\n")

    def _write(self, part: bytes) -> None:
        """Whole lines, because half of one does not show whether it is a command; a bar of progress ends them by CR."""
        *lines, self._line = (self._line + part).replace(b"\r", b"\n").split(b"\n")
        if len(self._line) > _CHUNK:
            lines, self._line = [*lines, self._line], b""
        text = "".join(f"{for_stderr(line.decode(errors='replace'))}\n" for line in lines if line)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()

    def text(self) -> str:
        """What is kept of it."""
        # A process that the child started may hold the pipe open: wait a moment, not for the end of it.
        self._reader.join(_REST)
        return b"".join(self._parts)[-self._most :].decode(errors="replace")

    def last_line(self) -> str:
        """The last line that is not empty."""
        return last_line(self.text())


def last_line(text: str) -> str:
    """The last line of a text that is not empty, cut."""
    lines = (line.strip() for line in reversed(text.splitlines()))
    return next((line[:200] for line in lines if line), "")


class Finished(NamedTuple):
    """How a program ended, and what it printed."""

    code: int
    out: str
    err: str
    #: it was ended because its time was over.
    late: bool


def run(
    command: Sequence[str],
    seconds: float,
    *,
    environment: Mapping[str, str] | None = None,
    given: bytes = b"",
) -> Finished:
    """Run a program to its end, or to that of its time; nothing of it is left.

    Args:
        command: the program.
        seconds: what it may take.
        environment: its variables; those of this process if not given.
        given: what it reads on stdin.
    """
    with tempfile.TemporaryFile() as stdin:
        stdin.write(given)
        stdin.seek(0)
        child = Child(
            command,
            os.environ if environment is None else environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    out, err = Printed(child.process.stdout, PRINTED), Printed(child.process.stderr, PRINTED)
    child.process.stdout = None  # its reader closes it
    late = False
    try:
        child.process.wait(seconds)
    except subprocess.TimeoutExpired:
        late = True
    finally:
        code = child.end()
    return Finished(code, out.text(), err.text(), late)
