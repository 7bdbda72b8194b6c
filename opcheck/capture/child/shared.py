"""One capture for all targets that share a run; the model is built once.

Each run has a fork of its own, which begins with the model as it was built: a run changes a model, and a run that
raises, hangs or ends its process ends no other.  Runs in the process that it is called in: the model is loaded there.
Where a process cannot be copied, each class of targets needs a process of its own, which loads the model again.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch

from opcheck.capture.child import run
from opcheck.capture.request import CaptureRequest, Captures, ManyTargets, Shared
from opcheck.common.errors import CaptureError, LibraryLoadError, ModelLoadError
from opcheck.common.versions import Target
from opcheck.data.registrations import load as load_lists
from opcheck.model.records import Trace
from opcheck.simulator import target_reads
from opcheck.simulator.dispatch.mps_registrations import same_dispatch
from opcheck.worker import platform
from opcheck.worker.protocol import Say, WorkFailure, error_of, failure_of, silent
from opcheck.worker.worker import WorkerError, run_forked

#: Seconds that a fork gets in addition to the time limit of its run, to make a trace of it.
SECONDS_AFTER_RUN = 150.0


def answer(request: ManyTargets, say: Say) -> Captures:
    """Return the outcome of ``captures`` to the parent of this process."""
    if request.as_installed:
        target_reads.READS.all_outdated = True
    return captures(request.capture, request.targets, say)


def captures(request: CaptureRequest, targets: Sequence[Target], say: Say) -> Captures:
    """Capture the model of ``request`` once for each class of targets that share a run.

    Call it in a process that nothing else is to happen in: user code may run here, and PYTORCH_ENABLE_MPS_FALLBACK is
    set.

    Args:
        request: the model and its inputs; its own target is not looked at.
        targets: those to be served.
        say: called with the stages.

    Returns:
        The captures, those of newer releases first.  ``left`` are targets that give other answers than this process
        has had: they need another process.

    Raises:
        ModelLoadError, InputError: as ``capture.run`` does, for any release.
        OpListError: the lists have no such torch release.
        CaptureError: this process has loaded code that saw another Mac.
    """
    # The newest first: it has most kernels, and so its run shows most queries.
    order = sorted(
        range(len(targets)),
        key=lambda n: (targets[n].torch, targets[n].macos, targets[n].cpu_fallback),
        reverse=True,
    )
    if not order:
        return Captures(shared=())
    for target in targets:
        load_lists().release(str(target.torch))
    left = [n for n in order if not target_reads.READS.fits(targets[n])]
    newest_first = order = [n for n in order if n not in left]
    if not order:
        raise CaptureError(
            f"this process has loaded programs for another Mac than {targets[left[0]]}",
            context=request.model,
            hint="capture it in a process of its own: opcheck.capture.parent.capture_many",
        )
    # A library keeps the answers that it got at its import: each class of targets with other answers loads the model in
    # a fork of its own, which has torch from here.
    forks = platform.can_fork() and len({targets[n].torch for n in order}) > 1
    shared: list[Shared] = []
    while order:
        target = targets[order[0]]
        if forks:
            say(f"loading {request.model} as on {target}", seconds=_limit(request, len(order)))
            result = _in_a_fork(request, targets, order)
        else:
            result = _loaded_and_run(request, targets, order, say)
        shared += result.shared
        order = [*result.left]
        if not forks:
            break
    rank = {n: place for place, n in enumerate(newest_first)}
    shared.sort(key=lambda each: rank[each.targets[0]])
    return Captures(shared=tuple(shared), left=(*order, *left))


def _limit(request: CaptureRequest, runs: int) -> float:
    """Return the seconds that loading and some runs may take."""
    return (runs + 1) * (request.time_limit + SECONDS_AFTER_RUN)


def _in_a_fork(
    request: CaptureRequest, targets: Sequence[Target], order: Sequence[int]
) -> Captures:
    """Load and run the model in a fork; the targets left are those that the load answered otherwise."""

    def work() -> Captures | WorkFailure:
        # A pool of threads does not live on in a fork, nor does the timer of its parent.
        torch.set_num_threads(1)
        platform.limit_time(request.time_limit)
        try:
            return _loaded_and_run(request, targets, order, silent)
        except platform.TimeLimitReached:
            late = CaptureError(
                f"the model was not loaded after {request.time_limit:g} s", context=request.model
            )
            return failure_of(late, request.model)
        except Exception as error:  # noqa: BLE001 - user code runs here: its error crosses the pipe
            return failure_of(error, request.model)

    try:
        result = run_forked(work, Captures | WorkFailure, _limit(request, len(order)), group=False)
    except WorkerError as error:
        raise CaptureError(
            f"the process that loaded the model {error}",
            context=f"{request.model}, as on {targets[order[0]]}",
            hint="run again with -v to see all that it printed",
        ) from None
    if isinstance(result, WorkFailure):
        raise error_of(result)
    return result


def _loaded_and_run(
    request: CaptureRequest,
    targets: Sequence[Target],
    order: Sequence[int],
    say: Say,
) -> Captures:
    """Load the model as on the first target, and run it for all targets that would have loaded the same.

    Args:
        request: the model and its inputs.
        targets: all targets.
        order: the places of those that are to be served.
        say: called with the stages.
    """
    target_reads.set_fallback(targets[order[0]])
    try:
        prepared = run.prepare(request, targets[order[0]], say)
    except ModelLoadError as error:
        served = [n for n in order if target_reads.READS.fits(targets[n])]
        trace = run.trace_of_constructor(request, targets[order[0]], error)
        if trace is not None:
            failed = shared_by(targets, served, trace)
        elif isinstance(error, LibraryLoadError):
            failure = failure_of(error, request.model)
            failed = Shared(targets=tuple(served), failure=failure, doubtful=True)
        else:
            raise
        return Captures(shared=(failed,), left=tuple(n for n in order if n not in served))
    finally:
        if len(targets) > 1:
            platform.stop_time_limit()
    here = [n for n in order if target_reads.READS.fits(targets[n])]
    shared = []
    waiting = here
    forks = platform.can_fork()  # the model may have run a backward pass when it was loaded
    while waiting:
        target = targets[waiting[0]]
        if len(targets) > 1:
            say(f"running as {target}", seconds=request.time_limit + SECONDS_AFTER_RUN)
        captured = _capture_first(request, prepared, targets, waiting, say, forks=forks)
        shared.append(captured)
        waiting = [n for n in waiting if n not in captured.targets]
        if not forks:
            break
    left = tuple(n for n in order if n not in here or n in waiting)
    return Captures(shared=tuple(shared), left=left)


def shared_by(
    targets: Sequence[Target], served: Sequence[int], trace: Trace, **facts: Any
) -> Shared:
    """Return the capture with the differences of each target that it serves."""
    differences = [run.differences(targets[n]) for n in served]
    return Shared(
        targets=tuple(served),
        trace=trace,
        differences=tuple(each["differences"] for each in differences),
        differing_libraries=tuple(each["differing_libraries"] for each in differences),
        **facts,
    )


def _capture_first(
    request: CaptureRequest,
    prepared: run.Prepared,
    targets: Sequence[Target],
    waiting: list[int],
    say: Say,
    *,
    forks: bool,
) -> Shared:
    """Return the capture for the first waiting target, and for all waiting targets that it serves."""
    if len(targets) == 1 or not forks:
        return _run(request, prepared, targets, waiting, say)
    return capture_in_fork(
        functools.partial(_run, request, prepared, targets, waiting, silent),
        request,
        waiting[0],
        context=f"{request.model}, as on {targets[waiting[0]]}",
        hint="audit this target alone, with -v to see all that is printed",
    )


def capture_in_fork(
    work: Callable[[], Shared], request: CaptureRequest, place: int, *, context: str, hint: str
) -> Shared:
    """Run the work in a copy of this process; the result of a copy that dies is a failure for that place.

    Args:
        work: makes the capture.
        request: its time limit, in seconds, holds for the work.
        place: the place of the run among the requested ones.
        context: of the error, as in OpcheckError.
        hint: of the error, as in OpcheckError.
    """
    try:
        return run_forked(work, Shared, request.time_limit + SECONDS_AFTER_RUN, group=False)
    except WorkerError as error:
        ended = CaptureError(f"the process that ran the model {error}", context=context, hint=hint)
        return Shared(targets=(place,), failure=failure_of(ended, request.model))


def _run(
    request: CaptureRequest,
    prepared: run.Prepared,
    targets: Sequence[Target],
    waiting: list[int],
    say: Say,
) -> Shared:
    target = targets[waiting[0]]
    target_reads.set_fallback(target)
    if len(targets) > 1:
        # A pool of threads does not live on in a fork.
        torch.set_num_threads(1)
        platform.limit_time(request.time_limit)
    try:
        captured = run.record(request, target, prepared, say)
    except Exception as error:  # noqa: BLE001 - of one class of targets: the others have their own
        with contextlib.suppress(Exception):  # the program may have closed stderr
            traceback.print_exc()
        return Shared(targets=(waiting[0],), failure=failure_of(error, request.model))
    finally:
        platform.stop_time_limit()
    mac = captured.mac
    served = [
        n for n in waiting if n == waiting[0] or (mac and same_dispatch(mac, target, targets[n]))
    ]
    return shared_by(
        targets, served, captured.trace, code=captured.code, doubtful=captured.doubtful
    )
