"""Tensors die as in the program, and the trace knows when."""

from __future__ import annotations

import gc

import torch

from opcheck.capture.child.recording.recorder import Recorder, TensorLog
from opcheck.simulator.dispatch.tensor import is_on_mps, wrap
from tests.simulator.mac import recorded


def _made_by(recorder: Recorder, overload: str) -> list[int]:
    """The storages of its results, in the order of the calls."""
    return [ref.storage for entry in recorder.calls if entry.call.route.name == overload for ref in entry.call.outputs]


def test_a_temporary_is_freed_at_once() -> None:
    recorder = recorded(lambda x: x.exp().sin().cos(), torch.ones(3))
    exp, sin, cos = (_made_by(recorder, f"aten::{name}")[0] for name in ("exp", "sin", "cos"))
    freed = recorder.tensors.freed
    assert (freed[exp], freed[sin], freed[cos]) == (2, 3, 3)


def test_a_view_holds_the_memory_of_its_base() -> None:
    def run(x: torch.Tensor) -> None:
        row = x.exp()[0]
        x.sin()
        del row
        x.cos()

    recorder = recorded(run, torch.ones(2, 3))
    (exp,) = _made_by(recorder, "aten::exp")
    assert recorder.tensors.freed[exp] == 3  # exp, select, sin | cos


def test_what_autograd_saves_lives_until_backward_has_used_it() -> None:
    def run(x: torch.Tensor) -> None:
        y = x.exp().sin().sum()
        y.backward()
        x.tan()

    recorder = recorded(run, torch.ones(3, requires_grad=True), grad=True)
    called = [entry.call.route.name for entry in recorder.calls]
    (exp,) = _made_by(recorder, "aten::exp")  # saved by exp (its result) and by sin (its argument)
    assert called.index("aten::sum") + 1 < recorder.tensors.freed[exp] <= called.index("aten::tan")


def test_what_autograd_does_not_save_is_freed_in_forward() -> None:
    def run(x: torch.Tensor) -> None:
        y = (x + 1) * 2
        y.sum().backward()

    recorder = recorded(run, torch.ones(3, requires_grad=True), grad=True)
    (added,) = _made_by(recorder, "aten::add.Tensor")
    assert recorder.tensors.freed[added] == 2


def test_a_saved_result_that_the_program_dropped_is_not_freed() -> None:
    kept: list[torch.Tensor] = []

    def run(x: torch.Tensor) -> None:
        kept.append(x.exp().sum())
        x.sin()

    recorder = recorded(run, torch.ones(3, requires_grad=True), grad=True)
    (exp,) = _made_by(recorder, "aten::exp")
    assert exp not in recorder.tensors.freed
    kept.clear()
    assert exp in recorder.tensors.freed


def test_tensors_of_the_cpu_have_numbers_of_their_own() -> None:
    ledger = TensorLog(())
    numbers = {ledger.ref(torch.zeros(3)).number for _ in range(50)}
    assert len(numbers) == 50
    stays = torch.zeros(3)
    assert ledger.ref(stays) == ledger.ref(stays)
    assert max(numbers) < 0 < ledger.ref(wrap(ledger.ref(stays).spec)).number


def test_nothing_of_the_program_is_kept() -> None:
    def run(x: torch.Tensor) -> None:
        for _ in range(50):
            x = x + 1
            assert sum(type(thing) is torch.Tensor and is_on_mps(thing) for thing in gc.get_objects()) - before < 6

    before = sum(type(thing) is torch.Tensor and is_on_mps(thing) for thing in gc.get_objects())

    recorded(run, torch.ones(3))
