"""Answers of captures in child processes, and requests for many targets; all travel as JSON."""

from __future__ import annotations

from opcheck.capture.request import CaptureRequest
from opcheck.common.versions import Target
from opcheck.model.records import Record, Trace
from opcheck.worker.protocol import Failure


class Done(Record, frozen=True, kw_only=True, tag="done"):
    """The trace and, where the request has it, the graph as code."""

    trace: Trace
    code: str = ""
    #: the run raised after a library saw another release than the installed one, which may be why
    doubtful: bool = False


class ManyTargets(Record, frozen=True, kw_only=True):
    """One model on several targets; the target of ``capture`` is not looked at."""

    capture: CaptureRequest
    targets: tuple[Target, ...]
    #: libraries see the installed torch: loading failed with that of the targets
    as_installed: bool = False


class Shared(Record, frozen=True, kw_only=True):
    """One capture, and the targets that it serves, by their places among the requested ones."""

    targets: tuple[int, ...]
    #: of the first of them; None: there is none.
    trace: Trace | None = None
    #: what ``Trace.differences`` and ``Trace.differing_libraries`` are for each of them
    differences: tuple[tuple[str, ...], ...] = ()
    differing_libraries: tuple[tuple[str, ...], ...] = ()
    #: why there is no trace
    failure: Failure | None = None
    #: as in Done; a failure to load, too
    doubtful: bool = False


class Captures(Record, frozen=True, kw_only=True, tag="captures"):
    """One capture for each class of targets; ``left`` are those for which the model must be loaded anew."""

    shared: tuple[Shared, ...]
    left: tuple[int, ...] = ()
