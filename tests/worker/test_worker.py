"""Work in another process: its answer comes back typed, and whatever else it does is an error with a name."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opcheck.common.errors import CaptureError, InputError
from opcheck.worker import platform, worker
from opcheck.worker.protocol import Say
from opcheck.worker.worker import Worker, WorkerError, run_forked
from tests.worker.functions import Question, Reply
from tests.worker.test_process import PATIENCE


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker[Question, Reply]]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    with Worker[Question, Reply]("tests.worker.functions:answer", Reply) as made:
        yield made


def test_requests_are_answered_one_after_the_other_by_one_process(asked: Worker[Question, Reply]) -> None:
    stages: list[str] = []
    replies = [
        asked.ask(Question(do="nothing", number=number), PATIENCE, progress=stages.append) for number in range(3)
    ]
    assert [reply.number for reply in replies] == [0, 1, 2]
    assert len({reply.process for reply in replies}) == 1
    assert stages == ["doing nothing"] * 3


def test_what_it_prints_is_no_answer_and_its_stdin_is_empty(asked: Worker[Question, Reply]) -> None:
    assert asked.ask(Question(do="print", number=1), PATIENCE).number == 1


def test_garbage_is_collected_but_not_among_what_was_imported(asked: Worker[Question, Reply]) -> None:
    first, second = (asked.ask(Question(do="count what is frozen"), PATIENCE).number for _ in range(2))
    assert first >= second > 1000


def test_its_exceptions_travel(asked: Worker[Question, Reply]) -> None:
    with pytest.raises(InputError) as caught:
        asked.ask(Question(do="raise"), PATIENCE)
    assert (caught.value.context, caught.value.hint) == ("where", "how")
    with pytest.raises(CaptureError, match="broke off: ValueError: broken") as other:
        asked.ask(Question(do="break"), PATIENCE, subject="m.py:f")
    assert other.value.context == "m.py:f"
    # It goes on.
    assert asked.ask(Question(do="nothing", number=5), PATIENCE).number == 5


def test_where_it_ends_another_takes_its_place(asked: Worker[Question, Reply]) -> None:
    with pytest.raises(WorkerError) as caught:
        asked.ask(Question(do="exit"), PATIENCE)
    error = caught.value
    assert (error.kind, str(error), error.code) == ("died", "exited with code 3", 3)
    assert (error.stage, error.printed) == ("doing exit", "last words")
    assert not asked.alive
    assert asked.ask(Question(do="nothing", number=2), PATIENCE).number == 2


def test_it_is_ended_after_its_time(asked: Worker[Question, Reply]) -> None:
    process = asked.ask(Question(do="nothing"), PATIENCE).process
    with pytest.raises(WorkerError, match=r"was not done after 0\.5 s") as caught:
        asked.ask(Question(do="sleep"), 0.5)
    assert caught.value.kind == "late"
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_it_gets_no_more_time_than_it_may_ask_for(
    asked: Worker[Question, Reply], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "GRACE", 0.1)
    asked.ask(Question(do="nothing"), PATIENCE)
    began = time.monotonic()
    with pytest.raises(WorkerError, match="was not done"):
        asked.ask(Question(do="extend"), 1.0, more=1.0)
    assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize(
    "line", ["hello", '{"type": "other"}', '{"type": "answered", "content": {"number": "x"}}', "[" * 50_000, "\xff", ""]
)
def test_a_line_that_is_no_answer_is_garbled(asked: Worker[Question, Reply], line: str) -> None:
    with pytest.raises(WorkerError, match="wrote what is no answer") as caught:
        asked.ask(Question(do=f"write {line}"), PATIENCE)
    assert caught.value.kind == "garbled"


def test_a_function_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    with (
        Worker[Question, Reply]("tests.worker.functions:nothing", Reply) as made,
        pytest.raises(CaptureError, match="has no attribute"),
    ):
        made.ask(Question(do="nothing"), PATIENCE)


@pytest.mark.skipif(not platform.CAN_FORK, reason="this system copies no process")
def test_a_fork_gives_back_what_it_made() -> None:
    assert run_forked(lambda: "x" * 200_000, str, 10.0) == "x" * 200_000


def _sleep() -> None:
    time.sleep(60)


def _announce(say: Say) -> str:
    say("a stage that takes what is left")
    say("a stage of its own", seconds=30.0)
    time.sleep(1.0)
    return "done"


def _announce_no_end(say: Say) -> str:
    say("a stage of its own", seconds=0.1)
    time.sleep(60)
    return ""


def _killed() -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no SIGKILL")
    os.kill(os.getpid(), signal.SIGKILL)


def _leave() -> None:
    os._exit(3)


@pytest.mark.skipif(not platform.CAN_FORK, reason="this system copies no process")
@pytest.mark.parametrize(
    ("work", "seconds", "said"),
    [(_sleep, 0.2, "not done after 0.2 s"), (_killed, 10.0, "ended by SIGKILL"), (_leave, 10.0, "exited with code 3")],
)
def test_a_fork_that_ends_is_told_of(work: object, seconds: float, said: str) -> None:
    assert callable(work)
    with pytest.raises(WorkerError, match=said):
        run_forked(work, type(None), seconds)


@pytest.mark.skipif(not platform.CAN_FORK, reason="this system copies no process")
def test_a_stage_of_a_fork_has_its_own_time_and_a_fork_without_one_has_its_grace_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "GRACE", 0.3)
    assert run_forked(_announce, str, 0.1, more=60.0) == "done"
    with pytest.raises(WorkerError, match=r"not done after 0\.1 s"):
        run_forked(_announce_no_end, str, 30.0, more=60.0)
    with pytest.raises(WorkerError, match=r"not done after 0\.2 s"):
        run_forked(lambda _say: _sleep(), type(None), 0.2, more=60.0)
