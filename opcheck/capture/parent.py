"""Starts the child process in which user code runs, and takes what it tells.  Imports no torch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from opcheck import errors
from opcheck.capture.protocol import Done, Failure, Message, Stage
from opcheck.errors import CaptureError, OpcheckError
from opcheck.files import write_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from opcheck.capture.request import CaptureRequest
    from opcheck.model import Trace

#: seconds that a child gets, after its own limit, to say that it reached it
_GRACE = 10.0

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
    return {**_ENVIRONMENT, **fallback}


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
    with tempfile.TemporaryFile() as printed:
        child = subprocess.Popen(
            [sys.executable, "-m", "opcheck.capture.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if show_output else printed,
            env={**os.environ, **environment(request)},
            start_new_session=True,
        )
        killer = threading.Timer(request.time_limit + _GRACE, _kill, (child,))
        killer.start()
        try:
            message, stage = _listen(child, request, progress)
        finally:
            timed_out = not killer.is_alive()
            killer.cancel()
            _kill(child)
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
        if message is None:
            raise _died(child.returncode, request, stage, printed, timed_out=timed_out)
    if isinstance(message, Failure):
        raise _error(message)
    trace = msgspec.structs.replace(message.trace, environment=environment(request))
    if request.save_graph:
        _save(request.save_graph, trace, message.code)
    return trace


def _listen(
    child: subprocess.Popen[bytes],
    request: CaptureRequest,
    progress: Callable[[str], None] | None,
) -> tuple[Done | Failure | None, str]:
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
        if progress is not None:
            progress(stage)
    # It closed its end: let it die of what it is dying of.
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_GRACE)
    return None, stage


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the child and what it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()


def _error(failure: Failure) -> OpcheckError:
    kind = getattr(errors, failure.error, CaptureError)
    error: OpcheckError = kind(failure.message, context=failure.context, hint=failure.hint)
    return error


def _died(
    code: int, request: CaptureRequest, stage: str, printed: IO[bytes], *, timed_out: bool
) -> CaptureError:
    if timed_out:
        return CaptureError(
            f"the model was still running after {request.time_limit:g} s and was ended",
            context=f"{request.model}, while {stage}",
            hint="give it longer with --timeout, or smaller inputs with --input",
        )
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
    last = _last_line(printed)
    return CaptureError(
        f"the process that ran the model {how} before it was done",
        context=f"{request.model}, while {stage}" + (f"; it printed last: {last}" if last else ""),
        hint="run again with -v to see all that it printed",
    )


def _last_line(printed: IO[bytes]) -> str:
    printed.seek(0, os.SEEK_END)
    printed.seek(max(0, printed.tell() - 4096))
    lines = [line.strip() for line in printed.read().decode(errors="replace").splitlines()]
    return next((line[:200] for line in reversed(lines) if line), "")


def _save(path: str, trace: Trace, code: str) -> None:
    is_json = Path(path).suffix == ".json"
    text = msgspec.json.format(msgspec.json.encode(trace)).decode() + "\n" if is_json else code
    write_text(Path(path), text)
