"""Starts the child process in which user code runs, and takes what it tells.  Imports no torch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from opcheck import errors
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
from opcheck.errors import CaptureError, OpcheckError, UsageError
from opcheck.files import write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opcheck.capture.request import CaptureRequest
    from opcheck.model import Trace
    from opcheck.versions import Target

#: seconds that a child gets, after its own limit, to say that it reached it
_GRACE = 10.0

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
    assert isinstance(message, Done)  # noqa: S101  (what that worker answers)
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
        assert isinstance(message, Answered)  # noqa: S101  (what that worker answers)
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
    child = subprocess.Popen(  # noqa: S603 - this interpreter
        [sys.executable, "-m", worker],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if show_output else subprocess.PIPE,
        env={**os.environ, **environment(request)},
        start_new_session=True,
    )
    printed = _Tail(child.stderr)
    killer = _Killer(child)
    killer.after(request.time_limit + _GRACE)
    try:
        message, stage = _listen(child, request, progress, killer)
    finally:
        killer.cancel()
        _kill(child)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    if message is None:
        raise _died(child.returncode, request, stage, printed.last_line(), timed_out=killer.struck)
    if isinstance(message, Failure):
        raise error_of(message)
    return message


def _listen(
    child: subprocess.Popen[bytes],
    request: CaptureRequest,
    progress: Callable[[str], None] | None,
    killer: _Killer,
) -> tuple[Done | Compared | Answered | Failure | None, str]:
    if child.stdin is None or child.stdout is None:
        message = "the child has no pipes"
        raise RuntimeError(message)
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(msgspec.json.encode(request))
        child.stdin.close()
    stage = "starting python"
    decoder = msgspec.json.Decoder(Message)
    # Not to the end of the file: a process that user code started may hold the pipe open for ever.
    for line in iter(child.stdout.readline, b""):
        if not line.endswith(b"\n"):
            break
        message = decoder.decode(line)
        if not isinstance(message, Stage):
            return message, stage
        stage = message.text
        if message.seconds:
            killer.after(message.seconds + _GRACE)
        if progress is not None:
            progress(stage)
    # It closed its end: let it die of what it is dying of.
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE)
    return None, stage


class _Killer:
    """Ends the child when its time is over, wherever it hangs."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.struck = False
        self._child = child
        self._timer = threading.Timer(0, self._strike)

    def after(self, seconds: float) -> None:
        """So many seconds from now, whatever was said before."""
        self._timer.cancel()
        self._timer = threading.Timer(seconds, self._strike)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        """Not any more."""
        self._timer.cancel()

    def _strike(self) -> None:
        self.struck = True
        _kill(self._child)


class _Tail:
    """The end of what the child prints: it may print without end."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        self._stream = stream
        self._end = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        if self._stream is None:
            return
        with self._stream as stream:
            while part := stream.read1(_TAIL):  # type: ignore[attr-defined]  # it is buffered
                self._end = (self._end + part)[-_TAIL:]

    def last_line(self) -> str:
        """The last line that is not empty."""
        # A process that user code started may hold the pipe open: wait a moment, not for the end of it.
        self._reader.join(1.0)
        lines = [line.strip() for line in self._end.decode(errors="replace").splitlines()]
        return next((line[:200] for line in reversed(lines) if line), "")


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the child and what it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()


def error_of(failure: Failure) -> OpcheckError:
    """The exception that a child process could only tell of."""
    kind = getattr(errors, failure.error, CaptureError)
    error: OpcheckError = kind(failure.message, context=failure.context, hint=failure.hint)
    return error


def _died(
    code: int, request: CaptureRequest, stage: str, last: str, *, timed_out: bool
) -> CaptureError:
    if timed_out:
        return CaptureError(
            f"the model was still running after {request.time_limit:g} s and was ended",
            context=f"{request.model}, while {stage}",
            hint="give it longer with --timeout, or smaller inputs with --input",
        )
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
    return CaptureError(
        f"the process that ran the model {how} before it was done",
        context=f"{request.model}, while {stage}" + (f"; it printed last: {last}" if last else ""),
        hint=_SIGNAL_HINTS.get(-code, "run again with -v to see all that it printed"),
    )


def _save(path: str, trace: Trace, code: str) -> None:
    is_json = Path(path).suffix == ".json"
    text = msgspec.json.format(msgspec.json.encode(trace)).decode() + "\n" if is_json else code
    write_text(Path(path), text)
