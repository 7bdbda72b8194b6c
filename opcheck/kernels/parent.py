"""The kernels of a release run in child processes: what ends one ends no run.  Imports no torch."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec

from opcheck.data.wheels import archive
from opcheck.kernels import families, names
from opcheck.kernels.library import Library
from opcheck.kernels.records import Answer, Order, Outcome, Run, Task
from opcheck.worker import children

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
    order = Order(
        release=library.torch,
        section=library.section,
        wheels=str(wheels),
        cache=str(wheels.parent / "kernels"),
    )
    outcomes = list(_all(order, tasks, max(1, min(jobs, len(tasks))), progress))
    return Run(
        torch=library.torch,
        section=library.section,
        seed=0,
        seconds=round(time.monotonic() - started, 1),
        outcomes=tuple(sorted(outcomes, key=lambda outcome: outcome.kernel)),
    )


def _all(
    order: Order, tasks: list[Task], jobs: int, progress: Callable[[str], None] | None
) -> Iterator[Outcome]:
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    done, lock = [0], threading.Lock()
    every = sum(len(task.kernels) for task in tasks)

    stopped = threading.Event()
    runners = [_Runner(order, stopped) for _ in range(jobs)]

    def work(runner: _Runner) -> list[Outcome]:
        found: list[Outcome] = []
        with contextlib.closing(runner):
            while not stopped.is_set():
                try:
                    task = waiting.get_nowait()
                except queue.Empty:
                    return found
                found += runner.outcomes(task)
                with lock:
                    done[0] += len(task.kernels)
                    if progress:
                        progress(f"{done[0]:,} of {every:,} kernels: {task.operation}")
        return found

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

    def __init__(self, order: Order, stopped: threading.Event) -> None:
        self._order, self._stopped = order, stopped
        self._child: children.Child | None = None
        self._answers: children.Answers[Answer] | None = None

    def close(self) -> None:
        """End the process."""
        child, self._child, self._answers = self._child, None, None
        if child is not None:
            child.end()

    def outcomes(self, task: Task) -> list[Outcome]:
        """The outcomes of a task; a kernel at which the process ends is one that is not run."""
        found: list[Outcome] = []
        left = list(task.kernels)
        while left and not self._stopped.is_set():
            begun, reason = self._some(msgspec.structs.replace(task, kernels=tuple(left)), found)
            if not reason:
                break
            found.append(_not_run(task, begun or left[0], reason))
            left = list(task.kernels[len(found) :])
            if reason == _LATE:
                # Those of one operation loop on the same values.
                found += [_not_run(task, name, f"{reason}, as {begun} did") for name in left]
                break
        return found

    def _some(self, task: Task, found: list[Outcome]) -> tuple[str, str]:
        """Add outcomes until the task is done; else the kernel that was begun, and what happened."""
        begun = ""
        if self._child is None:
            self._start()
        child, answers = self._child, self._answers
        assert child is not None
        assert answers is not None
        deadline = time.monotonic() + _START
        reason = ""
        try:
            self._send(msgspec.json.encode(task))
            while answer := answers.next(deadline):
                deadline = time.monotonic() + _PATIENCE
                if answer.done:
                    return "", ""
                if answer.outcome is not None:
                    found.append(answer.outcome)
                begun = answer.begun
        except children.LateError:
            reason = _LATE
        except (children.GarbledError, OSError) as error:
            reason = f"its process failed: {error}"
        code = child.end()
        self._child = self._answers = None
        return begun, reason or f"its process {children.how_it_ended(code)}"

    def _start(self) -> None:
        self._child = children.Child(
            children.python("-m", "opcheck.kernels.worker"),
            {**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        child, stdout = self._child, self._child.process.stdout
        assert stdout is not None
        self._answers = children.Answers(
            children.Lines(stdout.fileno(), lambda: child.alive), Answer
        )
        self._send(msgspec.json.encode(self._order))

    def _send(self, line: bytes) -> None:
        assert self._child is not None
        assert self._child.process.stdin is not None
        self._child.process.stdin.write(line + b"\n")
        self._child.process.stdin.flush()
