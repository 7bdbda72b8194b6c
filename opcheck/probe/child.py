"""One probing process, started anew where it ends.  Imports no torch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING

import msgspec

from opcheck.capture.parent import error_of
from opcheck.capture.protocol import Failure
from opcheck.errors import CaptureError
from opcheck.evidence import Outcome, Result
from opcheck.probe.records import Answer, Done, Ready, Setup, Task

if TYPE_CHECKING:
    from typing_extensions import Self

#: seconds for importing torch and its database
_START = 300.0
#: bytes of what it printed last that are looked at
_TAIL = 4000

COMMAND = (sys.executable, "-m", "opcheck.probe.worker")


class Child:
    """A process that is asked for one task after the other.

    Args:
        setup: what it is told first.
        seconds: for each task.
        environment: its variables.
        command: what is started.
    """

    def __init__(
        self,
        setup: Setup,
        seconds: float,
        environment: dict[str, str],
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._setup = setup
        self._seconds = seconds
        self._environment = environment
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this lives

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._end()
        self._printed.close()

    def start(self) -> Ready:
        """Start it, and hear what there is to do.

        Raises:
            OpcheckError: as it says, or it ended.
        """
        self._end()
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            env=self._environment,
            start_new_session=True,
        )
        answer, how = self._ask(self._setup, _START)
        if isinstance(answer, Ready):
            return answer
        if isinstance(answer, Failure):
            raise error_of(answer)
        raise CaptureError(
            f"the process that probes ended before its first task: {how}",
            context=f"--device {self._setup.device}",
            hint="python -m opcheck.probe.worker shows what it prints",
        )

    def run(self, task: Task) -> Result:
        """One task; where the process ends over it, that is the result.

        Raises:
            OpcheckError: the probe itself went wrong, not the device.
        """
        if self._process is None:
            self.start()
        answer, how = self._ask(task, self._seconds)
        if isinstance(answer, Done):
            return answer.result
        if isinstance(answer, Failure):
            raise error_of(answer)
        self._end()
        outcome: Outcome = "too long" if how.startswith("not done") else "crashes"
        if outcome == "crashes" and self._setup.device != "cpu" and self._cpu_crashes(task):
            outcome, how = "not judged", f"the process ends on the CPU alone, too: {how}"
        return Result(
            opinfo=task.opinfo,
            dtype=task.dtype,
            phase=task.phase,
            outcome=outcome,
            samples=0,
            text=how,
        )

    def _cpu_crashes(self, task: Task) -> bool:
        """Whether a run with no device ends the process, too: then it is not the device's doing."""
        setup = msgspec.structs.replace(self._setup, device="cpu")
        with Child(setup, self._seconds, self._environment, self._command) as other:
            other.start()
            return other.run(task).outcome == "crashes"

    def _ask(self, request: Setup | Task, seconds: float) -> tuple[Answer | None, str]:
        process = self._process
        assert process is not None  # noqa: S101 - it was started
        assert process.stdin is not None  # noqa: S101 - with pipes
        assert process.stdout is not None  # noqa: S101
        late = threading.Event()

        def strike() -> None:
            late.set()
            _kill(process)

        timer = threading.Timer(seconds, strike)
        timer.daemon = True
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(msgspec.json.encode(request) + b"\n")
                process.stdin.flush()
            line = process.stdout.readline()
        finally:
            timer.cancel()
        if line.endswith(b"\n"):
            return msgspec.json.decode(line, type=Answer), ""
        _kill_later(process)
        if late.is_set():
            return None, f"not done after {seconds:g} s"
        code = process.wait()
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return None, ": ".join(filter(None, (how, self._said())))

    def _said(self) -> str:
        """The last line that it printed."""
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - _TAIL))
        lines = self._printed.read().decode(errors="replace").splitlines()
        return next((line.strip()[:500] for line in reversed(lines) if line.strip()), "")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _kill_later(process: subprocess.Popen[bytes]) -> None:
    """It closed its end: let it die of what it is dying of, or kill it."""
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
