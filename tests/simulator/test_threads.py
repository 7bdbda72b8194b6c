"""What the program does in threads of its own is followed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from opcheck.simulator.dispatch.tensor import is_on_mps
from opcheck.simulator.errors import OutsideError
from tests.simulator.mac import names, recorded


def test_a_pool_of_threads() -> None:
    def run(x: torch.Tensor) -> None:
        with ThreadPoolExecutor(2) as pool:
            for out in pool.map(torch.sin, [x, x]):
                assert is_on_mps(out)

    assert names(run, torch.ones(2)) == ["sin", "sin"]


def test_what_a_thread_makes_on_mps_and_where_its_line_is() -> None:
    class Worker(threading.Thread):
        def run(self) -> None:
            self.made = torch.zeros(2, device="mps") + 1

    def run(_x: torch.Tensor) -> None:
        worker = Worker()
        worker.start()
        worker.join()
        assert is_on_mps(worker.made)

    recorder = recorded(run, torch.ones(2))
    place, _ = recorder.place(recorder.calls[-1])
    assert place is not None
    assert place.function.endswith("Worker.run")
    assert "torch.zeros" in place.text


def test_data_in_flight_is_each_threads_own() -> None:
    """Factories for the CPU stay there while another thread works on MPS."""

    def run(x: torch.Tensor) -> None:
        done = threading.Event()

        def busy() -> None:
            while not done.is_set():
                torch.special.entr(x)

        worker = threading.Thread(target=busy)
        worker.start()
        made = [type(torch.zeros(2)) for _ in range(200)]
        done.set()
        worker.join()
        assert set(made) == {torch.Tensor}

    recorded(run, torch.ones(2))


def test_a_pool_of_before() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        assert names(lambda x: pool.submit(torch.sin, x).result(), torch.ones(2)) == ["sin"]
        assert pool.submit(torch.sin, torch.zeros(1)).result().tolist() == [0.0]


@pytest.mark.parametrize("work", [torch.sin, lambda _x: torch.zeros(2, device="mps")], ids=["sin", "zeros"])
def test_a_thread_of_before_is_not_simulated(work: Callable[[torch.Tensor], object]) -> None:
    wait, raised = threading.Event(), []

    def thread() -> None:
        wait.wait()
        with pytest.raises(OutsideError, match="in a thread that was started before it") as error:
            work(given[0])
        raised.append(error)

    def run(x: torch.Tensor) -> None:
        given.append(x)
        wait.set()
        worker.join()

    given: list[torch.Tensor] = []
    worker = threading.Thread(target=thread)
    worker.start()
    recorded(run, torch.ones(2))
    assert raised


def test_threads_are_as_before_at_the_end() -> None:
    before = threading.Thread.start, ThreadPoolExecutor.submit
    recorded(lambda x: x + 1, torch.ones(2))
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == before
