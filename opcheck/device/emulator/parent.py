"""Starts the program in a child process of its own, and takes its report.  Imports no torch."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from opcheck.capture.parent import error_of
from opcheck.capture.protocol import Failure
from opcheck.common.documents import DocumentError, from_json, read
from opcheck.common.errors import CaptureError
from opcheck.device.emulator.request import Outcome, RunRequest
from opcheck.worker.children import Child, how_it_ended, python

_ANSWER: Any = Outcome | Failure


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
        child = Child(
            python("-m", "opcheck.device.emulator.child", str(asked)),
            # A GPU of this machine has no part in what a Mac does.
            {
                **os.environ,
                "PYTORCH_ENABLE_MPS_FALLBACK": variable,
                "CUDA_VISIBLE_DEVICES": "",
            },
            group=False,
        )
        try:
            # Its report is waited for.
            code = child.wait()
        except BaseException:
            child.stop()
            raise
        if not answer.exists():
            raise CaptureError(
                f"the program {how_it_ended(code)} and left no report",
                context=request.program,
                hint="opcheck reports when the program comes to its end, also by an exception; "
                "os._exit, a signal or an exec leave nothing behind",
            )
        try:
            outcome: Outcome | Failure = from_json(read(answer), _ANSWER)
        except DocumentError as error:
            raise CaptureError(
                f"the program wrote over the report: {error}",
                context=request.program,
                hint="leave the files of other programs in the temporary folder alone",
            ) from error
        if isinstance(outcome, Failure):
            raise error_of(outcome)
        return outcome
