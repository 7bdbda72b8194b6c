"""The floating-point operations of calls, held against torch.utils.flop_counter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from opcheck.capture.child.move import Mover
from opcheck.capture.child.recording.graph import flops, op_calls, to_graph
from opcheck.capture.child.recording.recorder import Recorder
from opcheck.data.registrations import load
from opcheck.model.records import OpCall
from opcheck.simulator.dispatch.tensor_meta import spec_of
from opcheck.simulator.mac import simulated_mac
from tests.simulator.mac import target

MODELS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), (5, 3, 8)),
    "convolution": (nn.Sequential(nn.Conv2d(3, 8, 3, groups=1), nn.Conv2d(8, 8, 1, groups=4)), (2, 3, 9, 9)),
    "transposed": (nn.ConvTranspose2d(3, 8, 3, stride=2), (2, 3, 9, 9)),
    "elementwise": (nn.Sequential(nn.ReLU(), nn.LayerNorm(8)), (2, 8)),
}


def _calls(model: nn.Module, x: torch.Tensor) -> tuple[OpCall, ...]:
    mover, recorder = Mover(16_384), Recorder()
    mover.module(model)
    moved = mover.value(x, "x")
    registrations = dict(load().operators("2.13"))
    with simulated_mac(target(), registrations, recorder), recorder.sites.follow_modules(model):
        result = model(moved)
        if any(parameter.requires_grad for parameter in model.parameters()):
            result.sum().backward()
    return op_calls(to_graph(recorder.calls, mover.names, recorder.place))


@pytest.mark.parametrize("name", MODELS)
def test_forward_and_backward_count_as_torch_counts(name: str) -> None:
    model, shape = MODELS[name]
    x = torch.ones(shape)
    counter = FlopCounterMode(display=False)
    with counter:
        result = model(x)
        if result.requires_grad:
            result.sum().backward()
    calls = _calls(model, x)
    assert sum(call.flops for call in calls) == counter.get_total_flops()
    assert (name == "elementwise") == (counter.get_total_flops() == 0)


class Attention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x[..., :5, :], x[..., :5, :])


def test_attention_counts_as_its_two_products() -> None:
    x = torch.ones(2, 4, 7, 8)
    counter = FlopCounterMode(display=False)
    with counter:
        (x @ x[..., :5, :].transpose(-1, -2)).softmax(-1) @ x[..., :5, :]
    assert sum(call.flops for call in _calls(Attention(), x)) == counter.get_total_flops() > 0


def _counted(name: str, *args: Any) -> int:
    given = [spec_of(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
    given = [[*map(spec_of, arg)] if isinstance(arg, tuple) else arg for arg in given]
    return flops(getattr(torch.ops.aten, name).default, given, {}, [])


def test_what_the_counter_decomposes_has_a_formula_of_its_own() -> None:
    x, wide, narrow = torch.ones(7, 2, 3), torch.ones(16, 3), torch.ones(16, 4)
    bias = torch.ones(16)
    # Seven steps of a batch of two: four gates of four units, of three inputs and four hidden values.
    assert _counted("_lstm_mps", x, (), (wide, narrow, bias, bias)) == 2 * 14 * (48 + 64)
    # Each row goes through the weight of its group.
    assert _counted("_grouped_mm", torch.ones(10, 8), torch.ones(3, 8, 4)) == 2 * 10 * 8 * 4
    # A vector as the weight, as linear takes one.
    assert _counted("linear", torch.ones(5, 8), torch.ones(8)) == 2 * 5 * 8


def test_a_formula_that_cannot_count_counts_nothing() -> None:
    assert _counted("mm", torch.ones(2, 3), torch.ones(4, 5)) == 0
    assert _counted("_flash_attention_forward", torch.ones(2, 3)) == 0
    assert _counted("relu", torch.ones(2, 3)) == 0
