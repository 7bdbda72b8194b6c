"""Runs work in another process: ``Worker`` starts one and sends it requests, ``run_forked`` copies this one.

Whatever the process does, the caller gets the typed answer, the exception of opcheck's that the
process wrote down, or a ``WorkerError``; in time, in little memory, and with nothing of the process
left behind.

Neither of two libraries that were read gives the same guarantees.  pebble 5.2.3 and joblib 1.6.0
with its loky kill the process alone, not what it started (pebble, its common process module,
``stop_process``); they unpickle what the process wrote, so that a model could run code in its
parent; they neither keep a program's prints apart from the answers nor limit the length of an
answer; and a process has no stages of its own that extend its time.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import msgspec

from opcheck.worker import process, protocol
from opcheck.worker.platform import Fork, how_it_ended

if TYPE_CHECKING:
    from typing_extensions import Self

Request = TypeVar("Request")
Answer = TypeVar("Answer")

Progress = Callable[[str], None]

#: Seconds that a process gets beyond its limit, or after it has closed its pipe, to end by itself.
GRACE = 10.0
#: The same for a fork, which has no limit of its own.
_FORK_GRACE = 0.5
_GARBLED = "wrote what is no answer of opcheck's: {}"
#: Bytes of a process's output that are kept.
_TAIL = 4096

_NO_LIMITS = protocol.Limits()
_MESSAGES: msgspec.json.Decoder[protocol.Message] = msgspec.json.Decoder(protocol.Message)


class WorkerError(Exception):
    """The process gave no answer.  The text describes what it did: ``was ended by SIGKILL``.

    Args:
        kind: its time was over, it wrote what is no answer, or it ended.
        text: what it did.
        code: its exit code, where it ended by itself.
        stage: what it was doing.
        printed: the last line that it printed.
    """

    def __init__(
        self, kind: Literal["late", "garbled", "died"], text: str, *, code: int = 0, stage: str = "", printed: str = ""
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.code = code
        self.stage = stage
        self.printed = printed


class Worker(Generic[Request, Answer]):
    """A process that answers requests, one after the other; it starts with the first, and starts again where it ended.

    Args:
        function: ``MODULE:FUNCTION``, which the process calls with the request and a ``Say``.
        answer: the type of its result.
        environment: variables of the process in addition to those of this process.
        torch: import torch before the function's module, as a stage of its own.
        show_output: pass its output on to stderr.
        interpreter: the Python of an environment; empty: this Python.
    """

    def __init__(
        self,
        function: str,
        answer: Any,
        *,
        environment: Mapping[str, str] | None = None,
        torch: bool = False,
        show_output: bool = False,
        interpreter: str = "",
    ) -> None:
        flags = ("--torch",) if torch else ()
        self._command = process.python("-m", "opcheck.worker.child", *flags, function, interpreter=interpreter)
        self._answer = answer
        self._environment = environment or {}
        self._show_output = show_output
        self._child: process.Child | None = None
        self._lines: process.LineReader | None = None
        self._printed: process.OutputTail | None = None

    @property
    def alive(self) -> bool:
        """Return whether there is a process that has not ended."""
        return self._child is not None and self._child.alive

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.end()

    def ask(
        self,
        request: Request,
        seconds: float,
        *,
        subject: str = "",
        limits: protocol.Limits = _NO_LIMITS,
        more: float = 0.0,
        notes: protocol.Notes | None = None,
        progress: Progress | None = None,
    ) -> Answer:
        """Send a request, and wait for its answer.

        Args:
            request: the argument of the function, which JSON can express.
            seconds: what the answer may take, unless a stage requests more.
            subject: what the request is of, for errors.
            limits: what the process limits by itself.
            more: seconds that its stages can ask for altogether.
            notes: where it writes down what it reads.
            progress: called with each stage.

        Raises:
            OpcheckError: as the function does.
            WorkerError: there is no answer; the process has been ended.
        """
        kind = type(request)
        content, name = msgspec.Raw(msgspec.json.encode(request)), f"{kind.__module__}:{kind.__qualname__}"
        secret = protocol.new_secret()
        order = protocol.Order(request=content, secret=secret, type=name, subject=subject, limits=limits, notes=notes)
        child, lines = self._start()
        stage = "starting python"
        deadline = time.monotonic() + seconds
        latest = deadline + more
        assert child.process.stdin is not None
        # In a thread: a process that a program has stopped reads nothing, and a pipe buffers 64 KiB.
        arguments = (child.process.stdin, msgspec.json.encode(order) + b"\n")
        threading.Thread(target=_write, args=arguments, daemon=True).start()
        try:
            while (line := lines.next(deadline)) is not None:
                message = protocol.unseal(line, secret, _MESSAGES)
                if isinstance(message, protocol.Answered):
                    answer: Answer = protocol.decode(message.content, msgspec.json.Decoder(self._answer))
                    return answer
                if isinstance(message, protocol.WorkFailure):
                    raise protocol.error_of(message)
                stage = message.text
                if message.seconds:
                    # User code can write such a line, too, and must not run for ever.
                    seconds = message.seconds
                    deadline = min(time.monotonic() + seconds + GRACE, latest)
                if progress is not None:
                    progress(stage)
        except process.LateError as error:
            raise self._error("late", f"was not done after {seconds:g} s", stage) from error
        except process.GarbledError as error:
            raise self._error("garbled", _GARBLED.format(error), stage) from error
        # It closed its end of the pipe: let it end by itself.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(GRACE)
        raise self._error("died", "", stage)

    def _start(self) -> tuple[process.Child, process.LineReader]:
        if self._child is None or self._lines is None:
            self._child = child = process.Child(self._command, {**os.environ, **self._environment}, **process.PIPES)
            assert child.process.stdout is not None
            assert child.process.stderr is not None
            self._lines = process.LineReader(child.process.stdout.fileno(), lambda: child.alive)
            pass_on = process.ToStderr() if self._show_output else None
            self._printed = process.OutputTail(child.process.stderr, _TAIL, pass_on)
        return self._child, self._lines

    def _error(self, kind: Literal["late", "garbled", "died"], text: str, stage: str) -> WorkerError:
        printed = self._printed
        code = self.end()
        last = process.last_line(printed.text()) if printed is not None else ""
        return WorkerError(kind, text or how_it_ended(code), code=code, stage=stage, printed=last)

    def end(self) -> int:
        """Kill the process and all that it started; return its exit code.  Safe to call from another thread."""
        child, self._child = self._child, None
        if child is None:
            return 0
        code = child.end()
        if self._show_output and self._printed is not None:
            self._printed.text()  # until all of it is passed on
        return code


def _write(stream: IO[bytes], content: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # the process has ended, and its pipe is closed
        stream.write(content)
        stream.flush()


def run_program(
    function: str,
    file: Path,
    environment: Mapping[str, str],
    pass_on: Callable[[bytes], None] | None = None,
    interpreter: str = "",
) -> int:
    """Run a program of the user's in a process that has this one's standard streams, its terminal and its Ctrl-C.

    It answers through files: a program may close or write to every descriptor that it has.

    Args:
        function: ``MODULE:FUNCTION``, which is called with the path of ``file`` and returns the exit code.
        file: what the function reads.
        environment: all variables of the process.
        pass_on: called with each part of its stderr, and with an empty one at the end; without it,
            stderr is this process's.
        interpreter: the Python of an environment; empty: this Python.

    Returns:
        The exit code of the process; negative where a signal ended it.
    """
    command = process.python("-m", "opcheck.worker.child", "--program", function, str(file), interpreter=interpreter)
    child = process.Child(command, environment, group=False, stderr=subprocess.PIPE if pass_on else None)
    stream = child.process.stderr
    printed = process.OutputTail(stream, _TAIL, pass_on) if stream is not None else None
    try:
        # Its report is waited for.
        child.wait()
    except BaseException:
        child.stop()
        raise
    # What the program started does not outlive it.
    code = child.end()
    if printed is not None:
        printed.text()  # until all of it is passed on
    return code


def run_forked(
    work: Callable[..., Answer], reply: Any, seconds: float, *, more: float = 0, group: bool = True, quiet: bool = False
) -> Answer:
    """Return the result of ``work`` from a fork of this process, which shares all that is loaded here.

    A pool of threads does not live on in a fork: where torch has computed in this process, ``work`` begins with
    ``torch.set_num_threads(1)``, or gomp waits at a barrier for threads that are not there.

    Args:
        work: what is done there; its result can be written as JSON.  With ``more`` it is called with a ``Say``.
        reply: the type of that.
        seconds: the fork is killed after these, unless a stage requests more.
        more: seconds that its stages can ask for altogether; each of them has the grace of a process.
        group: what the fork has started is ended with it; else it stays in the session of this process, and who ends
            that ends it.
        quiet: its output is not shown; the last line is part of the error.

    Raises:
        WorkerError: it took longer than ``seconds``, wrote what is no answer, or ended before its answer.
    """
    reading, writing = os.pipe()
    secret = protocol.new_secret()
    with tempfile.TemporaryFile() if quiet else contextlib.nullcontext() as printed:

        def live() -> int:
            identity = os.getpid()

            def write(content: Any) -> None:
                if os.getpid() == identity:  # and not a fork of it that user code let run on
                    with os.fdopen(writing, "wb", closefd=False) as pipe:
                        pipe.write(protocol.seal(content, secret))

            os.close(reading)
            if printed is not None:
                os.dup2(printed.fileno(), 1)
                os.dup2(printed.fileno(), 2)
            write(work(lambda _text, *, seconds=0.0: write(seconds)) if more else work())
            return 0

        fork = Fork(live, group=group)
        os.close(writing)
        kind: Literal["late", "garbled", "died"] = "died"
        text = last = ""
        try:
            lines = process.LineReader(reading, lambda: fork.alive)
            decoder = msgspec.json.Decoder(reply | float if more else reply)
            deadline = time.monotonic() + seconds + (GRACE if more else 0)
            latest = deadline + more
            while (line := lines.next(deadline)) is not None:
                message: Answer | float = protocol.unseal(line, secret, decoder)
                if not more or not isinstance(message, float):
                    return cast("Answer", message)
                seconds = message or seconds
                deadline = min(time.monotonic() + message + GRACE, latest) if message else deadline
        except process.LateError:
            kind, text = "late", f"was not done after {seconds:g} s"
        except process.GarbledError as error:
            kind, text = "garbled", _GARBLED.format(error)
        finally:
            os.close(reading)
            code = fork.end(0.0 if kind != "died" else _FORK_GRACE)
        if printed is not None:
            printed.seek(max(printed.seek(0, os.SEEK_END) - _TAIL, 0))
            last = process.last_line(printed.read().decode(errors="replace"))
        raise WorkerError(kind, text or how_it_ended(code), code=code, printed=last)
