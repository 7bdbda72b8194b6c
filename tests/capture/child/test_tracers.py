"""Three tracers, one dispatcher: the calls are the same where all three can follow."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from opcheck.capture.child.loading.fixed_programs import REFUSALS, follow
from opcheck.capture.child.move import Mover
from opcheck.capture.child.recording.recorder import Recorder
from opcheck.capture.request import DEFAULT_TRACER, TRACERS
from opcheck.common.errors import CaptureError
from opcheck.data.registrations import load
from opcheck.simulator.mac import simulated_mac
from opcheck.simulator.real_device import out_of_reach
from tests.simulator.mac import target


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return y.relu() + torch.arange(4, device=x.device)


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x


class Conditional(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def _calls(tracer: str, model: nn.Module) -> list[tuple[str, str, str]]:
    traced = follow(tracer, model, (torch.ones(2, 4),), {})
    mover, recorder = Mover(16_384), Recorder()
    mover.module(traced)
    x = mover.value(torch.ones(2, 4), "x")
    with (
        simulated_mac(target(), dict(load().operators("2.13")), recorder),
        recorder.sites.follow_modules(traced),
        torch.no_grad(),
    ):
        traced(x)
    result = []
    for entry in recorder.calls:
        location, module = recorder.place(entry)
        result.append((entry.call.route.name, location.text if location else "", module))
    return result


def test_the_names_are_those_of_the_command_line() -> None:
    assert {DEFAULT_TRACER, *REFUSALS} == TRACERS.keys()


def test_export_and_dispatch_see_the_same_calls_at_the_same_lines() -> None:
    dispatched = {(op, text) for op, text, _ in _calls("dispatch", Small())}
    exported = {(op, text) for op, text, _ in _calls("export", Small())}
    assert exported == dispatched
    assert ("aten::linear", "y = self.layer(x)") in dispatched


def test_fx_keeps_modules_whole() -> None:
    calls = _calls("fx", nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    assert [(op, module) for op, _, module in calls] == [("aten::linear", "0"), ("aten::relu", "1")]


def test_export_compiles_a_branch_where_the_device_is_out_of_reach() -> None:
    # Dynamo asks an accelerator for its current stream, which a Mac's build has.
    with out_of_reach():
        traced = follow("export", Conditional(), (torch.ones(2, 4),), {})
    assert torch.equal(traced(torch.ones(2, 4)), torch.ones(2, 4).sin())


def test_a_device_that_export_baked_in_is_the_mac_again() -> None:
    assert "aten::arange" in {op for op, _, _ in _calls("export", Small())}


@pytest.mark.parametrize("tracer", ["fx", "export"])
def test_control_flow_on_values_is_refused_with_a_way_out(tracer: str) -> None:
    with pytest.raises(CaptureError) as caught:
        follow(tracer, Branches(), (torch.ones(2, 4),), {})
    assert "--tracer dispatch" in caught.value.hint
