"""Starts the program in a child process of its own, and takes its report.  Imports no torch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from opcheck.capture.parent import error_of
from opcheck.capture.protocol import Failure
from opcheck.emulator.request import Outcome, RunRequest
from opcheck.errors import CaptureError


def run(request: RunRequest) -> Outcome:
    """Run the program on the emulated Mac; it has this process's standard streams.

    Raises:
        CaptureError: the process ended without a report: a signal, ``os._exit``, an exec; or the
            installed torch is none that can be emulated with.
    """
    with tempfile.TemporaryDirectory(prefix="opcheck-") as directory:
        answer = Path(directory, "outcome.json")
        asked = Path(directory, "request.json")
        request = msgspec.structs.replace(request, answer=str(answer))
        asked.write_bytes(msgspec.json.encode(request))
        variable = "1" if request.cpu_fallback else "0"
        child = subprocess.Popen(  # noqa: S603 - this interpreter
            [sys.executable, "-m", "opcheck.emulator.child", str(asked)],
            # A GPU of this machine has no part in what a Mac does.
            env={
                **os.environ,
                "PYTORCH_ENABLE_MPS_FALLBACK": variable,
                "CUDA_VISIBLE_DEVICES": "",
            },
        )
        code = _wait(child)
        if not answer.exists():
            raise CaptureError(
                f"the program {_end(code)} and left no report",
                context=request.program,
                hint="opcheck reports when the program comes to its end, also by an exception; "
                "os._exit, a signal or an exec leave nothing behind",
            )
        outcome = msgspec.json.decode(answer.read_bytes(), type=Outcome | Failure)
        if isinstance(outcome, Failure):
            raise error_of(outcome)
        return outcome


def _wait(child: subprocess.Popen[bytes]) -> int:
    """The exit code; Ctrl-C reaches the child by the terminal, and its report is waited for."""
    with contextlib.suppress(KeyboardInterrupt):
        return child.wait()
    return _wait(child)


def _end(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    return f"was ended by {signal.Signals(-code).name}"
