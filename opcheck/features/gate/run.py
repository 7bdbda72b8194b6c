"""Runs the jobs of a gate in parallel processes; finished results survive when a process dies."""

from __future__ import annotations

import math
import queue
import tempfile
import threading
from collections.abc import Callable, Sequence

import msgspec

from opcheck.common.errors import OpcheckError
from opcheck.features.gate.records import Failed
from opcheck.features.gate.work import Job, Result, failed, work
from opcheck.worker.worker import Worker, WorkerError

_RESULT = msgspec.json.Decoder(Result)
#: Seconds between two attempts to end the process of a job that was interrupted.
_LOOK = 0.1


def run(
    jobs: Sequence[Job],
    at_once: int,
    done: Callable[[int, Result], None],
    say: Callable[[int, str], None],
) -> None:
    """Run all jobs; a job whose process dies gives a result, too.

    Args:
        jobs: what is to be done.
        at_once: how many processes; with one, the jobs run here, one after the other.
        done: called with the number of a job and its result as soon as it is there.
        say: called with the number of a job and what it does.

    Raises:
        KeyboardInterrupt: the user interrupted; what ``done`` was called with stands, and no process is left.
    """
    # A killed process leaves its notes here, and the folder is removed.
    with tempfile.TemporaryDirectory(prefix="opcheck-") as scratch:
        jobs = [msgspec.structs.replace(job, scratch=scratch) for job in jobs]
        at_once = min(at_once, len(jobs))
        if at_once > 1:
            _run_at_once(jobs, at_once, done, say)
            return
        for number, job in enumerate(jobs):
            result = work(job, lambda text, number=number: say(number, text))  # type: ignore[misc]
            # Equal to a result that comes from another process or from the cache.
            done(number, _RESULT.decode(msgspec.json.encode(result)))


def _run_at_once(
    jobs: Sequence[Job],
    at_once: int,
    done: Callable[[int, Result], None],
    say: Callable[[int, str], None],
) -> None:
    shared = _Shared(jobs)
    workers = [
        Worker[Job, Result](
            "opcheck.features.gate.work:work", Result, show_output=jobs[0].show_output
        )
        for _ in range(at_once)
    ]
    threads = [
        threading.Thread(target=shared.work, args=(worker,), daemon=True) for worker in workers
    ]
    try:
        for thread in threads:
            thread.start()
        left = len(jobs)
        while left:
            number, event = shared.events.get()
            if isinstance(event, str):
                say(number, event)
            else:
                left -= 1
                done(number, event)
    finally:
        shared.stopped = True
        for thread, worker in zip(threads, workers, strict=True):
            worker.end()
            # It may just be starting another process.
            while thread.is_alive():
                thread.join(_LOOK)
                worker.end()


class _Shared:
    """State that is shared by the threads, each of which has its own process."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.stopped = False
        self.events: queue.SimpleQueue[tuple[int, Result | str]] = queue.SimpleQueue()
        self._waiting: queue.SimpleQueue[tuple[int, Job]] = queue.SimpleQueue()
        for numbered in enumerate(jobs):
            self._waiting.put(numbered)

    def work(self, worker: Worker[Job, Result]) -> None:
        """Run one job after the other, in a thread."""
        while not self.stopped:
            try:
                number, job = self._waiting.get_nowait()
            except queue.Empty:
                return

            def progress(text: str, number: int = number) -> None:
                self.events.put((number, text))

            self.events.put((number, _result(worker, job, progress)))


def _result(worker: Worker[Job, Result], job: Job, progress: Callable[[str], None]) -> Result:
    try:
        # Its captures have limits of their own.
        return worker.ask(job, math.inf, progress=progress)
    except OpcheckError as error:
        return Result(failed=failed(error))
    except WorkerError as error:
        return Result(
            failed=Failed(
                message=f"the process that audited the model {error}",
                hint="run opcheck audit on it, with -v",
            )
        )
