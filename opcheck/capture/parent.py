"""Starts the child process in which user code runs, and takes what it tells.  Imports no torch."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opcheck.capture.protocol import (
    Answered,
    Captures,
    Compared,
    Done,
    Failure,
    Message,
    Shared,
    Stage,
)
from opcheck.common import errors
from opcheck.common.errors import CaptureError, OpcheckError, UsageError
from opcheck.common.files import write_text
from opcheck.worker.children import (
    Answers,
    Child,
    GarbledError,
    LateError,
    Lines,
    Printed,
    how_it_ended,
    python,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opcheck.capture.request import CaptureRequest
    from opcheck.common.versions import Target
    from opcheck.model.records import Trace

#: seconds that a child gets, after its own limit, to say that it reached it
_GRACE = 10.0

#: seconds that a child may ask for beside its limit, for each target and to finish
_MORE = 180.0

#: bytes of what the child prints that are kept
_TAIL = 4096

#: what to do about the signal that a child died of
_SIGNAL_HINTS = {
    9: "the system may have run out of memory: give smaller inputs, or --memory-limit a lower one",
}

#: Set for the child, whatever it has of its own.  PYTORCH_MPS_LOG_LEVEL is what guides tell people to set; no torch
#: release reads it (it is in none of the macOS wheels of 1.13 to 2.15).  The next is the one that is read.
_ENVIRONMENT = {
    "PYTORCH_MPS_LOG_LEVEL": "1",
    "PYTORCH_MPS_LOG_PROFILE_INFO": "4",
    # Nothing is downloaded: models are built from their configuration.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    # A GPU of this machine has no part in what a Mac does.
    "CUDA_VISIBLE_DEVICES": "",
}


def environment(request: CaptureRequest) -> dict[str, str]:
    """The variables that the child is given beside those of this process."""
    fallback = {"PYTORCH_ENABLE_MPS_FALLBACK": "1" if request.cpu_fallback else "0"}
    found = {**_ENVIRONMENT, **fallback}
    if str(request.plan.get("device", "")).startswith("cuda"):  # opcheck compile and compare
        del found["CUDA_VISIBLE_DEVICES"]
        # The child forks: asking whether there is a GPU must not start CUDA in it (torch/cuda/__init__.py).
        found["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    return found


def capture(
    request: CaptureRequest,
    *,
    progress: Callable[[str], None] | None = None,
    show_output: bool = False,
) -> Trace:
    """Run the model of ``request`` in a child process on the simulated Mac.

    Args:
        request: the model, its inputs and the target.
        progress: told the stages.
        show_output: pass on what the child prints, to stderr.

    Raises:
        ModelLoadError, InputError: as the child says.
        CaptureError: the child died, was killed for its time, or torch cannot be imported.
        UsageError: the graph cannot be written where it was asked for.
    """
    message = ask("opcheck.capture.worker", request, progress=progress, show_output=show_output)
    assert isinstance(message, Done)
    trace = msgspec.structs.replace(message.trace, environment=environment(request))
    if request.save_graph:
        _save(request.save_graph, trace, message.code)
    return trace


def capture_many(
    request: CaptureRequest,
    targets: Sequence[Target],
    *,
    progress: Callable[[str], None] | None = None,
    show_output: bool = False,
) -> tuple[Trace | OpcheckError, ...]:
    """What ``capture`` gives for each target in turn, with one run for all on which it is the same.

    Args:
        request: the model and its inputs; its own target is not looked at.
        targets: those asked for.
        progress: told the stages.
        show_output: pass on what the child prints, to stderr.

    Returns:
        For each target its trace, or why the run for it ended without one.

    Raises:
        ModelLoadError, InputError: as the child says.
        CaptureError: the child died, was killed for its time, or torch cannot be imported.
        UsageError: a graph is asked for, and there is more than one target.
    """
    if request.save_graph:
        raise UsageError(
            "the graph of one target at a time can be saved",
            context=f"{len(targets)} targets, {request.save_graph}",
            hint="audit the target alone to save it",
        )
    found: dict[int, Trace | OpcheckError] = {}
    left = list(range(len(targets)))
    while left:
        asked = [targets[n] for n in left]
        plan: dict[str, object] = {"targets": msgspec.to_builtins(asked)}
        whole = msgspec.structs.replace(request, cpu_fallback=asked[0].cpu_fallback, plan=plan)
        message = ask(
            "opcheck.capture.shared_worker", whole, progress=progress, show_output=show_output
        )
        assert isinstance(message, Answered)
        captures = msgspec.json.decode(message.content, type=Captures)
        for shared in captures.shared:
            found.update((left[n], made) for n, made in of_each(shared, request, asked))
        left = [left[n] for n in captures.left]
    return tuple(found[n] for n in range(len(targets)))


def of_each(
    shared: Shared, request: CaptureRequest, targets: Sequence[Target]
) -> Iterator[tuple[int, Trace | OpcheckError]]:
    """The trace of each target that a capture serves, with its place in ``targets``; or why there is none."""
    if shared.trace is None:
        failure = shared.failure or Failure(error="CaptureError", message="there is no trace")
        yield from ((n, error_of(failure)) for n in shared.targets)
        return
    for n, differences in zip(shared.targets, shared.differences, strict=True):
        target = targets[n]
        of_target = msgspec.structs.replace(request, cpu_fallback=target.cpu_fallback)
        yield (
            n,
            msgspec.structs.replace(
                shared.trace,
                target_torch=str(target.torch),
                target_macos=str(target.macos),
                differences=differences,
                environment=environment(of_target),
            ),
        )


def ask(
    worker: str,
    request: CaptureRequest,
    *,
    progress: Callable[[str], None] | None = None,
    show_output: bool = False,
) -> Done | Compared | Answered:
    """What the child process ``python -m worker`` answers; the arguments are those of ``capture``.

    Raises:
        OpcheckError: as the child says.
        CaptureError: the child died, was killed for its time, or torch cannot be imported.
    """
    child = Child(
        python("-m", worker),
        {**os.environ, **environment(request)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    printed = Printed(child.process.stderr, _TAIL, pass_on=show_output)
    heard = _Heard(request, progress)
    try:
        message = heard.listen(child)
    except (LateError, GarbledError) as error:
        raise _not_answered(error, request, heard.stage) from error
    finally:
        code = child.end()
        if show_output:
            printed.text()  # until all of it is passed on
    if message is None:
        raise _died(code, request, heard.stage, printed.last_line())
    if isinstance(message, Failure):
        raise error_of(message)
    return message


class _Heard:
    """What a child tells of its stages."""

    def __init__(self, request: CaptureRequest, progress: Callable[[str], None] | None) -> None:
        self.stage = "starting python"
        self._request = request
        self._progress = progress

    def listen(self, child: Child) -> Done | Compared | Answered | Failure | None:
        """Its answer; None: it ended without one.

        Raises:
            LateError: it took longer than it was given.
            GarbledError: user code wrote where it answers.
        """
        process = child.process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(self._request))
            process.stdin.close()
        answers = Answers[Message](Lines(process.stdout.fileno(), lambda: child.alive), Message)
        deadline = time.monotonic() + self._request.time_limit + _GRACE
        targets = self._request.plan.get("targets", ())
        rounds = 2 + (len(targets) if isinstance(targets, (list, tuple)) else 0)
        latest = deadline + rounds * (self._request.time_limit + _MORE)
        while (message := answers.next(deadline)) is not None:
            if not isinstance(message, Stage):
                return message
            self.stage = message.text
            if message.seconds:
                # User code can write such a line, too, and must not run for ever.
                deadline = min(time.monotonic() + message.seconds + _GRACE, latest)
            if self._progress is not None:
                self._progress(self.stage)
        # It closed its end: let it die of what it is dying of.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        return None


def error_of(failure: Failure) -> OpcheckError:
    """The exception that a child process could only tell of."""
    kind = _ERRORS.get(failure.error, CaptureError)
    return kind(failure.message, context=failure.context, hint=failure.hint)


#: The exceptions that a child may name: user code can write that name.
_ERRORS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, OpcheckError)
}


def _not_answered(error: Exception, request: CaptureRequest, stage: str) -> CaptureError:
    context = f"{request.model}, while {stage}"
    if isinstance(error, LateError):
        return CaptureError(
            f"the model was still running after {request.time_limit:g} s and was ended",
            context=context,
            hint="give it longer with --timeout, or smaller inputs with --input",
        )
    return CaptureError(
        f"the model's process wrote what is no answer of opcheck's: {error}",
        context=context,
        hint="the model writes to a file descriptor that is not its own: find where, and leave it out",
    )


def _died(code: int, request: CaptureRequest, stage: str, last: str) -> CaptureError:
    return CaptureError(
        f"the process that ran the model {how_it_ended(code)} before it was done",
        context=f"{request.model}, while {stage}" + (f"; it printed last: {last}" if last else ""),
        hint=_SIGNAL_HINTS.get(-code, "run again with -v to see all that it printed"),
    )


def _save(path: str, trace: Trace, code: str) -> None:
    is_json = Path(path).suffix == ".json"
    text = msgspec.json.format(msgspec.json.encode(trace)).decode() + "\n" if is_json else code
    write_text(Path(path), text)
