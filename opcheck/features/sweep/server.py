"""The server process of a worker, which imports the libraries once and forks for each model and mode.

A fork takes some 50 ms where an import takes 20 s.  A model that hangs, takes all memory or ends
its process ends a fork; a model that ends the process that forked it ends this process, and its
worker starts it again.  Where a process cannot be copied, each model and mode has a server of its own.
"""

from __future__ import annotations

import functools
import gc
import traceback

from opcheck.capture.child.baseline_run import plain
from opcheck.capture.request import CaptureRequest
from opcheck.common.versions import Target
from opcheck.data.registrations import load
from opcheck.features.sweep import measure
from opcheck.features.sweep.prepare import preload, prepare, settle, warm
from opcheck.features.sweep.records import (
    Control,
    EndedProcess,
    Measure,
    MeasuredResult,
    PlainRun,
    Prepare,
    Reply,
)
from opcheck.worker import platform
from opcheck.worker.protocol import Say
from opcheck.worker.worker import WorkerError, forked

#: Seconds that a fork gets beyond the limit that it keeps itself.
_GRACE = 15.0
#: Seconds that a model may take without opcheck.
_CONTROL = 60.0


def answer(request: Prepare | Measure | Control, say: Say) -> Reply:
    """Import what all models need, or run a model in a fork: its result, or how the fork ended."""
    if isinstance(request, Prepare):
        platform.adopt_orphans()
        prepare()
        warm()
        settle()
        return PlainRun(text="")
    if isinstance(request, Control):
        model, seconds, newest = request.model, _CONTROL, None
    else:
        model, seconds = request.task.model, request.task.seconds
        newest = max(request.task.targets, key=lambda target: (target.torch, target.macos))
    _import_for(model.library, model.spec.partition(":")[2], newest)
    # The worker ends this process when this time is over: a model may have stopped it, and the fork's limit with it.
    say("running the model", seconds=seconds + _GRACE)
    if not platform.CAN_FORK:
        return _reply(request)
    others = {*platform.children_of_this_process()}
    try:
        return forked(lambda: _reply(request), Reply, seconds + _GRACE, quiet=True)
    except WorkerError as error:
        if error.kind == "late":
            return EndedProcess(problem="hung", how=f"was ended after {seconds:g} s without a sign")
        last = f"; it printed last: {error.printed}" if error.printed else ""
        return EndedProcess(problem="died", how=f"{error}{last}")
    finally:
        platform.end_orphans(others)


def _import_for(library: str, name: str, target: Target | None) -> None:
    try:
        preload(library, name, target)
    except BaseException:  # noqa: BLE001 - the fork meets it again, and reports it
        traceback.print_exc()
    _collect(library)
    gc.freeze()


@functools.cache
def _collect(_library: str) -> None:
    """Collect the garbage that a library's import has left, once."""
    gc.collect()


def _reply(request: Measure | Control) -> Reply:
    """Run the model in the fork, within the requested limits."""
    if platform.CAN_FORK:
        platform.confine_signals()
    if isinstance(request, Measure):
        platform.limit_memory(int(request.task.memory * 1e9))
        return MeasuredResult(result=measure.result(request.task, request.mode, load()))
    platform.limit_memory(int(request.memory * 1e9))
    capture = CaptureRequest(
        model=request.model.spec,
        torch="",
        macos="",
        inputs=request.model.inputs,
        config=request.config,
        mode=request.mode,
    )
    return PlainRun(text=plain(capture, build_only=request.stage == "load"))
