"""Moving a model to the simulated device."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
from torch import nn

import opcheck
from opcheck.capture.child.build import building
from opcheck.capture.child.move import Mover
from opcheck.capture.child.recording.recorder import Numbers
from opcheck.common.errors import CaptureError
from opcheck.simulator.dispatch.tensor import is_on_mps


def test_parameters_stay_parameters_and_tied_ones_tied() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    mover = Mover(100)
    mover.module(model)
    assert model[0].weight is model[1].weight
    assert is_on_mps(model[0].weight)
    assert isinstance(model[0].weight, nn.Parameter)
    assert model[0].weight.requires_grad
    assert mover.elements == 9 + 3 + 3
    assert mover.moves == []


def test_a_float64_buffer_is_a_call_of_its_own() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("table", torch.ones(4, dtype=torch.float64))
    mover = Mover(100)
    mover.module(model)
    (call,) = mover.calls(Numbers())
    assert (call.op, call.phase, call.module) == ("aten::_to_copy", "move", "table")
    assert call.outputs[0].dtype == "float64"


def test_plain_attributes_stay_behind_as_on_a_mac() -> None:
    model = nn.Linear(2, 2)
    model.scale = torch.ones(2)
    Mover(100).module(model)
    assert type(model.scale) is torch.Tensor


def test_inputs_keep_their_structure() -> None:
    pair = namedtuple("pair", "a b")  # noqa: PYI024 - what user code has
    value = {"x": [torch.ones(2), 3], "y": pair(torch.ones(1), "text")}
    moved = Mover(100).value(value, "inputs")
    assert is_on_mps(moved["x"][0])
    assert moved["x"][1] == 3
    assert type(moved["y"]) is pair
    assert is_on_mps(moved["y"].a)


def test_values_are_kept_for_small_tensors_only() -> None:
    mover = Mover(4)
    assert mover.value(torch.ones(4), "small")._mps.payload is not None
    assert mover.value(torch.ones(5), "large")._mps.payload is None
    assert mover.value(torch.ones(2, device="meta"), "meta")._mps.payload is None


@pytest.mark.parametrize("device", ["mps", torch.device("mps"), torch.device("mps", 0)])
def test_a_constructor_may_name_the_device(device: str | torch.device) -> None:
    with building():
        model = nn.Linear(2, 2).to(device)
        model.made = nn.Linear(2, 2, device=device, dtype=torch.float16)
        model.scale = torch.ones(2, device=device) * 2
        model.large = nn.Embedding(70_000, 2).to(device=device)
        model.beside = torch.ones(2)
    Mover(100).module(model)
    for tensor in (model.weight, model.made.weight, model.scale, model.large.weight):
        assert is_on_mps(tensor)
    assert model.made.weight.dtype is torch.float16
    assert type(model.beside) is torch.Tensor


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_compressed_buffer_is_refused_by_name() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("table", torch.eye(2).to_sparse_csr())
    with pytest.raises(CaptureError) as caught:
        Mover(100).module(model)
    assert "sparse_csr" in caught.value.message
    assert caught.value.context == "table"


def test_a_lazy_module_gets_its_shape_on_the_device() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
            self.unused = nn.LazyConv2d(2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.layers(x)
            return made

    report = opcheck.audit(Net(), (torch.ones(4, 4),), torch="2.13")
    assert report.headline == "runs natively"
