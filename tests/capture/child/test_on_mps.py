"""Tensors that a program puts on ``mps`` while it is loaded, outside of the model: they are on the simulated device."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import opcheck
from opcheck.capture.child.build import OnMps, building
from opcheck.capture.child.move import Mover
from opcheck.capture.child.run import run
from opcheck.capture.request import CaptureRequest
from opcheck.model.records import Trace
from opcheck.simulator.dispatch.tensor import is_on_mps
from opcheck.tracing.torch_private.backend import clear_default_device, default_device
from opcheck.worker.protocol import silent
from tests.made import make_target

#: How a file makes X, and, where there is one, the way from it to a tensor of two elements.
ON_MPS = {
    "a string": "X = torch.ones(2, device='mps')",
    "a device": "X = torch.tensor([1.0, 2.0], device=torch.device('mps', 0))",
    "a move": "X = torch.ones(2).to('mps')",
    "a move of another": "Y = torch.ones(2, device='mps')\nX = torch.ones(2).to(Y)",
    "the device of another": "Y = nn.Linear(2, 2).to('mps')\nX = torch.ones(2, device=Y.weight.device)",
    "a default": "torch.set_default_device('mps')\nX = torch.ones(2)",
    "a block": "with torch.device('mps'):\n    X = torch.ones(2)",
    "a part": "X, _ = torch.arange(4.0, device='mps').chunk(2)",
    "parts": "X = torch.cat([torch.ones(1, device='mps'), torch.zeros(1, device='mps')])",
    "a copy": "import copy\nX = copy.deepcopy(torch.ones(2, device='mps'))",
    "a parameter": "X = nn.Parameter(torch.ones(2, device='mps'))",
    "without memory": "BIG = torch.ones(300, 300, device='mps')\nX = BIG[0, :2]",
    "of a module": "X = nn.LSTM(2, 200, device='mps').bias_ih_l0[:2]",
    "in a list": "LIST = [torch.ones(2, device='mps')]",
}
ON_CPU = {
    "no device": "X = torch.ones(2)",
    "before its move": "X = torch.ones(2)\nY = X.to('mps')",
    "after a move back": "X = torch.ones(2, device='mps').cpu()",
    "after a move back by name": "X = torch.ones(2, device='mps').to('cpu')",
    "written": "X = torch.ones(2).copy_(torch.ones(2, device='mps'))",
    "like another, elsewhere": "X = torch.ones_like(torch.ones(2, device='mps'), device='cpu')",
}
FILE = """
import torch
from torch import nn

{making}


class Net(nn.Module):
    def forward(self, x):
        return x * {using}


def make():
    return Net(), (torch.ones(2),)
"""


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    """Take back what a file leaves in the process."""
    before, path = set(sys.modules), [*sys.path]
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.startswith("a_file"):
            del sys.modules[name]


def _captured(folder: Path, making: str) -> Trace:
    file = folder / "a_file.py"
    using = "LIST[0]" if "LIST" in making else "X"
    file.write_text(FILE.format(making=making, using=using))
    request = CaptureRequest(model=f"{file}:make", target=make_target())
    return run(request, silent).trace


@pytest.mark.parametrize("making", ON_MPS.values(), ids=ON_MPS.keys())
def test_a_tensor_is_where_the_file_has_put_it(tmp_path: Path, making: str) -> None:
    trace = _captured(tmp_path, making)
    assert not trace.problems
    product = trace.calls[-1]
    assert product.op == "aten::mul.Tensor"
    assert {tensor.device for tensor in product.inputs} == {"mps"}


@pytest.mark.parametrize("making", ON_CPU.values(), ids=ON_CPU.keys())
def test_a_tensor_stays_on_the_cpu(tmp_path: Path, making: str) -> None:
    trace = _captured(tmp_path, making)
    assert {tensor.device for tensor in trace.calls[-1].inputs} == {"cpu", "mps"}


def test_the_default_device_serves_the_run_and_is_taken_back(tmp_path: Path) -> None:
    trace = _captured(tmp_path, "torch.set_default_device('mps')\nLIST = [torch.ones(2)]")
    assert default_device() is None
    # opcheck makes its inputs on the CPU, as a program that names no device does.
    file = tmp_path / "a_file_2.py"
    file.write_text("import torch\ntorch.set_default_device('mps')\ndef net(x):\n    return x * torch.ones(2)\n")
    request = CaptureRequest(model=f"{file}:net", target=make_target(), inputs=("2",))
    trace = run(request, silent).trace
    assert [call.op for call in trace.calls] == ["aten::ones", "aten::mul.Tensor"]
    assert not trace.problems


class Plus(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(2)


def test_a_module_of_a_process_whose_default_device_is_mps() -> None:
    x = torch.ones(1, 2)
    torch.set_default_device("mps")
    try:
        report = opcheck.audit(Plus(), x, torch="2.13", macos="15")
        assert default_device() == torch.device("mps")
    finally:
        clear_default_device()
    assert report.headline == "runs natively"


def test_a_large_tensor_stays_the_object_that_autograd_and_others_know() -> None:
    with building(on_mps := OnMps()):
        large = torch.ones(300, 300, device="mps", requires_grad=True)
        doubled = large * 2
    watching = weakref.ref(large)
    Mover(100).others(on_mps.list_marked())
    assert is_on_mps(large)
    assert large.requires_grad
    assert is_on_mps(doubled)
    assert watching() is large
