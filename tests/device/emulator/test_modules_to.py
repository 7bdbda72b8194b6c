"""Module.to("mps") sets ``.data`` of the parameters that there are (torch/nn/modules/module.py, ``_apply``).

So it does on a Mac: tensors of the CPU and of MPS are both dense, hence of compatible types to ``.data =``
(c10/core/TensorImpl.h, has_compatible_shallow_copy_type).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import utils
from torch.nn.utils import prune

pytestmark = pytest.mark.usefixtures("mac")

WRAPPED: dict[str, Callable[[], nn.Module]] = {
    "weight_norm": lambda: utils.weight_norm(nn.Linear(3, 3)),
    "weight_norm of a convolution": lambda: utils.weight_norm(nn.Conv1d(3, 3, 1)),
    "spectral_norm": lambda: utils.spectral_norm(nn.Linear(3, 3)),
    "parametrizations.weight_norm": lambda: utils.parametrizations.weight_norm(nn.Linear(3, 3)),
    "parametrizations.spectral_norm": lambda: utils.parametrizations.spectral_norm(nn.Linear(3, 3)),
    "prune": lambda: prune.l1_unstructured(nn.Linear(3, 3), "weight", 0.5),
}

LAZY: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.LazyLinear(3), (2, 4)),
    "convolution": (lambda: nn.LazyConv2d(3, 1), (1, 2, 4, 4)),
    "transposed": (lambda: nn.LazyConvTranspose1d(3, 2), (1, 2, 4)),
    "batchnorm": (nn.LazyBatchNorm1d, (4, 3)),
    "instancenorm": (lambda: nn.LazyInstanceNorm1d(affine=True), (2, 3, 4)),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", WRAPPED)
def test_a_module_whose_weights_are_computed(name: str) -> None:
    module = WRAPPED[name]().to("mps")
    x = torch.ones(1, 3, 3, device="mps")
    module(x).sum().backward()
    for parameter in module.parameters():
        assert parameter.is_mps
        assert type(parameter) is nn.Parameter
        assert parameter.grad is not None
        assert parameter.grad.is_mps


def test_a_live_graph_and_weak_references() -> None:
    layer = nn.Linear(2, 2)
    reference = weakref.ref(layer.weight)
    loss = layer(torch.ones(1, 2)).sum()
    layer.to("mps")
    assert reference() is layer.weight
    assert layer.weight.is_mps
    loss.backward()


def test_an_optimizer_made_before() -> None:
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer.to("mps")
    before = layer.weight.tolist()
    layer(torch.ones(1, 2, device="mps")).sum().backward()
    optimizer.step()
    assert optimizer.param_groups[0]["params"][0] is layer.weight
    assert optimizer.state[layer.weight]["exp_avg"].is_mps
    assert layer.weight.tolist() != before


def test_there_and_back() -> None:
    layer = nn.Linear(2, 2).requires_grad_(requires_grad=False)
    weight = layer.weight
    values = weight.tolist()
    for device in ("mps", "cpu", "mps"):
        layer.to(device)
        assert layer.weight is weight
        assert weight.device.type == device
        assert weight.tolist() == values
        assert not weight.requires_grad
        assert layer(torch.ones(1, 2, device=device)).device.type == device
    assert layer.half().weight.dtype is torch.float16
    assert layer.weight is weight


def test_tied_weights_and_gradients() -> None:
    embedding, out = nn.Embedding(4, 3), nn.Linear(3, 4, bias=False)
    out.weight = embedding.weight
    model = nn.ModuleList([embedding, out])
    out(embedding(torch.tensor([1]))).sum().backward()
    model.to("mps")
    assert embedding.weight is out.weight
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.is_mps


def test_load_state_dict() -> None:
    layer = nn.Linear(2, 2).to("mps")
    layer.load_state_dict(nn.Linear(2, 2).state_dict())
    assert layer.weight.is_mps
    layer.load_state_dict(nn.Linear(2, 2).state_dict(), assign=True)
    assert layer.weight.device.type == "cpu"
    with torch.device("meta"):
        empty = nn.Linear(2, 2)
    empty.load_state_dict(nn.Linear(2, 2).to("mps").state_dict(), assign=True)
    assert empty.weight.is_mps
    assert type(empty.weight) is nn.Parameter


def test_a_module_without_memory() -> None:
    with torch.device("meta"):
        layer, other = nn.Linear(2, 2), nn.Linear(2, 2)
    assert layer.to_empty(device="mps").weight.is_mps
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        other.to("mps")


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("name", LAZY)
def test_lazy_modules(name: str) -> None:
    """torch/nn/parameter.py, UninitializedTensorMixin: ``materialize`` takes the device of ``self.data``."""
    make, shape = LAZY[name]
    module = make().to("mps")
    module(torch.ones(shape, device="mps")).sum().backward()
    for tensor in (*module.parameters(), *module.buffers()):
        assert tensor.is_mps
        assert type(tensor) in (nn.Parameter, torch.Tensor)


def test_an_uninitialized_parameter_knows_its_device() -> None:
    parameter: Any = nn.UninitializedParameter(device="mps")  # type: ignore[call-arg]
    assert parameter.device.type == "mps"
    assert parameter.half().device.type == "mps"
    with pytest.raises(RuntimeError, match="Can't access the shape"):
        _ = parameter.shape
    parameter.materialize((2, 3))
    assert (type(parameter), parameter.is_mps, parameter.shape) == (nn.Parameter, True, (2, 3))
