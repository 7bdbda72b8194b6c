"""One capture for all targets that share a run; the model is built once.

Each run has a fork of its own, which begins with the model as it was built: a run changes a model, and a run that
raises, hangs or ends its process ends no other.  Runs in the process that it is called in: the model is loaded there.
Where a process cannot be copied, each class of targets needs a process of its own, which loads the model again.
"""

import contextlib
import copy
import functools
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch.nn.parameter import UninitializedBuffer, is_lazy

from opcheck.capture.child import run
from opcheck.capture.child.build import take_default_device
from opcheck.capture.child.inputs.specs import Inputs, resize
from opcheck.capture.child.loading import fixed_programs
from opcheck.capture.child.loading.load import Arguments, as_loaded
from opcheck.capture.parent import of_each
from opcheck.capture.request import CaptureRequest, Captures, ManyTargets, Shared
from opcheck.common.errors import CaptureError, InputError, LibraryLoadError, ModelLoadError, OpcheckError
from opcheck.common.text import type_and_text
from opcheck.common.versions import Target
from opcheck.data.registrations import load as load_lists
from opcheck.model.records import Trace
from opcheck.simulator import target_reads
from opcheck.simulator.dispatch.mps_registrations import same_dispatch
from opcheck.simulator.visible.requirements import Caller
from opcheck.tracing.torch_private.modules import strip_compiled
from opcheck.tracing.torch_private.trees import tensors
from opcheck.worker import environments, platform
from opcheck.worker.protocol import Say, WorkFailure, error_of, failure_of, silent
from opcheck.worker.worker import WorkerError, run_forked

#: Seconds that a fork gets in addition to the time limit of its run, to make a trace of it.
SECONDS_AFTER_RUN = 150.0

#: Runs the model, which announces its stages, and makes a capture of the record.
OneRun = Callable[[Say], Shared]


def answer(request: ManyTargets, say: Say) -> Captures:
    """Return the outcome of ``captures`` or ``capture_sizes`` to the parent of this process."""
    if request.sizes:
        return capture_sizes(request.capture, request.sizes, say)
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
        range(len(targets)), key=lambda n: (targets[n].torch, targets[n].macos, targets[n].cpu_fallback), reverse=True
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
    if forks:
        platform.stop_time_limit()  # each fork has its own
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
        order = _drop_late(request, shared, order)
    rank = {n: place for place, n in enumerate(newest_first)}
    shared.sort(key=lambda each: rank[each.targets[0]])
    return Captures(shared=tuple(shared), left=(*order, *left))


def _drop_late(request: CaptureRequest, shared: list[Shared], left: list[int]) -> list[int]:
    """Return the targets that are left to run: none if the last run reached the time limit, which theirs would, too.

    Those that are not run are added to ``shared`` with the reason.
    """
    last = shared[-1].trace if shared else None
    late = next((problem for problem in last.problems if problem.kind == "timeout"), None) if last else None
    if late is None or not left:
        return left
    text = f"not run, because the run for another target was {late.message}"
    failure = failure_of(CaptureError(text, context=request.model, hint="give it longer with --timeout"), "")
    shared.append(Shared(targets=tuple(left), failure=failure))
    return []


def _limit(request: CaptureRequest, runs: int) -> float:
    """Return the seconds that loading and some runs may take."""
    return (runs + 1) * (request.time_limit + SECONDS_AFTER_RUN)


def _in_a_fork(request: CaptureRequest, targets: Sequence[Target], order: Sequence[int]) -> Captures:
    """Load and run the model in a fork; the targets left are those that the load answered otherwise."""

    def work(tell: Say) -> Captures | WorkFailure:
        # A pool of threads does not live on in a fork, nor does the timer of its parent.
        torch.set_num_threads(1)
        platform.limit_time(request.time_limit)
        try:
            return _loaded_and_run(request, targets, order, tell)
        except platform.TimeLimitReached:
            late = CaptureError(f"the model was not loaded after {request.time_limit:g} s", context=request.model)
            return failure_of(late, request.model)
        except Exception as error:  # noqa: BLE001 - user code runs here: its error crosses the pipe
            return failure_of(error, request.model)

    try:
        limit, more = request.time_limit, _limit(request, len(order))
        result = run_forked(work, Captures | WorkFailure, limit, more=more, group=False)
    except WorkerError as error:
        raise CaptureError(
            f"the process that loaded the model {error}",
            context=f"{request.model}, as on {targets[order[0]]}",
            hint="run again with -v to see all that it printed",
        ) from None
    if isinstance(result, WorkFailure):
        raise error_of(result)
    return result


def _loaded_and_run(request: CaptureRequest, targets: Sequence[Target], order: Sequence[int], say: Say) -> Captures:
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
    here = waiting = [n for n in order if target_reads.READS.fits(targets[n])]
    shared: list[Shared] = []
    several = len(targets) > 1
    forks = platform.can_fork()  # the model may have run a backward pass when it was loaded
    hint = "audit this target alone, with -v to see all that is printed"
    while waiting:
        target = targets[waiting[0]]
        if several:
            say(f"running as {target}", seconds=request.time_limit + SECONDS_AFTER_RUN)
        record = functools.partial(_run_and_serve, request, targets, waiting, prepared)
        captured = _capture_run(request, waiting[0], record, say, limited=several, about=f"as on {target}", hint=hint)
        shared.append(captured)
        waiting = [n for n in waiting if n not in captured.targets]
        if not forks:
            break
        waiting = _drop_late(request, shared, waiting)
    left = tuple(n for n in order if n not in here or n in waiting)
    return Captures(shared=tuple(shared), left=left)


def shared_by(targets: Sequence[Target], served: Sequence[int], trace: Trace, **facts: Any) -> Shared:
    """Return the capture with the differences of each target that it serves."""
    differences = [run.differences(targets[n]) for n in served]
    return Shared(
        targets=tuple(served),
        trace=trace,
        differences=tuple(each["differences"] for each in differences),
        differing_libraries=tuple(each["differing_libraries"] for each in differences),
        **facts,
    )


def _capture_run(
    request: CaptureRequest, place: int, record: OneRun, say: Say, *, limited: bool, about: str, hint: str
) -> Shared:
    """Return the capture of one run; an error or the end of its process becomes a part of the capture.

    Args:
        request: its time limit, in seconds, applies to the run.
        place: the place of the run among the requested ones.
        record: runs the model, and makes a capture of the record.
        say: called with the stages.
        limited: the time limit is that of this run alone, in a copy of this process, since it changes the model.
        about: what is particular to the run, for an error.
        hint: of the error, as in OpcheckError.
    """

    def work(tell: Say = say) -> Shared:
        if limited:
            # A pool of threads does not live on in a fork.
            torch.set_num_threads(1)
            platform.limit_time(request.time_limit)
        try:
            return record(tell)
        except Exception as error:  # noqa: BLE001 - of one run: the others have their own
            with contextlib.suppress(Exception):  # the program may have closed stderr
                traceback.print_exc()
            return Shared(targets=(place,), failure=failure_of(error, request.model))
        finally:
            platform.stop_time_limit()

    if not (limited and platform.can_fork()):
        return work()
    try:
        return run_forked(work, Shared, request.time_limit, more=SECONDS_AFTER_RUN, group=False)
    except WorkerError as error:
        context = f"{request.model}, {about}"
        ended = CaptureError(f"the process that ran the model {error}", context=context, hint=hint)
        return Shared(targets=(place,), failure=failure_of(ended, request.model))


def _run_and_serve(
    request: CaptureRequest, targets: Sequence[Target], waiting: Sequence[int], prepared: run.Prepared, say: Say
) -> Shared:
    """Run as on the first waiting target; the capture serves all waiting targets that run the same."""
    first = targets[waiting[0]]
    target_reads.set_fallback(first)
    trace, code, mac, doubtful = run.record(request, first, prepared, say)
    served = [n for n in waiting if n == waiting[0] or (mac and same_dispatch(mac, first, targets[n]))]
    return shared_by(targets, served, trace, code=code, doubtful=doubtful)


# -- one model with inputs of several sizes --------------------------------------------------------------------


def capture_sizes(request: CaptureRequest, many: Sequence[dict[str, int]], say: Say) -> Captures:
    """Capture the model with each of the sizes; the captures name the sizes by their places.

    Where a process cannot be copied, the first sizes alone are captured, and the places of the others are left.

    Raises:
        ModelLoadError, InputError: as ``capture.child.run`` does.
        UsageError: the inputs have no such dimension.
    """
    target = request.target
    prepared = run.prepare(request, target, say)
    platform.stop_time_limit()
    forks = platform.can_fork()

    def record(inputs: Inputs, say: Say) -> Shared:
        target_reads.set_fallback(target)
        captured = run.record(request, target, prepared._replace(inputs=inputs), say)
        return shared_by((target,), (0,), captured.trace)

    shared: list[Shared] = []
    hint = "give a smaller range to --vary"
    resized = [resize(prepared.inputs, prepared.model, sizes) for sizes in many]
    for place, inputs in enumerate(resized if forks else resized[:1]):
        text = ", ".join(f"{name} {size}" for name, size in many[place].items())
        say(f"running with {text}", seconds=request.time_limit + SECONDS_AFTER_RUN)
        about, own = f"with {', '.join(inputs.specs)}", functools.partial(record, inputs)
        result = _capture_run(request, place, own, say, limited=True, about=about, hint=hint)
        shared.append(msgspec.structs.replace(result, targets=(place,)))
    return Captures(shared=tuple(shared), left=tuple(range(len(shared), len(many))))


# -- captures a model that this process has already; it runs in a fork, so that the model does not change ------


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
    environments.require()
    model = strip_compiled(model)
    arguments = None if inputs is None else _arguments(inputs)
    if isinstance(model, torch.export.ExportedProgram):
        arguments = arguments or fixed_programs.arguments(model)
        model = fixed_programs.as_module(model)
    _on_cpu(request.model, model, arguments)

    try:
        if platform.can_fork():
            work = functools.partial(_capture_here, request, model, arguments)
            answer = run_forked(work, Shared, request.time_limit, more=SECONDS_AFTER_RUN)
        else:
            with _keep_random_states():
                answer = _capture_here(request, *_copy(request, model, arguments))
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
    """Restore the random states of Python, PyTorch and NumPy, which a run seeds, when the block ends."""
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
    memo: dict[int, Any] = {id(each): each for each in values if isinstance(each, torch.jit.ScriptFunction)}
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


def _capture_here(
    request: CaptureRequest, model: Callable[..., Any], arguments: Arguments | None, say: Say | None = None
) -> Shared:
    """Capture the model in this process, or in a fork that announces its stages."""
    target = request.target
    before = os.environ.get(target_reads.FALLBACK_VARIABLE)
    target_reads.set_fallback(target)
    device = take_default_device()
    try:
        if say:
            torch.set_num_threads(1)  # a pool of threads does not live on in a fork
            platform.limit_time(request.time_limit)
        target_reads.READS.imported_before.update(_libraries(model))
        loaded = as_loaded(model, arguments, default_device=device)
        prepared = run.prepare(request, target, silent, loaded)
        return shared_by((target,), (0,), run.record(request, target, prepared, say or silent).trace)
    except Exception as error:  # noqa: BLE001 - user code runs here, and the report has its error
        return Shared(targets=(0,), failure=failure_of(error, request.model))
    except platform.TimeLimitReached:
        late = CaptureError(f"not done after {request.time_limit:g} s", context=request.model)
        return Shared(targets=(0,), failure=failure_of(late, request.model))
    finally:
        target_reads.READS.imported_before.clear()
        if say:
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
