"""Starts child processes, reads them with limits, and ends them with all that they started.  Imports no torch.

User code runs in most of them.  It may print without end, write to the pipe that answers come from,
start processes that outlive it and keep that pipe open, and die in any way.  ``LineReader``, ``OutputTail``
and ``run`` keep their limits nevertheless.
"""

import contextlib
import os
import secrets
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from opcheck.common.sanitize import for_stderr
from opcheck.worker import platform

#: The longest line in bytes; a longer line is a mistake, or an attack on this process's memory.
LONGEST_LINE = 256 << 20
#: How many bytes of a child's output ``run`` keeps.
PRINTED = 64 << 20

#: The streams of a child that this process writes and reads.
PIPES: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)

_CHUNK = 1 << 16
#: Seconds between two checks whether a child is still alive.
_LOOK = 0.2
#: Seconds that a pipe's reader gets after the child's end: a process that it started may keep the pipe open.
_REST = 1.0
#: Seconds that a program gets to end by itself after SIGTERM.
_STOPPING = 3.0
#: ``python -P`` for Python 3.10, which has no such flag.
_SAFE = "import sys; sys.path.pop(0); "
_RUN_MODULE = "del sys.argv[0]; import runpy; runpy.run_module(sys.argv[0], None, '__main__', True)"


class LateError(Exception):
    """The child did not answer in time."""


class GarbledError(Exception):
    """The child wrote something that is no answer: user code wrote it, or the line is too long."""


def python(*arguments: str, interpreter: str = "") -> list[str]:
    """Return the command that runs Python without the working directory on its path.

    ``python -m`` and ``python -c`` put it first: a json.py there would take the place of Python's own.

    Args:
        arguments: those of the command.
        interpreter: another Python of the same version, of an environment (environments.py); empty: this Python.
    """
    program = interpreter or sys.executable
    if sys.version_info >= (3, 11):
        return [program, "-P", *arguments]
    flag, first, *rest = arguments
    if flag == "-m":
        return [program, "-c", _SAFE + _RUN_MODULE, first, *rest]
    return [program, flag, _SAFE + first if flag == "-c" else first, *rest]


def _token() -> str:
    return f"{os.getpid()}-{secrets.token_hex(8)}"


@contextlib.contextmanager
def end_started_on_error() -> Iterator[None]:
    """End all that the block starts if an exception, such as that of a signal, leaves the block."""
    token = _token()
    before = os.environ.get(platform.MARK)
    os.environ[platform.MARK] = f"{before or ''}/{token}"
    try:
        yield
    except BaseException:
        platform.kill_marked(token)
        raise
    finally:
        if before is None:
            del os.environ[platform.MARK]
        else:
            os.environ[platform.MARK] = before


def end_all() -> None:
    """Kill what is left of all that the command line started: a program may clear the environment that marks it."""
    if Child.any_started:
        platform.end_orphans()


class Child:
    """A child process, together with all that it starts.

    Args:
        command: the program and its arguments.
        environment: its variables.
        group: it leads a session of its own; else the terminal's Ctrl-C reaches it, too.
        streams: stdin, stdout and stderr, as subprocess.Popen takes them.
    """

    #: Whether this process, which is the command line's or a child of it, adopts what its children leave behind.
    any_started = False

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, group: bool = True, **streams: Any
    ) -> None:
        self._group = group
        self._token = _token()
        if platform.MARK in os.environ:  # else a program that imports opcheck has children of its own
            Child.any_started = True
            platform.adopt_orphans()
        mark = f"{os.environ.get(platform.MARK, '')}/{self._token}"
        session = platform.own_session() if group else {}
        self.process = subprocess.Popen(command, env={**environment, platform.MARK: mark}, **session, **streams)

    @property
    def alive(self) -> bool:
        """Return whether it has not ended."""
        return self.process.poll() is None

    def wait(self) -> int:
        """Wait for the exit code; Ctrl-C is passed on to the child, which decides what it does."""
        while True:
            try:
                return self.process.wait()
            except KeyboardInterrupt:
                platform.interrupt(self.process.pid, in_other_group=self._group)

    def stop(self) -> int:
        """Send SIGTERM, then kill the process; return its exit code."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOPPING)
        return self.end()

    def end(self) -> int:
        """Kill the process and what it started, if still alive; return its exit code."""
        # A group outlives its leader.
        if self.alive or self._group:
            platform.kill(self.process.pid, group=self._group)
        platform.kill_marked(self._token)
        code = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        return code


class LineReader:
    """Reads the lines of a pipe that a child writes into.

    Args:
        descriptor: the end of the pipe to read from.
        alive: whether the child has not ended: a process that it started may keep the pipe open for ever.
    """

    def __init__(self, descriptor: int, alive: Callable[[], bool]) -> None:
        self._pipe = platform.selectable(descriptor)
        self._alive = alive
        self._rest = bytearray()
        self._searched = 0

    def __del__(self) -> None:
        if not isinstance(self._pipe, int):
            self._pipe.close()

    def next(self, deadline: float) -> bytes | None:
        """Return the next line without its end; None if the child has closed the pipe or ended.

        Args:
            deadline: by time.monotonic().

        Raises:
            LateError: it did not come by then.
            GarbledError: it is longer than LONGEST_LINE.
        """
        while True:
            end = self._rest.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._rest[:end])
                del self._rest[: end + 1]
                self._searched = 0
                return line
            self._searched = len(self._rest)
            if self._searched > LONGEST_LINE:
                raise GarbledError(f"a line of more than {LONGEST_LINE >> 20} MiB")
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
                return os.read(self._pipe, _CHUNK) if isinstance(self._pipe, int) else self._pipe.recv(_CHUNK)
            if not alive:
                return b""


class OutputTail:
    """Keeps the last part of a child's output, which may be endless.

    Args:
        stream: the pipe that it prints into; a thread reads it and closes it.
        most: bytes that are kept.
        pass_on: called with each part as it comes.
    """

    def __init__(self, stream: IO[bytes], most: int, pass_on: Callable[[bytes], None] | None = None) -> None:
        self._stream = stream
        self._most = most
        self._pass_on = pass_on
        self._kept = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self._stream as stream:
            while part := os.read(stream.fileno(), _CHUNK):
                if self._pass_on is not None:
                    self._pass_on(part)
                self._kept += part
                del self._kept[: -self._most]
        if self._pass_on is not None:
            self._pass_on(b"")

    def text(self) -> str:
        """Return the kept part as text."""
        # A process that the child started may keep the pipe open: wait a moment, not for the end of it.
        self._reader.join(_REST)
        return bytes(self._kept).decode(errors="replace")


class ToStderr:
    """Writes a child's output to stderr, sanitized for terminals and logs.

    It writes whole lines, because half of one does not show whether it is a command to the terminal; a progress bar
    ends its lines by CR.
    """

    def __init__(self) -> None:
        self._line = b""

    def __call__(self, part: bytes) -> None:
        """Write the complete lines; an empty part marks the end of the output."""
        part = part or (b"\n" if self._line else b"")
        *lines, self._line = (self._line + part).replace(b"\r", b"\n").split(b"\n")
        if len(self._line) > _CHUNK:
            lines, self._line = [*lines, self._line], b""
        text = "".join(f"{for_stderr(line.decode(errors='replace'))}\n" for line in lines if line)
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


def last_line(text: str) -> str:
    """Return the last non-empty line of a text, cut to 500 characters."""
    lines = (line.strip() for line in reversed(text.splitlines()))
    return next((line[:500] for line in lines if line), "")


class Finished(NamedTuple):
    """How a program ended, and what it printed."""

    code: int
    out: str
    err: str
    #: The program exceeded its time and was killed.
    late: bool


def run(command: Sequence[str], seconds: float, *, environment: Mapping[str, str] | None = None) -> Finished:
    """Run a program with an empty stdin until it or its time ends; nothing that it started is left.

    Args:
        command: the program and its arguments.
        seconds: what it may take.
        environment: its variables; those of this process if not given.
    """
    variables = os.environ if environment is None else environment
    child = Child(command, variables, **{**PIPES, "stdin": subprocess.DEVNULL})
    assert child.process.stdout is not None
    assert child.process.stderr is not None
    out, err = OutputTail(child.process.stdout, PRINTED), OutputTail(child.process.stderr, PRINTED)
    child.process.stdout = None  # its reader closes it
    late = False
    try:
        child.process.wait(seconds)
    except subprocess.TimeoutExpired:
        late = True
    finally:
        code = child.end()
    return Finished(code, out.text(), err.text(), late)
