"""A program in a worker's process ends as an answer, an error or a WorkerError; in time, and with nothing left."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opcheck.common.errors import CaptureError
from opcheck.worker import process, worker
from opcheck.worker.protocol import Limits
from opcheck.worker.worker import Worker, WorkerError
from tests.worker.hostile import OUTCOMES, Program
from tests.worker.test_process import PATIENCE, gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the programs are Linux's")
#: seconds that a program gets
LIMIT = 0.5


@pytest.fixture(scope="module")
def shared() -> Iterator[Worker[Program, str]]:
    before = os.environ.get("PYTHONPATH", "")
    variables = {"PYTHONPATH": f"{Path(__file__).parents[2]}{os.pathsep}{before}"}
    with Worker[Program, str]("tests.worker.hostile:answer", str, environment=variables) as made:
        yield made


@pytest.fixture
def asked(shared: Worker[Program, str], monkeypatch: pytest.MonkeyPatch) -> Worker[Program, str]:
    monkeypatch.setattr(worker, "GRACE", 0.2)
    monkeypatch.setattr(process, "LONGEST_LINE", 1 << 20)
    # Its start has no part in the limit.
    assert shared.ask(Program(name=""), PATIENCE) == "own answer"
    return shared


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_hostile_program_has_one_outcome_in_time_and_leaves_nothing(
    asked: Worker[Program, str], tmp_path: Path, name: str
) -> None:
    expected, _ = OUTCOMES[name]
    file = tmp_path / "daemon"
    limits = Limits(memory=1 << 30)
    seconds = LIMIT if expected == "late" else PATIENCE
    began = time.monotonic()
    try:
        text = asked.ask(Program(name=name, file=str(file)), seconds, limits=limits, more=LIMIT)
        outcome = "answered"
        assert text == "own answer"
    except WorkerError as error:
        outcome = error.kind
    except CaptureError:
        outcome = "failed"
    assert outcome == expected
    assert time.monotonic() - began < PATIENCE / 2
    asked.end()
    assert not file.exists() or gone(int(file.read_text()))


def test_an_order_that_a_stopped_process_does_not_read_is_not_waited_for(asked: Worker[Program, str]) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    assert asked._child is not None
    os.kill(asked._child.process.pid, signal.SIGSTOP)
    with pytest.raises(WorkerError, match="was not done"):
        asked.ask(Program(name="", filler="x" * 1_000_000), LIMIT)
