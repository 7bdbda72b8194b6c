from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from opcheck.common.errors import CaptureError
from opcheck.common.versions import Target, Version
from opcheck.features.sweep.sweep_engine import Engine, LostError, sweep
from opcheck.features.sweep.sweep_folder import Folder, read
from opcheck.features.sweep.sweep_records import MissingVerdict, Model, SweepOutcome, SweepResult, SweepTask
from tests.features.sweep.made import about

MAC = Target(torch=Version(2, 13), macos=Version(15))
TASKS = [SweepTask(model=Model(spec=f"timm:m{n}"), keys={"inference": f"{n:032x}"}, targets=(MAC,)) for n in range(6)]


class Losing(Engine):
    """Answers, and at each number of ``losses`` loses what is out; ``killer`` ends whoever has it."""

    def __init__(self, losses: Iterable[int] = (), killer: str = "", *, scheduler: bool = True) -> None:
        super().__init__()
        self.losses = list(losses)
        self.killer = killer
        self.lost_scheduler = scheduler
        self.answered: list[str] = []

    def run(self, tasks: Iterable[bytes]) -> Iterator[bytes]:
        """One after the other."""
        for content in tasks:
            task = msgspec.json.decode(content, type=SweepTask)
            if self.losses and len(self.answered) == self.losses[0]:
                del self.losses[0]
                raise LostError("gone", scheduler=self.lost_scheduler)
            if task.model.spec == self.killer:
                raise LostError("a worker process died", scheduler=False)
            self.answered.append(task.model.spec)
            ((mode, key),) = task.keys.items()
            outcome = SweepOutcome(targets=("2.13/15.0",), headline="runs natively", complete=True, totals={})
            result = SweepResult(key=key, model=task.model, mode=mode, outcomes=(outcome,))
            yield msgspec.json.encode([result])


def swept(engine: Engine, path: Path, waits: tuple[float, ...] = (0, 0)) -> list[SweepResult]:
    with Folder(path) as folder:
        folder.begin(about([key for task in TASKS for key in task.keys.values()]))
        sweep(TASKS, folder, engine, lambda _: None, waits=waits)
    return list(read(path)[1])


@pytest.mark.parametrize("losses", [(), (0,), (3,), (1, 4), (2, 3, 5)])
@pytest.mark.parametrize("scheduler", [True, False], ids=["scheduler", "worker"])
def test_after_a_loss_each_model_is_done_once(tmp_path: Path, losses: tuple[int, ...], scheduler: bool) -> None:
    engine = Losing(losses, scheduler=scheduler)
    results = swept(engine, tmp_path)
    assert [result.model for result in results] == [task.model for task in TASKS]
    assert sorted(engine.answered) == [task.model.spec for task in TASKS]
    assert not any(result.failures for result in results)


def test_a_model_that_ends_its_workers_costs_itself_alone(tmp_path: Path) -> None:
    results = swept(Losing(killer="timm:m2", scheduler=False), tmp_path)
    assert [result.model.spec for result in results if result.failures] == ["timm:m2"]
    (failed,) = results[2].failures
    assert (failed.stage, failed.problem) == ("worker", "died")
    assert len(results) == len(TASKS)


class Ending(Losing):
    """Each model that it runs together with others has no end; alone, that is true of ``hanging`` only."""

    def __init__(self, hanging: str) -> None:
        super().__init__()
        self.jobs = 2
        self.hanging = hanging

    def run(self, tasks: Iterable[bytes]) -> Iterator[bytes]:
        """Return the results of models whose processes another model may have ended."""
        contents = list(tasks)
        failed = MissingVerdict(targets=("2.13/15.0",), stage="worker", problem="died", message="")
        for content, answer in zip(contents, super().run(contents), strict=True):
            if len(contents) == 1 and self.hanging.encode() not in content:
                yield answer
            else:
                (result,) = msgspec.json.decode(answer, type=list[SweepResult])
                yield msgspec.json.encode([replace(result, outcomes=(), failures=(failed,))])


def test_a_model_that_ends_while_others_run_runs_again_alone(tmp_path: Path) -> None:
    results = swept(Ending("timm:m2"), tmp_path)
    assert [result.model.spec for result in results if result.failures] == ["timm:m2"]
    assert len(results) == len(TASKS)


def test_a_scheduler_that_stays_away_ends_the_sweep_and_nothing_is_lost(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="did not come back") as caught:
        swept(Losing([2, 2, 2]), tmp_path)
    assert "the same command continues" in caught.value.hint
    assert len(list(read(tmp_path)[1])) == 2
