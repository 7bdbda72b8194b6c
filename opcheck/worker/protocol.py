"""What a child process and its parent write to each other: one JSON object a line.

The parent writes an ``Order``.  The child writes a ``Stage`` whenever it goes on to the next thing,
and then exactly one ``Answered`` or ``Failure``.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from opcheck.common import errors
from opcheck.common.errors import CaptureError, OpcheckError
from opcheck.model.records import Record


class Limits(Record, frozen=True, kw_only=True):
    """What a child may take, by limits that it keeps itself."""

    #: Seconds, from when it has imported what it needs; 0: its parent alone limits its time.
    seconds: float = 0.0
    #: Bytes of memory beyond what it holds once it has imported what it needs; 0: as many as there are.
    memory: int = 0


class Notes(Record, frozen=True, kw_only=True):
    """Where a child writes down what it reads (dependency_tracking.py)."""

    #: The file, to which lines are appended.
    path: str
    #: Folders of which nothing is written down: their contents are part of what a result is found by.
    known: tuple[str, ...] = ()


class Order(Record, frozen=True, kw_only=True):
    """What the child is to do."""

    request: msgspec.Raw
    #: The class of the request, as ``module:name``.
    type: str
    #: What the request is of, such as the model's name: the context of errors.
    subject: str = ""
    limits: Limits = Limits()
    #: Where the child writes down what it reads; None: nobody asks.
    notes: Notes | None = None


class Stage(Record, frozen=True, kw_only=True, tag="stage"):
    """The child goes on to the next thing."""

    text: str
    #: Seconds that it needs for this, whatever is left of its time; 0: it needs no more.
    seconds: float = 0.0


class Failure(Record, frozen=True, kw_only=True, tag="failure"):
    """The work could not be done; ``error`` names a class of opcheck.common.errors."""

    error: str
    message: str
    context: str = ""
    hint: str = ""


class Answered(Record, frozen=True, kw_only=True, tag="answered"):
    """What the child was asked for; the parent knows its type."""

    content: msgspec.Raw


Message = Stage | Failure | Answered


class Say(Protocol):
    """Tells the parent of a stage; its arguments are those of Stage."""

    def __call__(self, text: str, *, seconds: float = 0.0) -> None:
        """Write the stage."""


def silent(text: str, *, seconds: float = 0.0) -> None:
    """A ``Say`` where nobody waits for the stages."""


def failure_of(error: BaseException, subject: str) -> Failure:
    """The exception as it travels: opcheck's own with its three lines, another as a CaptureError of ``subject``."""
    if isinstance(error, OpcheckError):
        name = type(error).__name__
        return Failure(error=name, message=error.message, context=error.context, hint=error.hint)
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return Failure(
        error=CaptureError.__name__,
        message=f"the capture of this model broke off: {text}",
        context=subject,
        hint="run again with -v to see what the process printed",
    )


def error_of(failure: Failure) -> OpcheckError:
    """The exception that a child wrote down; a CaptureError where it names none of opcheck's."""
    kind = _ERRORS.get(failure.error, CaptureError)
    return kind(failure.message, context=failure.context, hint=failure.hint)


#: The exceptions that a child may name: user code can write that name.
_ERRORS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, OpcheckError)
}
