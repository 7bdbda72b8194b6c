"""Runs captures in child processes, since they run user code.  Imports no torch."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from opcheck.capture.exact import interpreter
from opcheck.capture.request import CaptureRequest, Captures, ManyTargets, Shared
from opcheck.capture.word_lists import TABLES
from opcheck.common import caches
from opcheck.common.errors import CaptureError, OpcheckError, UsageError
from opcheck.common.files import write_text
from opcheck.common.versions import Target
from opcheck.data.registrations import data_directory
from opcheck.model.records import Trace
from opcheck.worker import platform
from opcheck.worker.environments import locked_interpreter
from opcheck.worker.protocol import NO_DISPLAY, Limits, Notes, ProcessDisplay, WorkFailure, error_of
from opcheck.worker.worker import GRACE, Worker, WorkerError

Answer = TypeVar("Answer")

#: Seconds that a child may ask for in addition to its limit, for each target and to finish.
_MORE = 180.0

#: Seconds for importing torch, before the time limit of the model begins.
_IMPORTS = 60.0

#: What to do about the signal that a child died of.
_SIGNAL_HINTS = {9: "the system may have run out of memory: give smaller inputs, or --memory-limit a lower one"}

#: Set for the child, whatever it has of its own.
_ENVIRONMENT: dict[str, str] = TABLES["environment"]


def environment(*, cpu_fallback: bool = False) -> dict[str, str]:
    """Return the variables that a capture is made with, and that a trace names."""
    return {**_ENVIRONMENT, "PYTORCH_ENABLE_MPS_FALLBACK": "1" if cpu_fallback else "0"}


def variables(*, cpu_fallback: bool = False, device: str = "cpu") -> dict[str, str]:
    """Return the variables that a child is given in addition to those of this process.

    Args:
        cpu_fallback: what PYTORCH_ENABLE_MPS_FALLBACK states.
        device: a device of this machine that the child computes on.
    """
    settings = {
        **environment(cpu_fallback=cpu_fallback),
        # TorchScript gets the device from C++, as ``cpu``: it runs as the Python that it was made from.
        "PYTORCH_JIT": "0",
        **_compiler_cache(),
    }
    if device.startswith("cuda"):  # opcheck compile and compare
        del settings["CUDA_VISIBLE_DEVICES"]
        # The child forks: asking whether there is a GPU must not start CUDA in it (torch/cuda/__init__.py).
        settings["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    return settings


def _compiler_cache() -> dict[str, str]:
    """Return the variable for the folder of what Inductor compiles, unless the user has set it.

    torch 2.13 makes the folder when torch._dynamo is imported (torch/_dynamo/package.py), by default in the shared
    folder for temporary files, and leaves it there.
    """
    name = "TORCHINDUCTOR_CACHE_DIR"
    folder = caches.user_cache() / "inductor"
    with contextlib.suppress(OSError):
        if name not in os.environ and caches.is_private(caches.make(folder)):
            return {name: str(folder)}
    return {}


def capture(request: CaptureRequest, *, display: ProcessDisplay = NO_DISPLAY) -> Trace:
    """Run the model of ``request`` in a child process on the simulated Mac, and return its trace.

    Args:
        request: the model, its inputs and the target.
        display: what is shown of the child.

    Raises:
        ModelLoadError, InputError: as the child reports.
        CaptureError: the child died, was killed for its time, or torch cannot be imported.
        UsageError: the graph cannot be written to the requested place.
    """
    (trace,) = capture_many(request, (request.target,), display=display)
    if isinstance(trace, OpcheckError):
        raise trace
    return trace


def capture_many(
    request: CaptureRequest,
    targets: Sequence[Target],
    *,
    sizes: Sequence[dict[str, int]] = (),
    display: ProcessDisplay = NO_DISPLAY,
) -> tuple[Trace | OpcheckError, ...]:
    """Return what ``capture`` gives for each target in turn, with one run for all targets that share it.

    Args:
        request: the model and its inputs; its own target is not looked at.
        targets: the requested targets.
        sizes: those of the inputs for each of the targets, which are the same then.
        display: what is shown of the child.

    Returns:
        For each target its trace, or the reason why its run ended without a trace.

    Raises:
        ModelLoadError, InputError: as the child reports.
        CaptureError: the child died, was killed for its time, or torch cannot be imported.
        UsageError: a graph is requested, and there is more than one target.
    """
    if request.save_graph and len(targets) > 1:
        raise UsageError(
            "the graph of one target at a time can be saved",
            context=f"{len(targets)} targets, {request.save_graph}",
            hint="audit the target alone to save it",
        )
    results: dict[int, Trace | OpcheckError] = {}
    left = list(range(len(targets)))
    while left:
        # An environment has one torch: with it the targets of one release are captured.
        first = targets[left[0]]
        rest = [n for n in left if request.exact and targets[n].torch != first.torch]
        left = [n for n in left if n not in rest]
        asked = [targets[n] for n in left]
        many = ManyTargets(capture=request, targets=tuple(asked), sizes=tuple(sizes[n] for n in left if sizes))
        captures = _ask_child(many, runs=len(asked) if sizes or len(targets) > 1 else 0, display=display)
        _require_each_once(captures, len(asked), request.model)
        for shared in captures.shared:
            result = dict(of_each(shared, asked))
            if request.save_graph and shared.trace is not None:
                _save(request.save_graph, result[0], shared.code)
            elif shared.doubtful:
                many = ManyTargets(capture=request, targets=tuple(asked[n] for n in result), as_installed=True)
                again = _as_installed(many, [*result.values()], display)
                result = dict(zip(result, again, strict=True))
            results.update((left[n], each) for n, each in result.items())
        left = [*(left[n] for n in captures.left), *rest]
    return tuple(results[n] for n in range(len(targets)))


def capture_sizes(
    request: CaptureRequest, sizes: Sequence[dict[str, int]], *, display: ProcessDisplay = NO_DISPLAY
) -> tuple[Trace | OpcheckError, ...]:
    """Return the trace of the model for each of the sizes of its inputs, or the reason why there is none.

    Args:
        request: the model, its inputs and the target.
        sizes: by the names of dimensions; the inputs keep the other sizes.
        display: what is shown of the child.

    Raises:
        ModelLoadError, InputError: as the child reports.
        UsageError: the inputs have no such dimension.
        CaptureError: the child died, was killed for its time, or torch cannot be imported.
    """
    unsaved = msgspec.structs.replace(request, save_graph="")
    return capture_many(unsaved, [request.target] * len(sizes), sizes=sizes, display=display)


def _require_each_once(captures: Captures, targets: int, model: str) -> None:
    """Refuse an answer that does not serve each target once, and some at all: user code runs where it is made."""
    served = [n for shared in captures.shared for n in shared.targets]
    traced = [each for each in captures.shared if each.trace is not None]
    complete = all(len(each.targets) == len(each.differences) == len(each.differing_libraries) for each in traced)
    if not served or not complete or sorted([*served, *captures.left]) != list(range(targets)):
        raise CaptureError(
            "the model's process wrote an answer that does not fit the targets",
            context=model,
            hint="the model changes opcheck's own records or writes into its pipe: leave that out",
        )


def _ask_child(many: ManyTargets, *, runs: int, display: ProcessDisplay) -> Captures:
    function, target = "opcheck.capture.child.shared:answer", many.targets[0]
    return ask(function, Captures, many, many.capture, target=target, runs=runs, display=display)


def _as_installed(
    many: ManyTargets, first: Sequence[Trace | OpcheckError], display: ProcessDisplay
) -> list[Trace | OpcheckError]:
    """Capture with libraries that see the installed torch; where that raises, too, return the first result."""
    try:
        captures = _ask_child(many, runs=len(many.targets), display=display)
    except OpcheckError:
        return [*first]
    _require_each_once(captures, len(many.targets), many.capture.model)
    results = [*first]
    for shared in captures.shared:
        for n, each in of_each(shared, many.targets):
            if isinstance(each, Trace) and (each.complete or isinstance(first[n], OpcheckError)):
                results[n] = each
    return results


def of_each(shared: Shared, targets: Sequence[Target]) -> Iterator[tuple[int, Trace | OpcheckError]]:
    """Yield the trace of each target that a capture serves, with its place in ``targets``; or why there is none."""
    if shared.trace is None:
        failure = shared.failure or WorkFailure(error="CaptureError", message="there is no trace")
        yield from ((n, error_of(failure)) for n in shared.targets)
        return
    for n, differences, libraries in zip(shared.targets, shared.differences, shared.differing_libraries, strict=True):
        target = targets[n]
        trace = msgspec.structs.replace(
            shared.trace,
            target_torch=str(target.torch),
            target_macos=str(target.macos),
            differences=differences,
            differing_libraries=libraries,
            environment=environment(cpu_fallback=target.cpu_fallback),
        )
        yield n, trace


def ask(
    function: str,
    answer: type[Answer] | Any,
    request: Any,
    capture: CaptureRequest,
    *,
    target: Target | None = None,
    device: str = "cpu",
    runs: int = 0,
    display: ProcessDisplay = NO_DISPLAY,
) -> Answer:
    """Return what ``function`` returns in a child process for a request about a model.

    Args:
        function: ``MODULE:FUNCTION``, called with the request and a ``Say``.
        answer: the type of the result.
        request: the argument of the function.
        capture: the model of it, and its limits.
        target: the Mac; None: that of ``capture``.
        device: the device of this machine that it computes on.
        runs: how many runs may each take the time limit again.
        display: what is shown of the child.

    Raises:
        OpcheckError: as the child reports.
        CaptureError: the child died, was killed for its time, or torch cannot be imported.
    """
    limit = capture.time_limit
    memory = int(capture.memory_limit * 1e9) or platform.default_memory()
    # The content of the op lists is part of the key of a result (report_cache.py).
    unwatched = (str(data_directory().resolve()),)
    mac = target or capture.target
    settings = variables(cpu_fallback=mac.cpu_fallback, device=device)
    python = ""
    if capture.exact:
        python = interpreter(capture.model, mac, display.progress)
    elif capture.packages:
        python = locked_interpreter(capture.packages, display.progress)
    with Worker[Any, Answer](
        function, answer, environment=settings, torch=True, show_output=display.output, interpreter=python
    ) as worker:
        try:
            return worker.ask(
                request,
                max(limit, _IMPORTS) + GRACE,
                subject=capture.model,
                limits=Limits(seconds=limit, memory=memory),
                more=(1 + runs) * (limit + _MORE),
                notes=Notes(path=capture.notes, known=unwatched) if capture.notes else None,
                progress=display.progress,
            )
        except WorkerError as error:
            raise _explain(error, capture) from error


def _explain(error: WorkerError, request: CaptureRequest) -> CaptureError:
    message, hint = {
        "late": (f"the model {error} and was ended", "give it longer with --timeout, or smaller inputs with --input"),
        "garbled": (
            f"the model's process {error}",
            "the model writes to a file descriptor that is not its own: find where, and leave it out",
        ),
        "died": (
            f"the process that ran the model {error} before it was done",
            _SIGNAL_HINTS.get(-error.code, "run again with -v to see all that it printed"),
        ),
    }[error.kind]
    printed = f"; it printed last: {error.printed}" if error.printed and error.kind == "died" else ""
    return CaptureError(message, context=f"{request.model}, while {error.stage}{printed}", hint=hint)


def _save(path: str, trace: Trace | OpcheckError, code: str) -> None:
    is_json = Path(path).suffix == ".json"
    text = msgspec.json.format(msgspec.json.encode(trace)).decode() + "\n" if is_json else code
    write_text(Path(path), text)
