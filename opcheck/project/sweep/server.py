"""``python -m opcheck.project.sweep.server``: has the libraries imported, and forks a child for each model.

A fork takes some 50 ms where an import takes 20 s.  A model that hangs, takes all memory or ends its process ends a child;
one that ends the process that forked it ends this one, which its worker starts again.
"""

from __future__ import annotations

import gc
import os
import select
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from typing import IO

import msgspec

from opcheck.capture import watchdog
from opcheck.capture.baseline_run import plain
from opcheck.capture.forked import OURS, Fork
from opcheck.capture.request import CaptureRequest
from opcheck.data.registrations import load
from opcheck.project.sweep import measure
from opcheck.project.sweep.prepare import preload, prepare, settle, warm
from opcheck.project.sweep.records import (
    Answer,
    Began,
    Control,
    Ended,
    Measured,
    Message,
    Model,
    Request,
)
from opcheck.worker.children import (
    Answers,
    GarbledError,
    LateError,
    Lines,
    adopt_orphans,
    children_of_this,
    die_with_parent,
    end_orphans,
    end_with_parent,
    how_it_ended,
)

#: seconds that a child gets beyond the limit that it keeps itself
GRACE = 15.0

Say = Callable[[Message], None]


def main() -> None:
    """Answer requests until stdin ends."""
    die_with_parent()
    adopt_orphans()
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
        _answer(request, seen, requests, say)


def _answer(request: Request, seen: set[str], requests: IO[bytes], say: Say) -> None:
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
    for message in child.messages(requests.fileno()):
        say(message)
    say(child.ended)


def _of(request: Request) -> tuple[Model, float]:
    if isinstance(request, Control):
        return request.model, 60.0
    return request.task.model, 2 * request.task.timeout


class _Child:
    """A fork of this process that works on one request.

    Args:
        request: what it works on.
        seconds: without a word of it.
    """

    def __init__(self, request: Request, seconds: float) -> None:
        self.seconds = seconds
        self.ended = Ended()
        self._rounds = 1 if isinstance(request, Control) else 1 + len(request.task.keys)
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed in _end
        self._others = {*children_of_this()}
        self._read, write = os.pipe()
        number = os.fork()
        if not number:
            os.close(self._read)
            _live(request, write, self._printed.fileno())
        os.close(write)
        self._fork = Fork(number)

    def messages(self, other_end: int) -> Iterator[Message]:
        """What it says; until it is done, dead or late, or our worker is gone."""

        def gone() -> bool:
            return bool(select.select([other_end], [], [], 0)[0])

        lines = Lines(self._read, lambda: self._fork.alive and not gone())
        answers = Answers[Message](lines, Message)
        # A model that says something again and again has no more time than the others.
        latest = time.monotonic() + self._rounds * (self.seconds + GRACE)
        problem = why = ""
        try:
            while message := answers.next(min(time.monotonic() + self.seconds + GRACE, latest)):
                if isinstance(message, Ended):
                    problem, why = "died", "ended: it wrote an answer of opcheck's"
                    break
                yield message
        except LateError:
            problem, why = "hung", f"ended after {self.seconds:g} s without a sign"
        except GarbledError as error:
            problem, why = "died", f"ended: it wrote what is no answer of opcheck's, {error}"
        self._end(problem, why)
        if gone():
            os._exit(0)

    def _end(self, problem: str, why: str) -> None:
        """Kill it, and what it started; say how it ended if that was not by itself."""
        code = self._fork.end(group=True, patience=0.0 if problem else 1.0)
        end_orphans(self._others)
        os.close(self._read)
        if code and not problem:
            problem, why = "died", f"{how_it_ended(code).removeprefix('was ')}{self._last()}"
        self.ended = Ended(why=why, problem=problem)
        self._printed.close()

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
    code = OURS
    try:
        os.setsid()
        end_with_parent()
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
