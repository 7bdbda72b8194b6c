"""One probing process, started anew where it ends.  Imports no torch."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING

import msgspec

from opcheck.capture.parent import error_of
from opcheck.capture.protocol import Failure
from opcheck.common.errors import CaptureError
from opcheck.data.device_evidence import Outcome, Result
from opcheck.numerics.probe.records import Answer, Done, Ready, Setup, Task
from opcheck.worker import children as processes
from opcheck.worker.children import Answers, GarbledError, LateError, Lines, how_it_ended, python

if TYPE_CHECKING:
    from typing_extensions import Self

#: seconds for importing torch and its database
_START = 300.0
#: bytes of what it printed last that are looked at
_TAIL = 4000

COMMAND = tuple(python("-m", "opcheck.numerics.probe.worker"))


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
        self._child: processes.Child | None = None
        self._answers: Answers[Answer] | None = None
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

    def kill(self) -> None:
        """End the process, whoever waits for it."""
        if self._child is not None:
            self._child.process.kill()

    def start(self) -> Ready:
        """Start it, and hear what there is to do.

        Raises:
            OpcheckError: as it says, or it ended.
        """
        self._end()
        self._child = processes.Child(
            self._command,
            self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
        )
        child, answers = self._child, self._child.process.stdout
        assert answers is not None
        lines = Lines(answers.fileno(), lambda: child.alive)
        self._answers = Answers[Answer](lines, Answer)
        answer, how = self._ask(self._setup, _START)
        if isinstance(answer, Ready):
            return answer
        if isinstance(answer, Failure):
            raise error_of(answer)
        raise CaptureError(
            f"the process that probes ended before its first task: {how}",
            context=f"--device {self._setup.device}",
            hint="python -m opcheck.numerics.probe.worker shows what it prints",
        )

    def run(self, task: Task) -> Result:
        """One task; where the process ends over it, that is the result.

        Raises:
            OpcheckError: the probe itself went wrong, not the device.
        """
        if self._child is None:
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
        with Child(setup, self._seconds, self._environment, self._command) as child:
            child.start()
            return child.run(task).outcome == "crashes"

    def _ask(self, request: Setup | Task, seconds: float) -> tuple[Answer | None, str]:
        """The answer; else how the process ended, which then is no more."""
        assert self._child is not None
        assert self._answers is not None
        stdin = self._child.process.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.write(msgspec.json.encode(request) + b"\n")
            stdin.flush()
        try:
            answer = self._answers.next(time.monotonic() + seconds)
        except LateError:
            self._end()
            return None, f"not done after {seconds:g} s"
        except GarbledError as error:
            self._end()
            return None, f"it answered what is no answer: {error}"
        if answer is not None:
            return answer, ""
        # It closed its end: let it die of what it is dying of.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.process.wait(10.0)
        how = how_it_ended(self._end()).removeprefix("was ")
        return None, ": ".join(filter(None, (how, self._said())))

    def _said(self) -> str:
        """The last line that it printed."""
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - _TAIL))
        lines = self._printed.read().decode(errors="replace").splitlines()
        return next((line.strip()[:500] for line in reversed(lines) if line.strip()), "")

    def _end(self) -> int:
        child, self._child = self._child, None
        return child.end() if child is not None else 0
