"""What the child process tells its parent: one JSON object a line."""

from __future__ import annotations

from typing import Protocol

import msgspec

from opcheck.common.errors import CaptureError, OpcheckError
from opcheck.model.records import Precision, Record, Trace


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


class Shared(Record, frozen=True, kw_only=True):
    """What one capture came to, and the targets that it serves, by their places among those asked for."""

    targets: tuple[int, ...]
    #: of the first of them; None: there is none.
    trace: Trace | None = None
    #: what ``Trace.differences`` is for each of them
    differences: tuple[tuple[str, ...], ...] = ()
    #: why there is no trace
    failure: Failure | None = None


class Captures(Record, frozen=True, kw_only=True):
    """One capture for each class of targets; ``left`` are those for which the model must be loaded anew."""

    shared: tuple[Shared, ...]
    left: tuple[int, ...] = ()


class Compared(Record, frozen=True, kw_only=True, tag="compared"):
    """The runs beside float64 (opcheck/numerics/precision)."""

    precision: tuple[Precision, ...]


class Answered(Record, frozen=True, kw_only=True, tag="answered"):
    """What another kind of work than the capture came to; who asked knows its type."""

    content: msgspec.Raw


Message = Stage | Failure | Done | Compared | Answered


def failure_of(error: BaseException, model: str) -> Failure:
    """The exception as it travels: one of ours, or whatever user code raises."""
    if isinstance(error, OpcheckError):
        name = type(error).__name__
        return Failure(error=name, message=error.message, context=error.context, hint=error.hint)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return Failure(
        error=CaptureError.__name__,
        message=f"the capture of this model broke off: {text}",
        context=model,
        hint="run again with -v to see what the process printed",
    )


class Say(Protocol):
    """Tells the parent of a stage; its arguments are those of Stage."""

    def __call__(self, text: str, *, seconds: float = 0.0) -> None:
        """Tell it."""
