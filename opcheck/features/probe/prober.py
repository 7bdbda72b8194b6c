"""Drives probing processes over all tasks and keeps their results.  Imports no torch."""

import queue
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timezone

import msgspec
from msgspec.structs import replace

from opcheck.common.errors import CaptureError, InputError, OpcheckError
from opcheck.common.tool import TOOL
from opcheck.data.device_evidence import EvidenceFile, Machine, Outcome, Result, Settings
from opcheck.features.probe.probe_messages import ProbeDone, ProbeTask, ProbeTrial, Ready, Setup
from opcheck.worker.worker import Progress, Worker, WorkerError

#: seconds between two times that what there is so far is handed on
_KEEP = 20.0
#: Seconds for importing torch and its database.
_START = 300.0
#: What the probing process runs.
FUNCTION = "opcheck.features.probe.child.opinfo:answer"


class Prober:
    """A process that does its tasks in turn; it starts again where it ended.

    Args:
        setup: the device and the operators.
        settings: how they are run.
        function: what the process runs.
    """

    def __init__(self, setup: Setup, settings: Settings, function: str = FUNCTION) -> None:
        self._setup = setup
        self._settings = settings
        self._function = function
        self._worker = Worker[Setup | ProbeTrial, Ready | ProbeDone](
            function,
            Ready | ProbeDone,
            environment={"PYTORCH_ENABLE_MPS_FALLBACK": "1" if settings.cpu_fallback else "0"},
            torch=True,
        )
        self.close = self._worker.end

    def start(self) -> Ready:
        """Start the process, and return its tasks.

        Raises:
            OpcheckError: the process raises it, or ended.
        """
        try:
            ready = self._worker.ask(self._setup, _START)
        except WorkerError as error:
            problem = f"the process that probes ended before its first task: {_how(error)}"
            hint = "python -c 'import torch.testing' shows whether torch itself starts"
            raise CaptureError(problem, context=f"--device {self._setup.device}", hint=hint) from error
        assert isinstance(ready, Ready)
        return ready

    def run(self, task: ProbeTask) -> Result:
        """Do one task; where the process ends over it, that is the result.

        Raises:
            OpcheckError: the probe itself went wrong, not the device.
        """
        if not self._worker.alive:
            self.start()
        try:
            done = self._worker.ask(ProbeTrial(setup=self._setup, task=task), self._settings.seconds)
        except WorkerError as error:
            return self._describe_end(task, error)
        assert isinstance(done, ProbeDone)
        return done.result

    def _describe_end(self, task: ProbeTask, error: WorkerError) -> Result:
        how = _how(error)
        outcome: Outcome = "too long" if error.kind == "late" else "crashes"
        if outcome == "crashes" and self._setup.device != "cpu" and self._cpu_crashes(task):
            outcome, how = "not judged", f"the process ends on the CPU alone, too: {how}"
        return Result(**msgspec.structs.asdict(task), outcome=outcome, samples=0, text=how)

    def _cpu_crashes(self, task: ProbeTask) -> bool:
        """Return whether a run with no device ends the process, too: then it is not the device's doing."""
        setup = replace(self._setup, device="cpu")
        with closing(Prober(setup, self._settings, self._function)) as prober:
            return prober.run(task).outcome == "crashes"


def _how(error: WorkerError) -> str:
    text = str(error).removeprefix("was ")
    return text if error.kind == "late" else ": ".join(filter(None, (text, error.printed)))


def probe(
    setup: Setup,
    settings: Settings,
    *,
    before: EvidenceFile | None = None,
    limit: int = 0,
    jobs: int = 1,
    progress: Progress | None = None,
    keep: Callable[[EvidenceFile], None] | None = None,
    function: str = FUNCTION,
) -> EvidenceFile:
    """Return what the device does with PyTorch's operator database.

    Args:
        setup: the device, and which operators and dtypes.
        settings: how they are run.
        before: results of an earlier run, which are not made again.
        limit: at most so many tasks; 0: all.
        jobs: processes at once.
        progress: called with how far it is.
        keep: handed the evidence every few seconds, so that little is lost.
        function: what the probing process runs.

    Raises:
        UsageError: this machine has no such device, or a pattern matches nothing.
        InputError: ``before`` is of another machine, torch, device or settings.
        CaptureError: there is no database, or the process ends before its first task.
    """
    probers = [Prober(setup, settings, function) for _ in range(jobs)]
    with closing(probers[0]) as first:
        ready = first.start()
        _refuse_other(before, ready.machine, settings)
        run = _ProbeRun(ready, settings, before, limit)
        threads = [threading.Thread(target=run.work_aside, args=(prober,), daemon=True) for prober in probers[1:]]
        for thread in threads:
            thread.start()
        try:
            run.work(first, progress, keep)
        except BaseException:
            run.stopped = True
            for prober in probers:
                prober.close()
            raise
        for thread in threads:
            thread.join()
    if run.failure is not None:
        raise run.failure
    return run.evidence(complete=True)


class _ProbeRun:
    """The tasks, and what came of them."""

    def __init__(self, ready: Ready, settings: Settings, before: EvidenceFile | None, limit: int) -> None:
        self._machine = ready.machine
        self._settings = settings
        self._made = before.made if before else f"{datetime.now(timezone.utc):%Y-%m-%d}"
        kept = before.results if before else ()
        self._results: dict[tuple[str, str, str], Result] = {result.key: result for result in kept}
        left = [task for task in ready.tasks if task.key not in self._results]
        self._total = min(limit, len(left)) if limit else len(left)
        self._complete = self._total == len(left)
        self._queue: queue.SimpleQueue[ProbeTask] = queue.SimpleQueue()
        for task in left[: self._total]:
            self._queue.put(task)
        self._done = 0
        self.failure: OpcheckError | None = None
        #: no further task is begun
        self.stopped = False

    def evidence(self, *, complete: bool) -> EvidenceFile:
        """Return what there is so far."""
        return EvidenceFile(
            tool=TOOL,
            made=self._made,
            machine=self._machine,
            settings=self._settings,
            complete=complete and self._complete,
            results=tuple(self._results[key] for key in sorted(self._results)),
        )

    def work(
        self, prober: Prober, progress: Progress | None = None, keep: Callable[[EvidenceFile], None] | None = None
    ) -> None:
        """Do tasks, and report the progress of all processes."""
        last = time.monotonic()
        for task in iter(self._next, None):
            if progress is not None:
                progress(f"{self._done} of {self._total}: {task.opinfo}, {task.dtype}")
            self._results[task.key] = prober.run(task)
            self._done += 1
            if keep is not None and time.monotonic() - last > _KEEP:
                keep(self.evidence(complete=False))
                last = time.monotonic()

    def work_aside(self, prober: Prober) -> None:
        """Do tasks in another thread."""
        try:
            with closing(prober):
                self.work(prober)
        except OpcheckError as error:
            self.failure = error

    def _next(self) -> ProbeTask | None:
        try:
            return None if self.failure or self.stopped else self._queue.get_nowait()
        except queue.Empty:
            return None


def _refuse_other(before: EvidenceFile | None, machine: Machine, settings: Settings) -> None:
    """Refuse to add results to the file of another machine."""
    if before is None:
        return
    plain = msgspec.to_builtins
    own = plain(machine) | plain(settings)
    theirs = plain(before.machine) | plain(before.settings)
    texts = [f"{n} {theirs[n]}, here {own[n]}" for n in own if own[n] != theirs[n]]
    if texts:
        problem = f"the evidence is of another run: {'; '.join(texts[:3])}"
        raise InputError(problem, context="--resume", hint="name another file with --output")
