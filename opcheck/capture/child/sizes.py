"""Capture one model with inputs of several sizes; the model is built once."""

import msgspec
import torch

from opcheck.capture.child import run
from opcheck.capture.child.inputs.specs import resize
from opcheck.capture.child.shared import SECONDS_AFTER_RUN, capture_in_fork, shared_by
from opcheck.capture.request import CaptureRequest, Captures, ManySizes, Shared
from opcheck.common.errors import OpcheckError
from opcheck.worker import platform
from opcheck.worker.protocol import Say, failure_of, silent


def answer(request: ManySizes, say: Say) -> Captures:
    """Capture the model with each of the sizes; the captures name the sizes by their places.

    Each run has a fork of its own, since a run changes the model.  Where a process cannot be copied, the first sizes
    alone are captured, and the places of the others are left.

    Raises:
        ModelLoadError, InputError: as ``capture.child.run`` does.
        UsageError: the inputs have no such dimension.
    """
    capture, many = request.capture, request.sizes
    prepared = run.prepare(capture, capture.target, say)
    platform.stop_time_limit()
    all_inputs = [resize(prepared.inputs, prepared.model, sizes) for sizes in many]
    shared: list[Shared] = []
    for place, inputs in enumerate(all_inputs):
        if not platform.can_fork():
            shared.append(_run(capture, prepared._replace(inputs=inputs), place, say))
            return Captures(shared=tuple(shared), left=tuple(range(1, len(many))))
        text = ", ".join(f"{name} {size}" for name, size in many[place].items())
        say(f"running with {text}", seconds=capture.time_limit + SECONDS_AFTER_RUN)
        shared.append(_in_a_fork(capture, prepared._replace(inputs=inputs), place))
    return Captures(shared=tuple(shared))


def _in_a_fork(request: CaptureRequest, prepared: run.Prepared, place: int) -> Shared:
    def work() -> Shared:
        # A pool of threads does not live on in a fork.
        torch.set_num_threads(1)
        platform.limit_time(request.time_limit)
        return _run(request, prepared, place, silent)

    return capture_in_fork(
        work,
        request,
        place,
        context=f"{request.model}, with {', '.join(prepared.inputs.specs)}",
        hint="give a smaller range to --vary",
    )


def _run(request: CaptureRequest, prepared: run.Prepared, place: int, say: Say) -> Shared:
    try:
        captured = run.record(request, request.target, prepared, say)
    except OpcheckError as error:
        return Shared(targets=(place,), failure=failure_of(error, request.model))
    finally:
        platform.stop_time_limit()
    shared = shared_by((request.target,), (0,), captured.trace)
    return msgspec.structs.replace(shared, targets=(place,))
