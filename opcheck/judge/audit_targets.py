"""Audit one model on many targets: one capture serves all targets on which the run is the same.  Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import OpcheckError
from opcheck.common.versions import Target
from opcheck.data.registrations import OpLists
from opcheck.judge.pipeline import asked_report, precision
from opcheck.model.records import Problem, Report, Trace


def audit_targets(
    request: CaptureRequest,
    targets: Sequence[Target],
    lists: OpLists,
    *,
    progress: Callable[[str], None] | None = None,
    show_output: bool = False,
    mac: int = 0,
) -> tuple[Report, ...]:
    """Return the report of ``pipeline.audit`` for each target, in their order.

    The model is built once, and run once for all targets that send it the same way
    (simulator/same_dispatch.py).  Where the process of such a run dies, the reports of its targets
    say so (a problem ``process_died``); the others stand.

    Args:
        request: the model and its inputs; its own target is ignored.
        targets: the targets to report on.
        lists: the op lists to judge by.
        progress: called with the stages of the captures.
        show_output: pass on what the model prints, to stderr.
        mac: memory in GB of the Mac that it should fit; 0: none in particular.

    Raises:
        OpcheckError: the model or its inputs cannot be loaded, a target is not in the lists, or no run left a trace.
    """
    if not targets:
        return ()
    from opcheck.capture.parent import capture_many

    captured = capture_many(request, targets, progress=progress, show_output=show_output)
    traces = [each for each in captured if isinstance(each, Trace)]
    if not traces:
        raise next(each for each in captured if isinstance(each, OpcheckError))
    compared = precision(request, traces[0], progress, show_output=show_output)
    return tuple(
        asked_report(
            request, _trace(each, request, target), target, lists, mac=mac, precision=compared
        )
        for each, target in zip(captured, targets, strict=True)
    )


def _trace(captured: Trace | OpcheckError, request: CaptureRequest, target: Target) -> Trace:
    if isinstance(captured, Trace):
        return captured
    return Trace(
        model=request.model,
        mode=request.mode,
        tracer=request.tracer,
        target_torch=str(target.torch),
        target_macos=str(target.macos),
        complete=False,
        problems=(
            Problem(kind="process_died", message=f"{captured.message} ({captured.context})"),
        ),
    )
