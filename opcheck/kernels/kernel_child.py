"""Runs the kernels of a release in child processes, so that a crash ends no run.  Imports no torch."""

import concurrent.futures
import contextlib
import hashlib
import hmac
import os
import queue
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from opcheck.common import caches, documents
from opcheck.common.errors import OpcheckError
from opcheck.common.files import is_file
from opcheck.common.grouping import group_values
from opcheck.common.picking import pick
from opcheck.common.versions import Version
from opcheck.data.wheels import archive
from opcheck.kernels import kernel_names
from opcheck.kernels.kernel_records import KernelOutcome, KernelRun, KernelSource, Task, Trial
from opcheck.kernels.library import SECTIONS, Library, read
from opcheck.worker.platform import SignalledError, ended_by
from opcheck.worker.worker import Progress, Worker, WorkerError

#: Seconds that a kernel may take: the slowest that ends takes a few.
_PATIENCE = 30.0
_LATE = f"it took more than {_PATIENCE:.0f} seconds"
#: Seconds until a child has imported torch and read the library.
_START = 120.0
#: What ends a run with a time limit.
TIME_LIMIT = "the time limit"
_CODE = {".py", ".ll", ".cpp", ".yaml"}
_RELEASE = re.compile(r"\d+\.\d+\.\d+")


def run(
    library: Library,
    *,
    operations: Collection[str] = (),
    of_families: Collection[str] = (),
    dtype: str = "",
    pattern: str = "",
    jobs: int = 2,
    timeout: float | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> KernelRun:
    """Run kernels of a release, and judge them; the next run with the same request continues a run that was ended.

    Args:
        library: the release's.
        operations: only these; all if there are none.
        of_families: only kernels of these families; of all if there are none.
        dtype: only kernels with this dtype in their name.
        pattern: only kernels whose names it matches.
        jobs: processes at once.
        timeout: the run ends after so many seconds.
        cache: the folder of the wheels; the compiled kernels are next to it.
        progress: is called with a line now and then.
    """
    started = time.monotonic()
    chosen = kernel_names.matching(library.functions, pattern)
    if dtype:
        chosen = [name for name in chosen if dtype in kernel_names.parse(name).dtypes]
    tasks = [
        task
        for task in kernel_names.tasks(chosen)
        if (not operations or task.operation in operations) and (not of_families or task.family in of_families)
    ]
    wheels = cache or archive.default_cache()
    request = (library.torch, library.section, dtype, pattern, *sorted(operations), "", *sorted(of_families))
    kept = _kept_file(wheels.parent / "kernels", request)
    finished = _read_kept(kept)
    ended = _run_all(library, wheels, _leave_out(tasks, finished), jobs, timeout, kept, finished, progress)
    if not ended:
        left = None if timeout is None else max(started + timeout - time.monotonic(), 0.0)
        finished, ended = _with_first_releases(library, wheels, finished, jobs, left)
    if not ended:
        kept.unlink(missing_ok=True)
    return KernelRun(
        **pick(library, "torch", "section"),
        seed=0,
        seconds=round(time.monotonic() - started, 1),
        outcomes=tuple(sorted(finished.values(), key=lambda outcome: outcome.kernel)),
        ended=ended,
        lacking=0 if not ended else sum(len(task.kernels) for task in _leave_out(tasks, finished)),
    )


def _kept_file(cache: Path, request: Sequence[str]) -> Path:
    """Return the file with the outcomes of a run that was ended; each request and version of this code has its own."""
    folder = Path(__file__).parent
    code = [documents.read(path) for path in sorted(folder.rglob("*")) if path.suffix in _CODE]
    digest = hashlib.sha256(b"".join([repr(request).encode(), *code])).hexdigest()[:16]
    return cache / "unfinished" / f"{digest}.jsonl"


def _read_kept(path: Path) -> dict[str, KernelOutcome]:
    """Return the outcomes of a run that was ended, by kernel: the lines that this user's runs wrote to their end."""
    outcomes = {}
    for line in documents.read(path).splitlines() if is_file(path) else ():
        sealed, _, content = line.partition(b" ")
        with contextlib.suppress(msgspec.MsgspecError):
            if hmac.compare_digest(sealed, _seal(path, content)):
                outcome = msgspec.json.decode(content, type=KernelOutcome)
                outcomes[outcome.kernel] = outcome
    return outcomes


def _seal(path: Path, content: bytes) -> bytes:
    return caches.seal(path, content).hex().encode()


def _leave_out(tasks: Iterable[Task], finished: Collection[str]) -> list[Task]:
    """Return what is left of tasks, the longest first, so that no process is left with one at the end."""
    left = [
        msgspec.structs.replace(task, kernels=tuple(name for name in task.kernels if name not in finished))
        for task in tasks
    ]
    return sorted((task for task in left if task.kernels), key=lambda task: -len(task.kernels))


def _run_all(
    library: Library,
    wheels: Path,
    tasks: list[Task],
    jobs: int,
    timeout: float | None,
    kept: Path,
    finished: dict[str, KernelOutcome],
    progress: Progress | None,
) -> str:
    """Add the outcomes of tasks to the finished ones; return what ended the run early, if anything."""
    source = KernelSource(
        release=library.torch, section=library.section, wheels=str(wheels), cache=str(wheels.parent / "kernels")
    )
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    every = len(finished) + sum(len(task.kernels) for task in tasks)
    lock, stopped = threading.Lock(), threading.Event()
    jobs = max(1, min(jobs, len(tasks)))
    runners = [_Runner(source, stopped) for _ in range(jobs)]
    caches.make(kept.parent)

    def work(runner: _Runner) -> None:
        with contextlib.closing(runner), contextlib.suppress(queue.Empty):
            while not stopped.is_set():
                task = waiting.get_nowait()
                for outcome in runner.outcomes(task):
                    with lock:
                        finished[outcome.kernel] = outcome
                        content = msgspec.json.encode(outcome)
                        file.write(b"%s %s\n" % (_seal(kept, content), content))
                if progress:
                    progress(f"{len(finished):,} of {every:,} kernels: {task.operation}")

    with kept.open("ab", buffering=0) as file, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            futures = [pool.submit(work, runner) for runner in runners]
            for future in concurrent.futures.as_completed(futures, timeout):
                future.result()
        except (KeyboardInterrupt, SignalledError, TimeoutError) as error:
            return TIME_LIMIT if isinstance(error, TimeoutError) else ended_by(error)
        finally:
            # The signal comes to this thread alone: the others wait for their processes.
            stopped.set()
            for runner in runners:
                runner.close()
    return ""


def _with_first_releases(
    library: Library, wheels: Path, outcomes: dict[str, KernelOutcome], jobs: int, timeout: float | None
) -> tuple[dict[str, KernelOutcome], str]:
    """Add the first release whose kernel is wrong, by operation and dtype, of those whose library is kept here.

    Nothing is added where the search is ended early; what ended it is returned, too.
    """
    until = time.monotonic() + (timeout or 0.0)
    wrong = (outcome for outcome in outcomes.values() if outcome.verdict == "wrong")
    groups = group_values(((each.operation, "".join(each.dtypes[-1:])), each) for each in wrong)
    first = dict.fromkeys(groups, library.torch)
    # The forms that cast are younger than the others.
    searched = {
        key: min((o.kernel for o in group), key=lambda name: ("cast" in name, len(name), name))
        for key, group in groups.items()
    }
    later = library
    for older in older_libraries(library, wheels) if groups else ():
        searched = {key: name for key, name in searched.items() if name in older.functions}
        changed = [name for name in searched.values() if older.functions[name].digest != later.functions[name].digest]
        tried: dict[str, KernelOutcome] = {}
        tasks = list(kernel_names.tasks(changed))
        left = None if timeout is None else max(until - time.monotonic(), 0.0)
        if ended := _run_all(older, wheels, tasks, jobs, left, Path(os.devnull), tried, None):
            return outcomes, ended
        searched = {
            key: name for key, name in searched.items() if name not in changed or tried[name].verdict == "wrong"
        }
        first.update(dict.fromkeys(searched, older.torch))
        later = older
    since = {outcome.kernel: first[key] for key, group in groups.items() for outcome in group}
    added = {name: msgspec.structs.replace(outcome, since=since.get(name, "")) for name, outcome in outcomes.items()}
    return added, ""


def older_libraries(later: Library, wheels: Path) -> Iterator[Library]:
    """Yield the libraries of older releases that are kept here, the newest first."""
    kept = (wheels.parent / "kernels" / "libraries").glob("*.metallib")
    releases = {path.stem.rpartition("-")[2] for path in kept if path.stem.startswith(SECTIONS)}
    versions = sorted((Version.parse(release), release) for release in releases if _RELEASE.fullmatch(release))
    for version, release in reversed(versions):
        if version < Version.parse(later.torch):
            yield read(release, wheels)


class _Runner:
    """A child process, and the next one when it has ended."""

    def __init__(self, source: KernelSource, stopped: threading.Event) -> None:
        self._source, self._stopped = source, stopped
        self._worker = Worker[Trial, KernelOutcome](
            "opcheck.kernels.drive:answer",
            KernelOutcome,
            # The reference is the same on every processor: no vector extensions.
            environment={"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "default"},
            torch=True,
        )
        self.close = self._worker.end

    def outcomes(self, task: Task) -> Iterator[KernelOutcome]:
        """Yield the outcomes of a task; a kernel that ends the process counts as not run."""
        alone = msgspec.structs.replace(task, kernels=())
        looped = ""
        for name in task.kernels:
            if self._stopped.is_set():
                return
            if looped:
                # Those of one operation loop on the same values.
                yield kernel_names.outcome_of(task, name, "not run", f"{_LATE}, as {looped} did")
                continue
            try:
                trial = Trial(source=self._source, task=alone, kernel=name)
                yield self._worker.ask(trial, _PATIENCE if self._worker.alive else _START)
            except OpcheckError as error:
                yield kernel_names.outcome_of(task, name, "not run", f"its process failed: {error.message}")
            except WorkerError as error:
                if self._stopped.is_set():
                    return  # the run was ended, not the kernel
                looped = name if error.kind == "late" else ""
                yield kernel_names.outcome_of(task, name, "not run", _LATE if looped else f"its process {error}")
