"""``python -m opcheck.sweep.server``: has the libraries imported, and forks a child for each model.

A fork takes some 50 ms where an import takes 20 s.  A model that hangs, takes all memory or ends its process ends a child;
one that ends the process that forked it ends this one, which its worker starts again.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from typing import IO

import msgspec

from opcheck.capture import watchdog
from opcheck.capture.plain import plain
from opcheck.capture.request import CaptureRequest
from opcheck.oplists.registrations import load
from opcheck.sweep import measure
from opcheck.sweep.prepare import preload, prepare, settle, warm
from opcheck.sweep.records import (
    Answer,
    Began,
    Control,
    Ended,
    Measured,
    Message,
    Model,
    Request,
)

#: seconds that a child gets beyond the limit that it keeps itself
GRACE = 15.0
#: bytes of a line that may be longer than a pipe takes at once
_PART = 1 << 16

Say = Callable[[Message], None]


def main() -> None:
    """Answer requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    quiet = os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 0)
    os.dup2(2, 1)

    def say(message: Message) -> None:
        answers.write(msgspec.json.encode(message) + b"\n")
        answers.flush()

    say(Began(text="importing torch"))
    prepare()
    warm()
    settle()
    seen: set[str] = set()
    while line := requests.readline():
        request = msgspec.json.decode(line, type=Request)
        _answer(request, seen, requests, answers, say)


def _answer(
    request: Request, seen: set[str], requests: IO[bytes], answers: IO[bytes], say: Say
) -> None:
    model, seconds = _of(request)
    say(Began(text=f"importing what {model.spec} needs"))
    try:
        preload(model.library, model.spec.partition(":")[2])
    except BaseException:  # noqa: BLE001 - the child meets it again, and reports it
        traceback.print_exc()
    if model.library not in seen:
        seen.add(model.library)
        gc.collect()
    gc.freeze()
    child = _Child(request, seconds)
    for part in child.lines(requests.fileno()):
        answers.write(part)
        answers.flush()
    say(child.ended)


def _of(request: Request) -> tuple[Model, float]:
    if isinstance(request, Control):
        return request.model, 60.0
    return request.task.model, 2 * request.task.timeout


class _Child:
    """A fork of this process that works on one request."""

    def __init__(self, request: Request, seconds: float) -> None:
        self.seconds = seconds
        self.ended = Ended()
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed in _end
        self._read, write = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(self._read)
            _live(request, write, self._printed.fileno())
        os.close(write)

    def lines(self, other_end: int) -> Iterator[bytes]:
        """What it says, whole lines; until it is done, dead or late, or our worker is gone."""
        rest, ends = b"", time.monotonic() + self.seconds + GRACE
        late = gone = False
        while True:
            ready, _, _ = select.select(
                [self._read, other_end], [], [], max(ends - time.monotonic(), 0)
            )
            gone = other_end in ready
            late = not ready
            if gone or late:
                break
            part = os.read(self._read, _PART)
            if not part:
                break
            ends = time.monotonic() + self.seconds + GRACE
            *whole, rest = (rest + part).split(b"\n")
            for line in whole:
                yield line + b"\n"
        self._end(late=late)
        if gone:
            os._exit(0)

    def _end(self, *, late: bool) -> None:
        """Kill it, and what it started; say how it ended if that was not by itself."""
        done, status = os.waitpid(self._pid, 0 if not late and self._dying() else os.WNOHANG)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        if not done:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            _, status = os.waitpid(self._pid, 0)
        os.close(self._read)
        code = os.waitstatus_to_exitcode(status)
        if late:
            self.ended = Ended(why=f"ended after {self.seconds:g} s without a sign", problem="hung")
        elif code:
            how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
            self.ended = Ended(why=f"{how}{self._last()}", problem="died")
        self._printed.close()

    def _dying(self) -> bool:
        """Whether it ends within a second: its pipe is closed."""
        ends = time.monotonic() + 1
        while time.monotonic() < ends:
            if os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return True
            time.sleep(0.005)
        return False

    def _last(self) -> str:
        self._printed.seek(max(self._printed.seek(0, os.SEEK_END) - 4096, 0))
        lines = self._printed.read().decode(errors="replace").splitlines()
        return next(
            (
                f"; it printed last: {line.strip()[:200]}"
                for line in reversed(lines)
                if line.strip()
            ),
            "",
        )


def _live(request: Request, write: int, printed: int) -> None:
    """The child: works, says what came out, and ends, whatever happens."""
    code = 1
    try:
        os.setsid()
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        pipe = os.fdopen(write, "wb", buffering=0)

        def say(message: Message) -> None:
            content = memoryview(msgspec.json.encode(message) + b"\n")
            while content:
                content = content[pipe.write(content) :]

        _work(request, say)
        code = 0
    except BaseException:  # noqa: BLE001 - it is this child's end, whatever it is
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _work(request: Request, say: Say) -> None:

    memory = request.memory if isinstance(request, Control) else request.task.memory
    watchdog.limit_memory(int(memory * 1e9))
    if isinstance(request, Control):
        say(Answer(text=plain(_asked(request), build_only=request.stage == "load")))
        return
    for result in measure.results(request.task, load(), say):
        say(Measured(result=result))


def _asked(control: Control) -> CaptureRequest:
    return CaptureRequest(
        model=control.model.spec,
        torch="",
        macos="",
        inputs=control.model.inputs,
        config=control.config,
        mode=control.mode,
    )


if __name__ == "__main__":
    main()
