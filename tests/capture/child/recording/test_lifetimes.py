"""When memory was taken and given back, as the trace says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from opcheck.capture.child.move import Mover
from opcheck.capture.child.recording.graph import op_calls, to_graph
from opcheck.capture.child.recording.recorder import Numbers, lifetimes
from opcheck.model.records import Lifetime, OpCall
from opcheck.simulator.dispatch.tensor import to_mps
from tests.simulator.mac import recorded


def _lives(
    run: Callable[..., Any], *inputs: torch.Tensor, before: int = 0
) -> tuple[tuple[Lifetime, ...], tuple[OpCall, ...]]:
    recorder = recorded(run, *inputs)
    numbers = Numbers()
    calls = op_calls(to_graph(recorder.calls, {}, recorder.place, numbers))
    return lifetimes(recorder.calls, recorder.tensors.freed, {}, numbers, before), calls


def test_from_the_call_that_makes_it_to_the_one_after_the_last_owner() -> None:
    lives, _ = _lives(lambda x: (x.exp().sin(), x.cos()), torch.ones(4))
    assert [(live.first, live.freed, live.nbytes) for live in lives] == [
        (0, None, 16),
        (0, 2, 16),
        (1, None, 16),  # until after the last call
        (2, None, 16),
    ]


def test_storages_are_those_of_the_calls() -> None:
    lives, calls = _lives(lambda x: x.exp()[0].sin(), torch.ones(2, 2))
    made = {call.op: call.outputs[0].storage for call in calls}
    assert [live.storage for live in lives[1:]] == [made["aten::exp"], made["aten::sin"]]
    assert made["aten::select.int"] == made["aten::exp"]


def test_the_size_is_that_of_the_whole_memory() -> None:
    def largest(run: Callable[..., Any]) -> int:
        return max(live.nbytes for live in _lives(run, torch.ones(2))[0])

    assert largest(lambda x: torch.zeros(2, 300, device=x.device)[1]) == 2 * 300 * 4
    assert largest(lambda x: torch.zeros(3, device=x.device).resize_(50)) == 50 * 4
    assert largest(lambda x: x[:, None].expand(2, 1000)) == 2 * 4


def test_a_view_that_a_schema_does_not_name_takes_no_memory() -> None:
    lives, _ = _lives(lambda x: torch.ops.aten._unsafe_view(x.exp(), [4]), torch.ones(2, 2))
    assert len(lives) == 2
    lives, _ = _lives(lambda x: torch.unsafe_split(x.exp(), 1), torch.ones(2, 2))
    assert len(lives) == 2


def test_what_was_moved_has_its_kind_and_name() -> None:
    model = nn.BatchNorm1d(3)
    mover = Mover(16_384)
    mover.module(model)
    mover.value({"x": torch.ones(2, 3)}, "kwargs")
    lives = lifetimes([], {}, mover.placed, Numbers())
    assert [(live.kind, live.name, live.nbytes) for live in lives] == [
        ("parameter", "weight", 12),
        ("parameter", "bias", 12),
        ("buffer", "running_mean", 12),
        ("buffer", "running_var", 12),
        ("buffer", "num_batches_tracked", 8),
        ("input", "kwargs['x']", 24),
    ]
    assert all((live.first, live.freed) == (0, None) for live in lives)


def test_calls_before_the_recorded_ones_shift_all_but_what_was_moved() -> None:
    lives, _ = _lives(lambda x: (x.exp().sin(), x.cos()), torch.ones(4), before=5)
    assert [(live.first, live.freed) for live in lives][1:3] == [(5, 7), (6, None)]


def test_the_cpu_is_another_memory() -> None:
    lives, _ = _lives(lambda x: x.cpu() + 1, torch.ones(4))
    assert len(lives) == 1
    assert to_mps(torch.ones(1), keep=1)._mps.memory.number not in {live.storage for live in lives}
