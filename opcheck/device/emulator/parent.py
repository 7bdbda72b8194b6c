"""Starts the program in a child process and reads its report.  Imports no torch."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from opcheck.capture.exact import interpreter
from opcheck.common.documents import DocumentError, from_json, read
from opcheck.common.errors import CaptureError
from opcheck.common.versions import Target, Version
from opcheck.device.emulator.request import Outcome, RunRequest
from opcheck.worker.platform import how_it_ended
from opcheck.worker.protocol import Failure, error_of
from opcheck.worker.worker import run_program

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
        # A GPU of this machine has no part in what a Mac does.
        given = {"PYTORCH_ENABLE_MPS_FALLBACK": variable, "CUDA_VISIBLE_DEVICES": ""}
        target = Target(torch=Version.parse(request.torch), macos=Version.parse(request.macos))
        python = interpreter(request.program, target) if request.exact else ""
        code = run_program(
            "opcheck.device.emulator.child:main",
            asked,
            {**os.environ, **given},
            interpreter=python,
        )
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
