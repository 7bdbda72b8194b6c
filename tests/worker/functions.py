"""What the workers of test_worker run."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time

from opcheck.common.errors import InputError
from opcheck.model.records import Record
from opcheck.worker.protocol import Say


class Question(Record, frozen=True, kw_only=True):
    do: str
    number: int = 0


class Reply(Record, frozen=True, kw_only=True):
    number: int
    process: int


def write(content: bytes) -> None:
    """Write where the answers go, as a hostile program does."""
    for descriptor in range(3, 16):
        with contextlib.suppress(OSError):
            os.write(descriptor, content)


def answer(question: Question, say: Say) -> Reply:
    say(f"doing {question.do}")
    if question.do == "print":
        sys.stdout.write("printed")
        sys.stdout.flush()
        os.write(1, b"written\n")
        assert sys.stdin.read() == ""
    if question.do == "count what is frozen":
        assert gc.isenabled()
        return Reply(number=gc.get_freeze_count(), process=os.getpid())
    if question.do == "raise":
        raise InputError("no", context="where", hint="how")
    if question.do == "break":
        raise ValueError("broken")
    if question.do == "exit":
        os.write(2, b"last words\n")
        os._exit(3)
    if question.do == "sleep":
        time.sleep(600)
    if question.do == "extend":
        say("more", seconds=600.0)
        time.sleep(600)
    if question.do.startswith("write "):
        write(question.do.removeprefix("write ").encode("latin-1") + b"\n")
        time.sleep(600)
    return Reply(number=question.number, process=os.getpid())
