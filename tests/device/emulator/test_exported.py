"""``torch.export`` and ``torch.fx`` inside of a program."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import torch

import opcheck
from opcheck.device.emulator.child.session import Emulation

#: torch/export gives these for what it does itself (2.13)
pytestmark = pytest.mark.filterwarnings("ignore:.*treespec:FutureWarning")


class Net(torch.nn.Module):
    shift: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)) + self.shift + torch.zeros(3, device=x.device)


@pytest.fixture(autouse=True)
def mac() -> Iterator[Emulation]:
    with opcheck.emulate(torch="2.13", macos="15") as run:
        yield run


@pytest.fixture(params=["cpu", "mps"])
def device(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_computes_what_the_model_does_on_its_device(device: str, *, strict: bool) -> None:
    model, x = Net().eval().to(device), torch.randn(2, 4).to(device)
    program = torch.export.export(model, (x,), strict=strict)
    assert {value.device.type for value in program.state_dict.values()} == {device}
    for made in (program, program.run_decompositions()):
        result = made.module()(x)
        assert result.device.type == device
        assert torch.equal(result.cpu(), model(x).cpu())
    assert model.linear.weight.device.type == device


def test_an_exported_program_is_saved_and_loaded_on_its_device(device: str) -> None:
    model, x = Net().eval().to(device), torch.randn(2, 4).to(device)
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, (x,)), file)
    file.seek(0)
    loaded = torch.export.load(file)
    assert torch.equal(loaded.module()(x).cpu(), model(x).cpu())
    assert {value.device.type for value in loaded.state_dict.values()} == {device}


def test_what_an_exported_program_runs_is_judged(mac: Emulation) -> None:
    model, x = Net().eval().to("mps"), torch.randn(2, 4, device="mps")
    torch.export.export(model, (x,)).module()(x)
    assert "aten::linear" in {group.op for group in mac.report.groups}


def test_a_symbolic_trace_runs_on_its_device(device: str) -> None:
    model, x = Net().eval().to(device), torch.randn(2, 4).to(device)
    assert torch.equal(torch.fx.symbolic_trace(model)(x).cpu(), model(x).cpu())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_compile_is_said_to_be_left_out_once(mac: Emulation) -> None:
    model = Net().to("mps")
    for _ in range(2):
        assert torch.compile(model) is model
    texts = [problem.message for problem in mac.report.problems]
    assert len(texts) == 1
    assert texts[0].startswith("torch.compile was left out")
