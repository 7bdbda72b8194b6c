"""Runs the kernels of a release in child processes, so that a crash ends no run.  Imports no torch."""

from __future__ import annotations

import concurrent.futures
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec

from opcheck.common.errors import OpcheckError
from opcheck.data.wheels import archive
from opcheck.kernels import families, names
from opcheck.kernels.library import Library
from opcheck.kernels.records import Outcome, Run, Source, Task, Trial
from opcheck.worker.worker import Worker, WorkerError

#: Seconds that a kernel may take: the slowest that ends takes a few.
_PATIENCE = 30.0
_LATE = f"it took more than {_PATIENCE:.0f} seconds"
#: Seconds until a child has imported torch and read the library.
_START = 120.0


def run(
    library: Library,
    *,
    operations: Collection[str] = (),
    of_families: Collection[str] = (),
    dtype: str = "",
    pattern: str = "",
    jobs: int = 2,
    cache: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Run:
    """Run kernels of a release, and judge them.

    Args:
        library: the release's.
        operations: only these; all if there are none.
        of_families: only kernels of these families; of all if there are none.
        dtype: only kernels with this dtype in their name.
        pattern: only kernels whose names it matches.
        jobs: processes at once.
        cache: where wheels are kept, and beside them the compiled kernels.
        progress: is called with a line now and then.
    """
    started = time.monotonic()
    chosen = names.matching(library.functions, pattern)
    if dtype:
        chosen = [name for name in chosen if dtype in names.parse(name).dtypes]
    tasks = [
        task
        for task in families.tasks(chosen)
        if (not operations or task.operation in operations)
        and (not of_families or task.family in of_families)
    ]
    # The longest first, so that no process is left with one at the end.
    tasks.sort(key=lambda task: -len(task.kernels))
    wheels = cache or archive.default_cache()
    source = Source(
        release=library.torch,
        section=library.section,
        wheels=str(wheels),
        cache=str(wheels.parent / "kernels"),
    )
    outcomes = list(_all(source, tasks, max(1, min(jobs, len(tasks))), progress))
    return Run(
        torch=library.torch,
        section=library.section,
        seed=0,
        seconds=round(time.monotonic() - started, 1),
        outcomes=tuple(sorted(outcomes, key=lambda outcome: outcome.kernel)),
    )


def _all(
    source: Source, tasks: list[Task], jobs: int, progress: Callable[[str], None] | None
) -> Iterator[Outcome]:
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    done, lock = [0], threading.Lock()
    every = sum(len(task.kernels) for task in tasks)

    stopped = threading.Event()
    runners = [_Runner(source, stopped) for _ in range(jobs)]

    def work(runner: _Runner) -> list[Outcome]:
        outcomes: list[Outcome] = []
        with contextlib.closing(runner):
            while not stopped.is_set():
                try:
                    task = waiting.get_nowait()
                except queue.Empty:
                    return outcomes
                outcomes += runner.outcomes(task)
                with lock:
                    done[0] += len(task.kernels)
                    if progress:
                        progress(f"{done[0]:,} of {every:,} kernels: {task.operation}")
        return outcomes

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            for future in [pool.submit(work, runner) for runner in runners]:
                yield from future.result()
        except BaseException:
            # Ctrl-C comes to this thread alone: the others wait for their processes.
            stopped.set()
            for runner in runners:
                runner.close()
            raise


def _not_run(task: Task, name: str, reason: str) -> Outcome:
    return Outcome(
        kernel=name,
        family=task.family,
        operation=task.operation,
        dtypes=names.parse(name).dtypes,
        verdict="not run",
        reason=reason,
    )


class _Runner:
    """A child process, and the next one when it has ended."""

    def __init__(self, source: Source, stopped: threading.Event) -> None:
        self._source, self._stopped = source, stopped
        self._worker = Worker[Trial, Outcome](
            "opcheck.kernels.worker:answer",
            Outcome,
            # The reference is the same on every processor: no vector extensions.
            environment={"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "default"},
            torch=True,
        )
        self.close = self._worker.end

    def outcomes(self, task: Task) -> Iterator[Outcome]:
        """Yield the outcomes of a task; a kernel at which the process ends is one that is not run."""
        alone = msgspec.structs.replace(task, kernels=())
        looped = ""
        for name in task.kernels:
            if self._stopped.is_set():
                return
            if looped:
                # Those of one operation loop on the same values.
                yield _not_run(task, name, f"{_LATE}, as {looped} did")
                continue
            try:
                trial = Trial(source=self._source, task=alone, kernel=name)
                yield self._worker.ask(trial, _PATIENCE if self._worker.alive else _START)
            except OpcheckError as error:
                yield _not_run(task, name, f"its process failed: {error.message}")
            except WorkerError as error:
                looped = name if error.kind == "late" else ""
                yield _not_run(task, name, _LATE if looped else f"its process {error}")
