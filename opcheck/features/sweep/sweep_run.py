"""Runs a sweep: plans the missing work, passes it to the engine, and writes each result at once."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from opcheck.common.errors import CaptureError
from opcheck.common.files import is_file
from opcheck.common.text import plural
from opcheck.common.versions import Target
from opcheck.common.vocabulary import Mode
from opcheck.data.registrations import OpLists
from opcheck.features.sweep.sweep_engine import Engine, LostError
from opcheck.features.sweep.sweep_folder import Folder, SweepDescription, key_of, sources
from opcheck.features.sweep.sweep_records import (
    MissingVerdict,
    Model,
    SweepResult,
    SweepTask,
    target_name,
)
from opcheck.features.sweep.sweep_summary import has_verdicts
from opcheck.features.sweep.sweep_worker import versions
from opcheck.worker.dependency_tracking import file_digest

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

    tasks: tuple[SweepTask, ...]
    done: int
    about: SweepDescription


def plan(
    models: Sequence[Model],
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
    tasks: list[SweepTask] = []
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
            task = SweepTask(
                model=model,
                keys=left,
                targets=tuple(targets),
                small=small,
                timeout=timeout,
                memory=memory,
                interpreter=python,
                versions=here,
            )
            tasks.append(task)
    about = SweepDescription(
        op_lists=lists.digest,
        sources=source,
        packages=here,
        targets=tuple(map(target_name, targets)),
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
    tasks: Sequence[SweepTask],
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
    while waiting:
        out: list[str] = []
        try:
            for answer in engine.run(_handed_out(waiting, out)):
                lost_in_a_row = 0
                results = msgspec.json.decode(answer, type=list[SweepResult])
                failures = [failure for result in results for failure in result.failures]
                # The process ended, or was killed at the end of its time: another model may have ended it, or taken
                # its time or its memory.
                if engine.jobs > 1 and any(failure.stage == "worker" for failure in failures):
                    continue
                name = _keep(results, waiting, folder)
                out.remove(name)
                tell(_progress(results, total - len(waiting), total))
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
                tell(_progress(results, total - len(waiting), total))
    return len(tasks)


def _handed_out(waiting: dict[str, SweepTask], out: list[str]) -> Iterator[bytes]:
    for name, task in list(waiting.items()):
        out.append(name)
        yield msgspec.json.encode(task)


def _keep(results: Sequence[SweepResult], waiting: dict[str, SweepTask], folder: Folder) -> str:
    """Write the results of a task, and return its name in ``waiting``."""
    for result in results:
        folder.keep(result)
    keys = {result.key for result in results}
    name = next(name for name, task in waiting.items() if keys == {*task.keys.values()})
    del waiting[name]
    return name


def _progress(results: Sequence[SweepResult], done: int, total: int) -> Progress:
    return Progress(
        done, total, results[0].model.spec, sum(not has_verdicts(result) for result in results)
    )


def _wait(lost: LostError, waits: Sequence[float], times: int, tell: Tell) -> None:
    if times >= len(waits):
        raise CaptureError(
            f"the scheduler did not come back: {lost}",
            context=f"{times} tries in {sum(waits):g} s",
            hint="finished results are kept; the same command continues",
        ) from lost
    tell(f"{lost}: trying again in {waits[times]:g} s")
    time.sleep(waits[times])


def _alone(
    name: str, waiting: dict[str, SweepTask], folder: Folder, engine: Engine
) -> list[SweepResult]:
    """Run a model again that ended, or lost its worker, while others ran; what ends now ends because of this model.

    Returns:
        The results; none where the scheduler went away, and the model waits on.
    """
    task = waiting[name]
    try:
        (answer,) = engine.run([msgspec.json.encode(task)])
        results = msgspec.json.decode(answer, type=list[SweepResult])
    except LostError as lost:
        if lost.scheduler:
            return []
        failed = MissingVerdict(
            targets=tuple(map(target_name, task.targets)),
            stage="worker",
            problem="died",
            message="the worker died of it, twice",
        )
        results = [
            SweepResult(key=key, model=task.model, mode=mode, failures=(failed,))
            for mode, key in task.keys.items()
        ]
    _keep(results, waiting, folder)
    return results
