"""Starts the program in a child process and reads its report.  Imports no torch."""

import os
import tempfile
from pathlib import Path

import msgspec

from opcheck.capture.exact import interpreter
from opcheck.common.documents import DocumentError, read
from opcheck.common.errors import CaptureError, explain_errors
from opcheck.common.files import write_text
from opcheck.common.versions import Target, Version
from opcheck.device.emulator.emulation_request import PROCESSES, RunOutcome, RunRequest
from opcheck.worker.platform import INTERRUPTED, SignalledError, how_it_ended
from opcheck.worker.process import GarbledError
from opcheck.worker.protocol import WorkFailure, error_of, new_secret, unseal
from opcheck.worker.worker import run_program

_ANSWER: msgspec.json.Decoder[RunOutcome | WorkFailure] = msgspec.json.Decoder(RunOutcome | WorkFailure)
_CHILD = "opcheck.device.emulator.child.emulated_program:main"
#: bytes that an outcome may have on a disk that the program has filled
RESERVED = 4 << 20


def run(request: RunRequest) -> RunOutcome:
    """Run the program on the emulated Mac; it has this process's standard streams.

    Raises:
        SignalledError: a signal ended this process, and the program left no report.
        CaptureError: the process ended without a report: a signal, ``os._exit``, an exec; or the
            installed torch is none that can be emulated with.
    """
    with tempfile.TemporaryDirectory(prefix="opcheck-", ignore_cleanup_errors=True) as directory:
        answer = Path(directory, "outcome.json")
        asked = Path(directory, "request.json")
        request = msgspec.structs.replace(request, answer=str(answer), secret=new_secret())
        write_text(asked, msgspec.json.encode(request).decode())
        # Its space is taken now: the program may fill the disk.
        write_text(answer, " " * RESERVED)
        Path(directory, PROCESSES).mkdir()
        # A Mac has no GPU of this machine.
        variables = {"PYTORCH_ENABLE_MPS_FALLBACK": "1" if request.cpu_fallback else "0", "CUDA_VISIBLE_DEVICES": ""}
        target = Target(torch=Version.parse(request.torch), macos=Version.parse(request.macos))
        python = interpreter(request.program, target) if request.exact else ""
        ended: SignalledError | None = None
        try:
            code = run_program(_CHILD, asked, {**os.environ, **variables}, interpreter=python)
        except SignalledError as error:
            ended = error
        errors, what = (DocumentError, GarbledError), "the program wrote over the report"
        hint = "leave the files of other programs in the temporary folder alone"
        with explain_errors(errors, what, context=request.program, hint=hint, kind=CaptureError):
            # The program may have put a pipe or another thing in its place.
            content = read(answer).strip() if os.path.lexists(answer) else b""
            outcome: RunOutcome | WorkFailure | None = unseal(content, request.secret, _ANSWER) if content else None
        if outcome is None:
            if ended:
                raise ended
            if code == 128 - INTERRUPTED:  # Ctrl-C before the program began
                raise KeyboardInterrupt
            raise CaptureError(
                f"the program {how_it_ended(code)} and left no report",
                context=request.program,
                hint="opcheck reports when the program comes to its end, also by an exception; "
                "os._exit, SIGKILL, an exec, a damaged Python or a full temporary disk leave nothing behind",
            )
        if isinstance(outcome, WorkFailure):
            raise error_of(outcome)
        # A signal to this process decides its exit code.
        return msgspec.structs.replace(outcome, exit_code=-ended.number) if ended else outcome
