"""The child process: ``python -m opcheck.worker.child MODULE:FUNCTION`` answers the orders on its stdin.

``FUNCTION(request, say)`` returns the answer or raises.  What it prints goes to stderr, and its
stdin is empty: the pipes to the parent are kept apart from user code.  With ``--torch`` torch is
imported before the limits of an order begin, and a torch that cannot be used is a failure in three
lines.

``python -m opcheck.worker.child --program MODULE:FUNCTION FILE`` is a program of the user's, with the standard streams
of its parent: ``FUNCTION(FILE)`` runs it and returns its exit code.
"""

import contextlib
import gc
import os
import pkgutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

# Ctrl-C ends a program's imports as the signal does, without a traceback.
if (
    sys.argv[1:2] == ["--program"]
    and __name__ == "__main__"
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import msgspec

from opcheck.common.errors import CaptureError, OpcheckError
from opcheck.worker import dependency_tracking, environments, platform
from opcheck.worker.protocol import Answered, Message, Order, Stage, failure_of, seal

#: A program may replace these in their modules.
_EXIT, _FAILED = os._exit, platform.Fork.FAILED


def main(arguments: list[str]) -> None:
    """Answer until there are no more orders, or run the program; it ends the process."""
    platform.die_with_parent()
    # What is imported stays as long as the process; to go through it for garbage takes a fifth of the imports' time.
    gc.disable()
    flag, name, *rest = arguments if arguments[0].startswith("--") else ("", *arguments)
    if flag == "--program":
        _run_program(name, Path(*rest))
    platform.confine_signals()
    orders, answers = _take_streams()
    process = os.getpid()
    for line in orders:
        order = msgspec.json.decode(line, type=Order)
        message = _answer(name, order, answers, torch=flag == "--torch")
        _flush()
        if os.getpid() != process:  # a fork of it that user code let run on
            break
        _send(answers, message, order)
    # Threads and atexit handlers of user code must not keep the process alive.
    os._exit(0)


def _run_program(name: str, file: Path) -> None:
    """Run the program and end the process; no program leaves a traceback of opcheck's, however it damaged Python."""
    is_done = False
    try:
        code = _resolve(name)(file)
        is_done = True
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        platform.interrupt_main_thread()
    finally:  # a program may have removed the names of all exceptions
        if not is_done:
            _EXIT(_FAILED)
    _flush()
    sys.exit(code)


def _resolve(name: str) -> Callable[..., Any]:
    """Import the function of the work; from then on garbage is collected among new objects alone."""
    function: Callable[..., Any] = pkgutil.resolve_name(name)
    if not gc.isenabled():
        gc.freeze()
    gc.enable()
    return function


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # user code may have closed it
            stream.flush()


def _take_streams() -> tuple[BinaryIO, BinaryIO]:
    """Return the streams of orders and answers; user code gets an empty stdin, and stderr for both its outputs."""
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("rb") as empty:
        os.dup2(empty.fileno(), 0)
    os.dup2(2, 1)
    return orders, answers


def _answer(name: str, order: Order, answers: BinaryIO, *, torch: bool) -> Message:
    process = os.getpid()

    def say(text: str, *, seconds: float = 0.0) -> None:
        if os.getpid() == process:
            _send(answers, Stage(text=text, seconds=seconds), order)

    try:
        if order.notes is not None:
            dependency_tracking.note_down(order.notes)
        if torch:
            say("importing torch")
            environments.require()
        work = _resolve(name)
        request = msgspec.json.decode(order.request, type=pkgutil.resolve_name(order.type))
        if order.limits.memory:
            platform.limit_memory(order.limits.memory)
        if order.limits.seconds:
            # The parent's time limit starts again: the imports do not count.
            say("starting", seconds=order.limits.seconds)
            platform.limit_time(order.limits.seconds)
        content = msgspec.json.encode(work(request, say))
    except OpcheckError as error:
        return failure_of(error, order.subject)
    except platform.TimeLimitReached:
        text = f"the model was not loaded after {order.limits.seconds:g} s"
        return failure_of(CaptureError(text, context=order.subject, hint="give it longer with --timeout"), "")
    except BaseException as error:  # noqa: BLE001 - user code can raise anything while it is imported
        with contextlib.suppress(Exception):  # it may have closed stderr
            traceback.print_exc()
        return failure_of(error, order.subject)
    finally:
        platform.stop_time_limit()
    return Answered(content=msgspec.Raw(content))


def _send(answers: BinaryIO, message: Message, order: Order) -> None:
    # User code may have closed the pipe, or the parent has ended this process's work.
    with contextlib.suppress(OSError):
        answers.write(seal(message, order.secret))
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
