"""What the child process tells its parent: one JSON object a line."""

from __future__ import annotations

from opcheck.model import Record, Trace


class Stage(Record, frozen=True, kw_only=True, tag="stage"):
    """The child goes on to the next thing."""

    text: str


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


Message = Stage | Failure | Done
