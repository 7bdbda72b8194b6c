"""What the child process tells its parent: one JSON object a line."""

from __future__ import annotations

from typing import Protocol

import msgspec

from opcheck.model import Precision, Record, Trace


class Stage(Record, frozen=True, kw_only=True, tag="stage"):
    """The child goes on to the next thing."""

    text: str
    #: what it needs for this, in seconds, whatever is left of its time; 0: nothing of its own.
    seconds: float = 0.0


class Failure(Record, frozen=True, kw_only=True, tag="failure"):
    """The work could not be done; ``error`` names a class of opcheck.errors."""

    error: str
    message: str
    context: str = ""
    hint: str = ""


class Done(Record, frozen=True, kw_only=True, tag="done"):
    """The trace and, where it was asked for, the graph as code."""

    trace: Trace
    code: str = ""


class Compared(Record, frozen=True, kw_only=True, tag="compared"):
    """The runs beside float64 (opcheck/precision)."""

    precision: tuple[Precision, ...]


class Answered(Record, frozen=True, kw_only=True, tag="answered"):
    """What another kind of work than the capture came to; who asked knows its type."""

    content: msgspec.Raw


Message = Stage | Failure | Done | Compared | Answered


class Say(Protocol):
    """Tells the parent of a stage; its arguments are those of Stage."""

    def __call__(self, text: str, *, seconds: float = 0.0) -> None:
        """Tell it."""
