"""The jobs of a gate: each audits one model on its targets, unless the reports are cached, in parallel processes."""

import math
import queue
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace
from packaging.requirements import Requirement

from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import OpcheckError
from opcheck.common.versions import Target
from opcheck.data.registrations import load
from opcheck.features.gate.gate_records import Failed
from opcheck.model.records import Record, Report
from opcheck.report_cache import Cache, dependencies
from opcheck.worker import environments
from opcheck.worker.worker import Worker, WorkerError


class Job(Record, frozen=True, kw_only=True):
    """The work for one model."""

    name: str
    #: its target is not looked at.
    request: CaptureRequest
    targets: tuple[Target, ...]
    #: requirements of the environment that the model runs in; none: this environment
    libraries: tuple[str, ...] = ()
    #: the folder of the cache; empty: none.
    cache: str = ""
    #: pass the model's output on to stderr.
    show_output: bool = False
    #: a folder for temporary files, which the caller removes; empty: the system's.
    scratch: str = ""


class JobResult(Record, frozen=True, kw_only=True):
    """The result of a job: a report for each target, or the reason why there are none."""

    reports: tuple[Report, ...] = ()
    failed: Failed | None = None
    #: the versions that the job's libraries came to
    libraries: tuple[str, ...] = ()
    #: how many of the reports come from the cache
    kept: int = 0
    #: why the new reports could not be cached; empty: they were.
    not_kept: str = ""


def read_cached(job: Job) -> JobResult | None:
    """Return the result if all reports of the job are cached."""
    if not job.cache:
        return None
    lock = environments.find_lock(job.libraries) if job.libraries else None
    if job.libraries and lock is None:
        return None
    job = _with_lock(job, lock)
    cache = Cache(Path(job.cache))
    cached = [cache.find(job.request.on(target)) for target in job.targets]
    reports = tuple(report for report in cached if report is not None)
    if len(reports) < len(cached):
        return None
    return JobResult(reports=reports, kept=len(reports), libraries=_versions(job))


def _with_lock(job: Job, lock: environments.LockedEnvironment | None) -> Job:
    request = replace(job.request, packages=lock.packages if lock else ())
    return replace(job, request=request)


def _versions(job: Job) -> tuple[str, ...]:
    """Return the packages of the environment that the job's requirements name."""
    names = {Requirement(text).name for text in job.libraries}
    return tuple(text for text in job.request.packages if text.partition("==")[0] in names)


def work(job: Job, say: Callable[[str], None]) -> JobResult:
    """Return the reports of a job; a failure of the model is part of the result."""
    if job.libraries:
        try:
            job = _with_lock(job, environments.resolve(job.libraries))
        except OpcheckError as error:
            return JobResult(failed=describe_failure(error))
    cache = Cache(Path(job.cache)) if job.cache else None
    asked = {target: job.request.on(target) for target in job.targets}
    reports = {target: cache.find(request) for target, request in asked.items()} if cache else {}
    missing = [target for target in job.targets if reports.get(target) is None]
    not_kept = ""
    if missing:
        try:
            audited, not_kept = _audit(job, missing, cache, say)
        except OpcheckError as error:
            return JobResult(failed=describe_failure(error), libraries=_versions(job))
        reports = {**reports, **dict(zip(missing, audited, strict=True))}
    complete = tuple(report for target in job.targets if (report := reports[target]) is not None)
    return JobResult(
        reports=complete,
        libraries=_versions(job),
        kept=len(job.targets) - len(missing),
        not_kept=not_kept,
    )


def describe_failure(error: OpcheckError) -> Failed:
    """Return the three lines of an error without this machine's folder, so that reports are equal on all machines."""
    here = str(Path.cwd())
    what, where, hint = (
        text.replace(here, ".") for text in (error.message, error.context, error.hint)
    )
    return Failed(message=what, context=where, hint=hint)


def _audit(
    job: Job, targets: list[Target], cache: Cache | None, say: Callable[[str], None]
) -> tuple[list[Report], str]:
    """Audit the model; return the reports, and why they could not be cached.

    Raises:
        OpcheckError: as the audit does.
    """
    from opcheck.orchestrator import audit_targets

    with tempfile.TemporaryDirectory(prefix="opcheck-", dir=job.scratch or None) as folder:
        notes = Path(folder) / "notes.jsonl"
        request = job.request.on(targets[0])
        request = replace(request, notes=str(notes) if cache else "")
        audited = audit_targets(request, targets, load(), progress=say, show_output=job.show_output)
        # What was drawn is not shown, and is most of it.
        reports = [replace(report, graph=()) for report in audited]
        if cache is None:
            return reports, ""
        read = dependencies(notes, job.request)
    for target, report in zip(targets, reports, strict=True):
        cache.keep(job.request.on(target), report, read)
    return reports, read.unknowable


_RESULT = msgspec.json.Decoder(JobResult)
#: Seconds between two attempts to end the process of a job that was interrupted.
_LOOK = 0.1


def run(
    jobs: Sequence[Job],
    at_once: int,
    done: Callable[[int, JobResult], None],
    say: Callable[[int, str], None],
) -> None:
    """Run all jobs; a job whose process dies gives a result, too.

    Args:
        jobs: what is to be done.
        at_once: the number of processes; a single process means here, one job after the other.
        done: called with the number of a job and its result as soon as it is there.
        say: called with the number of a job and what it does.

    Raises:
        KeyboardInterrupt: the user interrupted; ``done`` has the results so far, and no process is left.
    """
    # A killed process leaves its notes here, and the folder is removed.
    with tempfile.TemporaryDirectory(prefix="opcheck-") as scratch:
        jobs = [replace(job, scratch=scratch) for job in jobs]
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
    done: Callable[[int, JobResult], None],
    say: Callable[[int, str], None],
) -> None:
    shared = _JobQueue(jobs)
    workers = [
        Worker[Job, JobResult](
            "opcheck.features.gate.jobs:work", JobResult, show_output=jobs[0].show_output
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


class _JobQueue:
    """State that is shared by the threads; each thread has its own process."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.stopped = False
        self.events: queue.SimpleQueue[tuple[int, JobResult | str]] = queue.SimpleQueue()
        self._waiting: queue.SimpleQueue[tuple[int, Job]] = queue.SimpleQueue()
        for numbered in enumerate(jobs):
            self._waiting.put(numbered)

    def work(self, worker: Worker[Job, JobResult]) -> None:
        """Run one job after the other, in a thread."""
        while not self.stopped:
            try:
                number, job = self._waiting.get_nowait()
            except queue.Empty:
                return

            def progress(text: str, number: int = number) -> None:
                self.events.put((number, text))

            self.events.put((number, _result(worker, job, progress)))


def _result(worker: Worker[Job, JobResult], job: Job, progress: Callable[[str], None]) -> JobResult:
    try:
        # Its captures have limits of their own.
        return worker.ask(job, math.inf, progress=progress)
    except OpcheckError as error:
        return JobResult(failed=describe_failure(error))
    except WorkerError as error:
        return JobResult(
            failed=Failed(
                message=f"the process that audited the model {error}",
                hint="run opcheck audit on it, with -v",
            )
        )
