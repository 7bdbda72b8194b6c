"""Runs the work in threads or on a cluster, by joblib, and recovers after workers or the scheduler are lost.

A thread only waits for the server process that it starts.  A worker process between the two would be one more process
for a model to stop, and joblib waits for a stopped one without a limit.
"""

import contextlib
import logging
import os
import platform
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec
from msgspec.structs import replace

from opcheck.capture.parent import variables
from opcheck.common.errors import CaptureError, UsageError
from opcheck.common.files import is_file
from opcheck.common.text import plural
from opcheck.common.tool import VERSION
from opcheck.common.versions import Target
from opcheck.common.vocabulary import Mode
from opcheck.data.registrations import OpLists
from opcheck.features.sweep import sweep_records as records
from opcheck.features.sweep.sweep_folder import Folder, SweepDescription, key_of, sources
from opcheck.worker.dependency_tracking import file_digest
from opcheck.worker.environments import distribution_version
from opcheck.worker.platform import CAN_FORK
from opcheck.worker.process import end_all
from opcheck.worker.worker import Worker, WorkerError

#: seconds that a client gets to connect, and that workers get to come up
_CONNECT, _WORKERS = 10.0, 120
#: seconds between two checks of the connection to the scheduler
_LOOK = 0.5


class LostError(Exception):
    """Workers or the scheduler went away: tasks without a result must run again."""

    def __init__(self, why: str, *, scheduler: bool) -> None:
        super().__init__(why)
        #: whether the scheduler went away; else a worker did.
        self.scheduler = scheduler


class Engine:
    """Runs tasks by joblib; it stays usable after a loss."""

    def __init__(self, backend: str = "local", *, jobs: int = 1, scheduler: str = "") -> None:
        self.backend = backend
        self.jobs = jobs
        self.scheduler = scheduler
        self._client: Any = None

    def run(self, tasks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the results of ``work`` as the tasks finish.

        Args:
            tasks: what ``work`` takes.

        Raises:
            LostError: a worker died, or the scheduler is away.
            OpcheckError: as ``work``.
        """
        from joblib import Parallel, delayed, parallel_config

        end_servers()  # each run has threads of its own
        local = self.backend == "local"
        settings = {} if local else {"client": self._connect(), "wait_for_workers_timeout": _WORKERS, "pure": False}
        jobs, ahead = (self.jobs, "n_jobs") if local else (-1, "2*n_jobs")
        with parallel_config("threading" if local else "dask", **settings):
            parallel = Parallel(jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=ahead)
            answers = parallel(delayed(work)(task) for task in tasks)
            yield from answers if local else self._watch(answers)

    def close(self) -> None:
        """Disconnect from the scheduler, and end what the models ran in and left behind here."""
        end_servers()
        if self._client is not None:
            client, self._client = self._client, None
            with contextlib.suppress(Exception):  # it may be gone already
                client.close(timeout=2)

    def _connect(self) -> Any:
        """Connect to the scheduler.

        Raises:
            LostError: it cannot be reached.
        """
        from distributed import Client

        if self._client is None or self._client.status != "running":
            self.close()
            # opcheck reports a loss itself, in one line.
            for name in ("distributed", "distributed.client"):
                logging.getLogger(name).setLevel(logging.CRITICAL)
            try:
                self._client = Client(self.scheduler, timeout=_CONNECT, set_as_default=False)
            except (OSError, TimeoutError) as error:
                raise LostError(f"{self.scheduler} does not answer", scheduler=True) from error
            except ValueError as error:
                problem = f"not the address of a scheduler: {error}"
                hint = "write it as dask prints it: tcp://host:8786"
                raise UsageError(problem, context=f"--scheduler {self.scheduler}", hint=hint) from error
        return self._client

    def _watch(self, answers: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the answers; joblib alone would wait forever for a task that its scheduler has lost."""
        arrived: queue.SimpleQueue[tuple[bytes | None, BaseException | None]] = queue.SimpleQueue()

        def fetch() -> None:
            try:
                for answer in answers:
                    arrived.put((answer, None))
                arrived.put((None, None))
            except BaseException as error:  # noqa: BLE001 - it is raised below
                arrived.put((None, error))

        client = self._client
        threading.Thread(target=fetch, daemon=True).start()
        while True:
            with contextlib.suppress(queue.Empty):
                answer, error = arrived.get(timeout=_LOOK)
                if error is not None:
                    self._raise(error)
                if answer is None:
                    return
                yield answer
                continue
            if client.status != "running":
                self.close()
                raise LostError(f"{self.scheduler} went away", scheduler=True)

    def _raise(self, error: BaseException) -> NoReturn:
        """Raise LostError for a loss, and any other exception of ``work`` unchanged."""
        from distributed import KilledWorker

        if isinstance(error, KilledWorker):
            raise LostError("a task ended the workers that it was on", scheduler=False) from error
        if isinstance(error, (OSError, CancelledError)):
            self.close()
            raise LostError(f"{self.scheduler} went away", scheduler=True) from error
        raise error


#: seconds for the server's own work: importing torch, a library, or the module of a class.
_IMPORTS = 300.0
#: seconds beyond the limit of a model until its server counts as stopped
_GRACE = 30.0

#: Packages whose versions decide a result, in addition to opcheck's.
PACKAGES = ("torch", "numpy", *records.LIBRARIES)

_Server = Worker[records.Prepare | records.Measure | records.Control, records.Reply]
#: The server of each thread of this process, and its interpreter.
_servers: dict[int, tuple[str, _Server]] = {}


def work(task: bytes) -> bytes:
    """Return the results of a task, one for each mode; a failure is a result.

    Raises:
        UsageError: this machine has other versions of the packages than the sweep was started with.
        CaptureError: the server cannot be started here.
    """
    asked = msgspec.json.decode(task, type=records.SweepTask)
    _same_versions(asked.versions)
    return msgspec.json.encode([_with_control(_result(asked, mode), asked) for mode in asked.keys])


def versions() -> dict[str, str]:
    """Return the installed versions of opcheck, Python and the packages that decide a result."""
    installed = {"opcheck": VERSION, "python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    return installed | {name: version for name in PACKAGES if (version := distribution_version(name))}


def _same_versions(asked: dict[str, str]) -> None:
    here = versions()
    for name, version in asked.items():
        if here.get(name) != version:
            problem = f"a worker has {name} {here.get(name, 'not installed')}, the sweep was started with {version}"
            hint = "install the same versions on each machine: the results go into one table"
            raise UsageError(problem, context=f"worker on {platform.node()}", hint=hint)


def _result(task: records.SweepTask, mode: Mode) -> records.SweepResult:
    """Return the result of a mode, also if the process that measures it dies."""
    reply = _ask(records.Measure(task=task, mode=mode), task.seconds, task.interpreter)
    if isinstance(reply, records.MeasuredResult):
        return reply.result
    assert isinstance(reply, records.EndedProcess)
    ended = _end_early(task, mode, reply.problem, f"the process that ran the model {reply.how}")
    return replace(ended, config=task.model.config)


def _end_early(task: records.SweepTask, mode: Mode, problem: str, message: str) -> records.SweepResult:
    """Return the result of a mode whose process gave none."""
    targets = tuple(map(records.target_name, task.targets))
    failed = records.MissingVerdict(targets=targets, stage="worker", problem=problem, message=message)
    return records.SweepResult(key=task.keys[mode], model=task.model, mode=mode, failures=(failed,))


def _with_control(result: records.SweepResult, task: records.SweepTask) -> records.SweepResult:
    """Run a failed model without opcheck, too, to attribute the failure."""
    asked = [failure for failure in result.failures if failure.stage not in {"inputs", "worker"}]
    if not asked:
        return result
    request = records.Control(
        model=task.model, config=result.config, mode=result.mode, stage=asked[0].stage, memory=task.memory
    )
    reply = _ask(request, 120.0, task.interpreter)
    assert not isinstance(reply, records.MeasuredResult)
    text = reply.text if isinstance(reply, records.PlainRun) else reply.how
    failures = (replace(f, plain=text) if f in asked else f for f in result.failures)
    return replace(result, failures=tuple(failures))


def _ask(request: records.Measure | records.Control, seconds: float, interpreter: str) -> records.Reply:
    """Send a request to the server of this thread, which is started if there is none with this interpreter."""
    thread = threading.get_ident()
    earlier, server = _servers.get(thread, ("", None))
    if server is None or earlier != interpreter:
        if server is not None:
            server.end()
        server = _Server(
            "opcheck.features.sweep.server:answer",
            records.Reply,
            environment={**variables(), "OMP_NUM_THREADS": "1"},
            torch=True,
            show_output=bool(os.environ.get("OPCHECK_SWEEP_LOG")),
            interpreter=interpreter,
        )
        _servers[thread] = interpreter, server
    try:
        if not server.alive:
            server.end()
            _prepare(server)
        # The limit is for the server's own work; it announces the time of the model, whose fork it limits.
        return server.ask(request, _IMPORTS, more=seconds + _GRACE)
    except WorkerError as error:
        if error.kind == "late":
            return records.EndedProcess(problem="hung", how=str(error))
        how = "was ended with its parent process" if CAN_FORK else str(error)
        return records.EndedProcess(problem="died", how=how)
    finally:
        if not CAN_FORK:
            server.end()


def end_servers() -> None:
    """End the servers of this process's threads, and what their models left behind."""
    if _servers:
        for thread in list(_servers):
            _servers.pop(thread)[1].end()
        end_all()


def _prepare(server: _Server) -> None:
    try:
        server.ask(records.Prepare(), _IMPORTS)
    except WorkerError as error:
        if error.code < 0:
            raise  # a signal ended it: that of another model, or of a system without memory
        where = f"opcheck.features.sweep.server on {platform.node()}: {error.printed}"
        hint = "run it with OPCHECK_SWEEP_LOG=1 to see all that is printed"
        raise CaptureError(f"the process that starts the models {error}", context=where, hint=hint) from error


#: seconds between tries to reach a scheduler that went away; after the last the sweep stops.
WAITS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 60.0, 60.0, 60.0)


class Progress(NamedTuple):
    """The progress of a sweep."""

    #: models, with those that were done before
    done: int
    total: int
    #: of the latest result
    model: str
    without_verdict: int


Tell = Callable[[Progress | str], None]


class SweepPlan(NamedTuple):
    """The remaining tasks, how many models need none, and the description for the folder."""

    tasks: tuple[records.SweepTask, ...]
    done: int
    about: SweepDescription


def plan(
    models: Sequence[records.Model],
    targets: Sequence[Target],
    modes: Sequence[Mode],
    folder: Folder,
    lists: OpLists,
    *,
    small: bool,
    timeout: float,
    memory: float,
    fresh: bool,
    interpreter: Callable[[str], str] = lambda _: "",
) -> SweepPlan:
    """Plan the models and modes that have no result in the folder yet.

    Args:
        models: what is swept, on ``targets``, in ``modes``.
        targets: the targets of each model.
        modes: inference, training or both.
        folder: where results are kept.
        lists: the op lists to judge by.
        small: take fewer layers of library models.
        timeout: seconds for a model in a mode.
        memory: GB for a model.
        fresh: plan what has a result, too.
        interpreter: gives the Python that runs a model, of an environment; empty: this Python.
    """
    here, source = versions(), sources()
    settings = {"op_lists": lists.sha256, "sources": source, "small": small, **here}
    common: dict[str, Any] = {"targets": tuple(targets), "small": small}
    common |= {"timeout": timeout, "memory": memory, "versions": here}
    tasks: list[records.SweepTask] = []
    keys: list[str] = []
    for model in models:
        python = interpreter(model.spec)
        own: dict[str, object] = {**settings, "file": _content(model.spec)}
        if python:
            own["environment"] = Path(python).parents[1].name
        named = {mode: key_of(model, mode, targets, own) for mode in modes}
        keys += named.values()
        left = {mode: key for mode, key in named.items() if fresh or not folder.has(key)}
        if left:
            tasks.append(records.SweepTask(model=model, keys=left, interpreter=python, **common))
    about = SweepDescription(
        op_lists=lists.digest,
        sources=source,
        packages=here,
        targets=tuple(map(records.target_name, targets)),
        modes=tuple(modes),
        small=small,
        keys=tuple(keys),
    )
    return SweepPlan(tuple(tasks), len(models) - len(tasks), about)


def _content(spec: str) -> str:
    """Return the digest of the file that defines a model; empty if no file does."""
    name = spec if is_file(spec) else spec.rpartition(":")[0]
    return (file_digest(name) or "") if name and is_file(name) else ""


def sweep(
    tasks: Sequence[records.SweepTask],
    folder: Folder,
    engine: Engine,
    tell: Tell,
    *,
    before: int = 0,
    waits: Sequence[float] = WAITS,
) -> int:
    """Run the tasks, write each result as it comes, and return how many were done.

    Args:
        tasks: one a model; ``before`` are models that need none.
        folder: where results are kept.
        engine: what runs them.
        tell: called with each model, and with losses.
        before: how many models were done already.
        waits: seconds to wait for a scheduler that went away, try by try.

    Raises:
        CaptureError: the scheduler did not come back.
        UsageError: a result cannot be written, or a worker has other versions.
    """
    waiting = {task.model.spec + repr(sorted(task.keys.items())): task for task in tasks}
    total, lost_in_a_row = before + len(waiting), 0
    out: list[str] = []

    def progress(results: Sequence[records.SweepResult]) -> Progress:
        failed = sum(bool(result.failures) for result in results)
        return Progress(total - len(waiting), total, results[0].model.spec, failed)

    while waiting:
        out.clear()
        try:
            for answer in engine.run(_hand_out(waiting, out)):
                lost_in_a_row = 0
                results = msgspec.json.decode(answer, type=list[records.SweepResult])
                failures = [failure for result in results for failure in result.failures]
                # The process ended, or was killed at the end of its time: another model may have ended it, or taken
                # its time or its memory.
                if engine.jobs > 1 and any(failure.stage == "worker" for failure in failures):
                    continue
                name = _keep(results, waiting, folder)
                out.remove(name)
                tell(progress(results))
            if out:
                tell(f"{plural(len(out), 'model')} did not end: running again, one by one")
        except LostError as lost:
            if lost.scheduler:
                _wait(lost, waits, lost_in_a_row, tell)
                lost_in_a_row += 1
                continue
            tell(f"{lost}: running {plural(len(out), 'model')} again, one by one")
        for name in out:
            if results := _alone(name, waiting, folder, engine):
                tell(progress(results))
    return len(tasks)


def _hand_out(waiting: dict[str, records.SweepTask], out: list[str]) -> Iterator[bytes]:
    for name, task in list(waiting.items()):
        out.append(name)
        yield msgspec.json.encode(task)


def _wait(lost: LostError, waits: Sequence[float], times: int, tell: Tell) -> None:
    if times >= len(waits):
        problem = f"the scheduler did not come back: {lost}"
        hint = "finished results are kept; the same command continues"
        raise CaptureError(problem, context=f"{times} tries in {sum(waits):g} s", hint=hint) from lost
    tell(f"{lost}: trying again in {waits[times]:g} s")
    time.sleep(waits[times])


def _keep(results: Sequence[records.SweepResult], waiting: dict[str, records.SweepTask], folder: Folder) -> str:
    """Write the results of a task, and return its name in ``waiting``."""
    for result in results:
        folder.keep(result)
    keys = {result.key for result in results}
    name = next(name for name, task in waiting.items() if keys == {*task.keys.values()})
    del waiting[name]
    return name


def _alone(
    name: str, waiting: dict[str, records.SweepTask], folder: Folder, engine: Engine
) -> list[records.SweepResult]:
    """Run a model again that ended, or lost its worker, while others ran; what ends now ends because of this model.

    Returns:
        The results; none where the scheduler went away, and the model waits on.
    """
    task = waiting[name]
    try:
        (answer,) = engine.run([msgspec.json.encode(task)])
        results = msgspec.json.decode(answer, type=list[records.SweepResult])
    except LostError as lost:
        if lost.scheduler:
            return []
        why = "the worker died of it, twice"
        results = [_end_early(task, mode, "died", why) for mode in task.keys]
    _keep(results, waiting, folder)
    return results
