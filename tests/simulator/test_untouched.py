"""After a simulation this process is as before: its dispatch tables, its devices, its numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from opcheck.capture.child.move import Mover
from opcheck.capture.child.recording.recorder import Recorder
from opcheck.capture.child.training import TrainStep, parse_optimizer
from opcheck.data.registrations import load
from opcheck.simulator.mac import simulated_mac
from opcheck.tracing.torch_private.backend import BUILT_FOR_MPS
from tests.simulator.mac import target

torch.manual_seed(0)
INPUT = torch.randn(2, 3, 16, 16)


class Model(nn.Module):
    """One layer of each kind that dispatches in another way on MPS."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.group = nn.GroupNorm(2, 8)
        self.batch = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.norm = nn.RMSNorm(8)
        self.out = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.batch(self.group(self.conv(x)).relu())).flatten(2).transpose(1, 2)
        x = self.attention(x, x, x)[0].float()
        return self.out(self.norm(self.lstm(x)[0])).softmax(-1)


def _tables() -> dict[str, str]:
    return {name: torch._C._dispatch_dump_table(name) for name in torch._C._dispatch_get_all_op_names()}


def _changed(before: dict[str, str]) -> list[str]:
    after = _tables()
    assert after.keys() == before.keys()
    return [name for name, table in before.items() if after[name] != table]


def _numbers() -> list[torch.Tensor]:
    """What the model computes on the CPU, and its gradients."""
    torch.manual_seed(1)
    model = Model()
    out = model(INPUT)
    out.square().sum().backward()
    return [out.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def _step(model: nn.Module, release: str, autocast: str) -> Recorder:
    recorder, mover = Recorder(), Mover(16_384)
    mover.module(model)
    x = mover.value(INPUT, "x")
    registrations = dict(load().operators(release))
    plain = torch._C._dispatch_dump_table("aten::linear")
    with simulated_mac(target(release), registrations, recorder), recorder.sites.follow_modules(model):
        assert torch._C._dispatch_dump_table("aten::linear") != plain
        TrainStep(parse_optimizer("adamw"), autocast)(model, (x,), {}, recorder.sites)
    return recorder


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """What torch imports late (torch.distributed, for one) registers operators: have it imported."""
    _step(Model(), "2.13", "")


@pytest.mark.parametrize(("release", "autocast"), [("2.13", "float16"), ("2.15", "")])
def test_a_training_step_leaves_the_process_as_it_was(release: str, autocast: str) -> None:
    before, numbers = _tables(), _numbers()
    compile_before, has_mps = torch.compile, torch.backends.mps.is_available()
    recorder = _step(Model(), release, autocast)
    assert {entry.phase for entry in recorder.calls} == {"forward", "backward", "optimizer"}
    assert _changed(before) == []
    for item, other in zip(numbers, _numbers(), strict=True):
        assert torch.equal(item, other)
    assert torch.compile is compile_before
    assert torch.backends.mps.is_available() is has_mps
    if not BUILT_FOR_MPS:  # on a Mac it is the real device again
        with pytest.raises(RuntimeError):
            torch.empty(2, device="mps")


def test_a_step_that_breaks_off_leaves_it_so_too() -> None:
    class Broken(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            out.register_hook(lambda _grad: 1 / 0)
            return out

    before = _tables()
    moved, recorder, mover = Broken(), Recorder(), Mover(16_384)
    mover.module(moved)
    x = mover.value(INPUT, "x")
    with pytest.raises(ZeroDivisionError), simulated_mac(target(), dict(load().operators("2.13")), recorder):
        TrainStep(parse_optimizer("sgd"), "")(moved, (x,), {}, recorder.sites)
    assert recorder.sites.phase == "backward"
    assert _changed(before) == []
    assert len(_numbers()) == 2 + len(list(Model().parameters())) - 1
