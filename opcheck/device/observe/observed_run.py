"""Starts the program in a process of its own, keeps what it prints, and makes a report of it.  Imports no torch."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from opcheck.common import documents
from opcheck.common.errors import CaptureError, explain_errors
from opcheck.data.registrations import OpLists
from opcheck.device.observe.log_parsing import MARK
from opcheck.device.observe.profiler_variables import installed_line, variables
from opcheck.device.observe.recording import End, ObserveRequest, RecordedRow, Start
from opcheck.device.observe.run_report import Recording, report_of_run
from opcheck.model.records import Report
from opcheck.worker.process import GarbledError
from opcheck.worker.protocol import WorkFailure, error_of, new_secret, unseal
from opcheck.worker.worker import run_program

#: bytes of a recording
MOST = 1 << 30
#: Bytes of what the program prints to stderr that are read for a report.
KEPT = 64 << 20
_BYTES = re.compile(MARK.pattern.encode())
#: The beginning of a mark.
_PARTIAL = re.compile(rb"\x1e[0-9]{0,12}[<>]?$")

#: How a process is started; tests replace it by a recorded process.
Starter = Callable[[Path, Mapping[str, str], Callable[[bytes], None]], int]


class Observation(NamedTuple):
    """How the program ended, and what was observed."""

    report: Report
    exit_code: int


def run(request: ObserveRequest, lists: OpLists, start: Starter | None = None) -> Observation:
    """Run the program on this machine's own device, observed; stdin and stdout are its own.

    Args:
        request: the program.
        lists: the op lists, for ways out and texts.
        start: starts the process; the real one if not given.

    Raises:
        UsageError: torch is not installed.
        UnknownTargetError: there is no list for the installed release.
        CaptureError: there is no MPS device, or the process left nothing behind.
    """
    line = request.stand_in.partition("/")[0] or installed_line()
    setting = variables(cpu_fallback=request.cpu_fallback, line=line)
    log = bytearray()
    with tempfile.TemporaryDirectory(prefix="opcheck-", ignore_cleanup_errors=True) as directory:
        answer = Path(directory, "recording.jsonl")
        asked = Path(directory, "request.json")
        request = msgspec.structs.replace(request, answer=str(answer), secret=new_secret())
        asked.write_bytes(msgspec.json.encode(request))
        code = (start or _start)(asked, {**os.environ, **setting}, lambda part: log.extend(part[: KEPT - len(log)]))
        written = _read_recording(answer, request)
    recording = _recording(written, bytes(log).decode("utf-8", "replace"), request, code)
    environment = {**{name: value for name, value in os.environ.items() if name.startswith("PYTORCH_")}, **setting}
    return Observation(report_of_run(recording, request, environment, lists), code)


def _read_recording(answer: Path, request: ObserveRequest) -> bytes:
    problem, hint = "the recording cannot be read", "run fewer steps of the program"
    with explain_errors(documents.DocumentError, problem, context=request.program, hint=hint, kind=CaptureError):
        return documents.read(answer, MOST) if answer.exists() else b""


def _recording(written: bytes, log: str, request: ObserveRequest, code: int) -> Recording:
    decoder = msgspec.json.Decoder(Start | RecordedRow | End | WorkFailure)
    lines = []
    for text_line in written.splitlines():
        # An abort may leave half a line, and the program may write there.
        with contextlib.suppress(GarbledError):
            lines.append(unseal(text_line, request.secret, decoder))
    failure = next((line for line in lines if isinstance(line, WorkFailure)), None)
    if failure is not None:
        raise error_of(failure)
    if (start := next((line for line in lines if isinstance(line, Start)), None)) is None:
        raise CaptureError(
            f"the process ended with code {code} before the program began",
            context=request.program,
            hint="what it printed is above; python -c 'import torch' shows whether torch itself starts",
        )
    rows = tuple(line for line in lines if isinstance(line, RecordedRow))
    end = next((line for line in lines if isinstance(line, End)), None)
    return Recording(start, rows, end, log, code)


def _start(file: Path, environment: Mapping[str, str], keep: Callable[[bytes], None]) -> int:
    """Run it; what comes on stderr is kept and passed on, without the marks."""
    waiting = b""

    def pass_on(part: bytes) -> None:
        nonlocal waiting
        keep(part)
        waiting = _BYTES.sub(b"", waiting + part)
        partial = _PARTIAL.search(waiting) if part else None
        ready = waiting[: partial.start()] if partial else waiting
        waiting = waiting[len(ready) :]
        # The reader may be gone.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.buffer.write(ready)
            sys.stderr.buffer.flush()

    return run_program("opcheck.device.observe.child.observed_program:main", file, environment, pass_on)
