"""The child process: ``python -m opcheck.capture.worker`` reads a request and runs the user's code."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

import msgspec

from opcheck.capture.protocol import Done, Failure, Message, Stage
from opcheck.capture.request import CaptureRequest
from opcheck.errors import CaptureError, OpcheckError

if TYPE_CHECKING:
    from typing import BinaryIO


def main() -> int:
    """Answer one request; what user code prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        request = msgspec.json.decode(sys.stdin.buffer.read(), type=CaptureRequest)
        # Reading the rest of our stdin must not hang user code that asks for input.
        sys.stdin.close()
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
        _send(answers, _answer(request, answers))
    finally:
        answers.close()
    return 0


def _answer(request: CaptureRequest, answers: BinaryIO) -> Message:
    def say(text: str) -> None:
        _send(answers, Stage(text=text))

    say("importing torch")
    # TorchScript asks C++ for the device, which says ``cpu``: it runs as the Python that it was made from.
    os.environ["PYTORCH_JIT"] = "0"
    try:
        from opcheck.capture import run  # noqa: PLC0415 - importing torch is the first thing that can fail

        run.limit_time(request.time_limit)
        captured = run.run(request, say)
        return Done(trace=captured.trace, code=captured.code)
    except OpcheckError as error:
        return Failure(
            error=type(error).__name__,
            message=error.message,
            context=error.context,
            hint=error.hint,
        )
    except BaseException as error:  # noqa: BLE001 - user code can raise anything while it is imported
        traceback.print_exc()
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return Failure(
            error=CaptureError.__name__,
            message=f"the capture of this model broke off: {text}",
            context=request.model,
            hint="run again with -v to see what the process printed",
        )


def _send(answers: BinaryIO, message: Message) -> None:
    answers.write(msgspec.json.encode(message) + b"\n")
    answers.flush()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads and atexit handlers of user code must not keep the process from ending.
    os._exit(code)
