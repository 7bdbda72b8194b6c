"""The child process: ``python -m opcheck.capture.worker`` reads a request and runs the user's code."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import TYPE_CHECKING

import msgspec

from opcheck.capture import dependency_tracking, installed, watchdog
from opcheck.capture.protocol import Done, Failure, Message, Stage, failure_of
from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import CaptureError, OpcheckError
from opcheck.worker.children import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from opcheck.capture.protocol import Say

    #: what answers a request
    Work = Callable[[CaptureRequest, Say], Message]


def _capture() -> Work:
    from opcheck.capture import run  # noqa: PLC0415 - importing torch is the first thing that can fail

    def work(request: CaptureRequest, say: Say) -> Message:
        captured = run.run(request, say)
        return Done(trace=captured.trace, code=captured.code)

    return work


def main(load: Callable[[], Work] = _capture) -> int:
    """Answer one request by what ``load`` imports; what user code prints goes to stderr."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    process = os.getpid()
    try:
        request = msgspec.json.decode(sys.stdin.buffer.read(), type=CaptureRequest)
        if request.notes:
            dependency_tracking.note_down(request.notes)
        # Reading the rest of our stdin must not hang user code that asks for input.
        sys.stdin.close()
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
        message = _answer(load, request, answers)
        if os.getpid() == process:  # and not a fork of it that user code let run on
            _send(answers, message)
    finally:
        watchdog.rest()
        answers.close()
    return 0


def _answer(load: Callable[[], Work], request: CaptureRequest, answers: BinaryIO) -> Message:
    process = os.getpid()

    def say(text: str, *, seconds: float = 0.0) -> None:
        if os.getpid() == process:
            _send(answers, Stage(text=text, seconds=seconds))

    say("importing torch")
    # TorchScript asks C++ for the device, which says ``cpu``: it runs as the Python that it was made from.
    os.environ["PYTORCH_JIT"] = "0"
    try:
        installed.require()
        work = load()
        watchdog.limit_memory(int(request.memory_limit * 1e9) or watchdog.default_memory())
        watchdog.limit_time(request.time_limit)
        return work(request, say)
    except OpcheckError as error:
        return failure_of(error, request.model)
    except watchdog.TimeLimitReached:
        return Failure(
            error=CaptureError.__name__,
            message=f"the model was not loaded after {request.time_limit:g} s",
            context=request.model,
            hint="give it longer with --timeout",
        )
    except BaseException as error:  # noqa: BLE001 - user code can raise anything while it is imported
        with contextlib.suppress(Exception):  # it may have closed stderr
            traceback.print_exc()
        return failure_of(error, request.model)


def _send(answers: BinaryIO, message: Message) -> None:
    answers.write(msgspec.json.encode(message) + b"\n")
    answers.flush()


def end(code: int) -> None:
    """End the process: threads and atexit handlers of user code must not keep it from that."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # user code may have closed it
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    end(main())
