"""Captures a model that this process has already; it runs in a fork, so that the model does not change."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.parameter import UninitializedBuffer, is_lazy

from opcheck.capture.child import run
from opcheck.capture.child.build import take_default_device
from opcheck.capture.child.loading import fixed_programs
from opcheck.capture.child.loading.load import Arguments, as_loaded
from opcheck.capture.child.shared import SECONDS_AFTER_RUN, shared_by
from opcheck.capture.parent import of_each
from opcheck.capture.request import CaptureRequest, Shared
from opcheck.common.errors import CaptureError, InputError, OpcheckError
from opcheck.common.text import type_and_text
from opcheck.model.records import Trace
from opcheck.simulator import target_reads
from opcheck.simulator.visible.requirements import Caller
from opcheck.tracing.torch_private.modules import strip_compiled
from opcheck.tracing.torch_private.trees import tensors
from opcheck.worker import installed, platform
from opcheck.worker.protocol import failure_of, silent
from opcheck.worker.worker import WorkerError, run_forked


def capture_live(request: CaptureRequest, model: Callable[..., Any], inputs: Any) -> Trace:
    """Return the trace of a module, or of a function of tensors, on the simulated Mac.

    It runs in a fork of this process: neither the model, its tensors and modes, nor the random state, nor torch is
    changed here, and a run that dies ends the fork.  Where a fork cannot compute (macOS, Windows, a build with a GPU
    after a backward pass) a deep copy runs in this process, without a time limit.

    Args:
        request: the target and the mode; its ``model`` is only a name.
        model: what is called.
        inputs: a tuple of arguments, a mapping of keyword arguments, or the only argument; None: they are derived.

    Raises:
        InputError: no inputs could be derived, or something is on a GPU of this machine.
        CaptureError: the process of the run ended, or took too long.
    """
    installed.require()
    model = strip_compiled(model)
    arguments = None if inputs is None else _arguments(inputs)
    if isinstance(model, torch.export.ExportedProgram):
        arguments = arguments or fixed_programs.arguments(model)
        model = fixed_programs.as_module(model)
    _on_cpu(request.model, model, arguments)

    try:
        if platform.can_fork():
            work = functools.partial(_capture, request, model, arguments, forked=True)
            answer = run_forked(work, Shared, request.time_limit + SECONDS_AFTER_RUN)
        else:
            with _keep_random_states():
                answer = _capture(request, *_copy(request, model, arguments), forked=False)
    except WorkerError as error:
        raise CaptureError(
            f"the process that ran the model {error}",
            context=request.model,
            hint="give it longer with time_limit, or smaller inputs",
        ) from None
    ((_, result),) = of_each(answer, (request.target,))
    if isinstance(result, OpcheckError):
        raise result
    return result


@contextlib.contextmanager
def _keep_random_states() -> Iterator[None]:
    """Restore the random states of Python, PyTorch and NumPy, all of which a run seeds, when the block ends."""
    numpy = sys.modules.get("numpy")
    states = random.getstate(), numpy and numpy.random.get_state()
    try:
        with torch.random.fork_rng(devices=()):
            yield
    finally:
        random.setstate(states[0])
        if numpy is not None:
            numpy.random.set_state(states[1])


def _copy(
    request: CaptureRequest, model: Callable[..., Any], arguments: Arguments | None
) -> tuple[Callable[..., Any], Arguments | None]:
    parts = [*model.modules()] if isinstance(model, torch.nn.Module) else []
    values = [model, *(value for part in parts for value in vars(part).values())]
    # What copy.deepcopy() refuses: functions of TorchScript, which no run changes, and buffers of lazy modules.
    uninitialized: Any = UninitializedBuffer
    memo: dict[int, Any] = {
        id(each): each for each in values if isinstance(each, torch.jit.ScriptFunction)
    }
    memo |= {
        id(buffer): uninitialized(device=buffer.device, dtype=buffer.dtype)
        for part in parts
        for buffer in part.buffers(recurse=False)
        if is_lazy(buffer)
    }
    try:
        return copy.deepcopy((model, arguments), memo)
    except Exception as error:  # user code runs here
        raise CaptureError(
            f"the model cannot be copied: {type_and_text(error)}",
            context=f"{request.model}, in a process whose forks cannot run a backward pass",
            hint="audit it before the first backward pass, or by its name: file.py:attribute",
        ) from error


def _capture(
    request: CaptureRequest,
    model: Callable[..., Any],
    arguments: Arguments | None,
    *,
    forked: bool,
) -> Shared:
    target = request.target
    before = os.environ.get(target_reads.FALLBACK_VARIABLE)
    target_reads.set_fallback(target)
    device = take_default_device()
    try:
        if forked:
            torch.set_num_threads(1)  # a pool of threads does not live on in a fork
            platform.limit_time(request.time_limit)
        target_reads.READS.imported_before.update(_libraries(model))
        loaded = as_loaded(model, arguments, default_device=device)
        prepared = run.prepare(request, target, silent, loaded)
        return shared_by((target,), (0,), run.record(request, target, prepared, silent).trace)
    except Exception as error:  # noqa: BLE001 - user code runs here, and the report has its error
        return Shared(targets=(0,), failure=failure_of(error, request.model))
    except platform.TimeLimitReached:
        late = CaptureError(f"not done after {request.time_limit:g} s", context=request.model)
        return Shared(targets=(0,), failure=failure_of(late, request.model))
    finally:
        target_reads.READS.imported_before.clear()
        if forked:
            platform.stop_time_limit()
        if device is not None:
            torch.set_default_device(device)
        os.environ.pop(target_reads.FALLBACK_VARIABLE, None)
        os.environ.update({target_reads.FALLBACK_VARIABLE: before} if before is not None else {})


def _libraries(model: Callable[..., Any]) -> set[str]:
    """Return the installed libraries that the model's modules come from; torch's own do not count."""
    parts = model.modules() if isinstance(model, torch.nn.Module) else (model,)
    modules = {sys.modules.get(getattr(type(part), "__module__", "")) for part in parts}
    files = {getattr(module, "__file__", None) or "" for module in modules}
    return {Caller("library", file, 0).package for file in files} - {"", "torch"}


def _arguments(inputs: Any) -> Arguments:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, Sequence) and not isinstance(inputs, (str, bytes)):
        return tuple(inputs), {}
    return (inputs,), {}


def _on_cpu(name: str, model: Any, arguments: Any) -> None:
    held = [*model.parameters(), *model.buffers()] if isinstance(model, torch.nn.Module) else []
    for what, values in (("the model", held), ("an input", tensors(arguments))):
        for tensor in values:
            if tensor.device.type not in ("cpu", "meta"):
                raise InputError(
                    f"{what} is on {tensor.device}: opcheck moves tensors of the CPU to its simulated Mac",
                    context=name,
                    hint="give a model and inputs of the CPU, as they are before .to(device)",
                )
