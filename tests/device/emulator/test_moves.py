"""Every way to the device and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.simulator.mac import no_default_device

pytestmark = pytest.mark.usefixtures("mac")

TO_MPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "name": lambda x: x.to("mps"),
    "name with index": lambda x: x.to("mps:0"),
    "device": lambda x: x.to(torch.device("mps")),
    "keyword": lambda x: x.to(device="mps"),
    "with dtype": lambda x: x.to("mps", torch.float16),
    "with everything": lambda x: x.to("mps", dtype=torch.float16, non_blocking=True, copy=True),
    "of another": lambda x: x.to(torch.ones(1, device="mps")),
    "index of the accelerator": lambda x: x.to(0),
    "copy": lambda x: x.to("mps", copy=True),
    "tensor of tensor": lambda x: torch.tensor(x.tolist(), device="mps"),
    "as_tensor": lambda x: torch.as_tensor(x, device="mps"),
    "parameter": lambda x: nn.Parameter(x.to("mps")),
}

FACTORIES: dict[str, Callable[[], torch.Tensor]] = {
    "zeros": lambda: torch.zeros(2, 3, device="mps"),
    "ones": lambda: torch.ones(2, device="mps:0"),
    "empty": lambda: torch.empty(2, device=torch.device("mps")),
    "full": lambda: torch.full((2,), 3.0, device="mps"),
    "eye": lambda: torch.eye(2, device="mps"),
    "arange": lambda: torch.arange(3, device="mps"),
    "linspace": lambda: torch.linspace(0, 1, 3, device="mps"),
    "rand": lambda: torch.rand(2, device="mps"),
    "randn": lambda: torch.randn(2, device="mps"),
    "randint": lambda: torch.randint(0, 3, (2,), device="mps"),
    "randperm": lambda: torch.randperm(4, device="mps"),
    "normal": lambda: torch.normal(0.0, 1.0, (2,), device="mps"),
    "tensor": lambda: torch.tensor([1, 2], device="mps"),
    "from numpy": lambda: torch.as_tensor(np.ones(2, dtype=np.float32), device="mps"),
    "zeros_like": lambda: torch.zeros_like(torch.ones(2, device="mps")),
    "rand_like": lambda: torch.rand_like(torch.ones(2), device="mps"),
    "new_zeros": lambda: torch.ones(2, device="mps").new_zeros(3),
    "new_full": lambda: torch.ones(2, device="mps").new_full((2,), 1),
    "new_tensor": lambda: torch.ones(2, device="mps").new_tensor([1, 2]),
    "new": lambda: torch.ones(2, device="mps").new(3),
    "window": lambda: torch.hann_window(4, device="mps"),
    "indices": lambda: torch.tril_indices(3, 3, device="mps"),
}


def test_an_index_is_a_device_of_the_accelerator() -> None:
    assert [str(torch.device(0)), str(torch.device(device=3))] == ["mps:0", "mps:3"]
    assert torch.Generator(device=0).device == torch.device(0)
    with torch.device(0):
        assert torch.zeros(1).is_mps


def test_a_device_without_an_index_keeps_none() -> None:
    assert torch.device(device="mps").index is None
    with pytest.raises(RuntimeError, match="Device index must not be negative"):
        torch.device(-1)


@pytest.mark.parametrize(("device", "other"), [("mps", "cpu"), ("cpu", "mps")])
def test_a_tensor_does_not_take_the_memory_of_another_device(device: str, other: str) -> None:
    x: Any = torch.ones(2, device=device)
    with pytest.raises(RuntimeError, match="Attempted to set the storage of a tensor on device"):
        x.set_(torch.ones(3, device=other))
    assert x.set_(torch.ones(3, device=device)).shape == (3,)


@pytest.mark.parametrize("device", ["mps", 0])
def test_a_storage_is_made_there(device: object) -> None:
    storage = torch.UntypedStorage(8, device=device)
    assert storage.device == torch.device("mps", 0)
    assert isinstance(storage, torch.UntypedStorage)
    assert torch.UntypedStorage(8).device.type == "cpu"


@pytest.mark.parametrize("name", TO_MPS)
def test_a_move_takes_the_values_along(name: str) -> None:
    moved = TO_MPS[name](torch.ones(2))
    assert str(moved.device) == "mps:0"
    assert moved.is_mps
    assert not moved.is_cpu
    assert moved.cpu().tolist() == [1, 1]


@pytest.mark.parametrize("name", FACTORIES)
def test_a_factory_makes_it_there(name: str) -> None:
    assert FACTORIES[name]().device == torch.device("mps:0")


@pytest.mark.parametrize("back", [lambda x: x.cpu(), lambda x: x.to("cpu"), lambda x: x.to(torch.ones(1))])
def test_back_on_the_cpu_it_is_a_plain_tensor(back: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert type(back(torch.ones(2, device="mps"))) is torch.Tensor


def test_a_tensor_that_is_there_is_not_copied() -> None:
    x = torch.ones(2, device="mps")
    assert x.to("mps") is x
    assert x.to("mps", copy=True) is not x


def test_a_device_context() -> None:
    with torch.device("mps"):
        linear = nn.Linear(2, 2)
        assert linear.weight.is_mps
        assert isinstance(linear.weight, nn.Parameter)
    assert not torch.zeros(1).is_mps


def test_the_default_device() -> None:
    torch.set_default_device("mps")
    try:
        assert torch.get_default_device().type == "mps"
        assert torch.zeros(2).is_mps
        assert nn.Linear(2, 2).bias.is_mps
        assert repr(torch.zeros(2)) == "tensor([0., 0.], device='mps:0')"
    finally:
        no_default_device()


def test_module_to_keeps_the_parameters() -> None:
    model = nn.Linear(2, 2)
    before = [*model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.to("mps")
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    weight = model.weight.detach().clone()
    model(torch.ones(1, 2, device="mps")).sum().backward()
    optimizer.step()
    assert bool((model.weight != weight).any())
    model.half().float().cpu()
    assert not model.weight.is_mps
    assert model.weight.grad is not None
    assert not model.weight.grad.is_mps


def test_tied_parameters_stay_tied() -> None:
    model = nn.ModuleDict({"a": nn.Embedding(4, 3), "b": nn.Linear(3, 4, bias=False)})
    model["b"].weight = model["a"].weight
    model.to("mps")
    assert model["a"].weight is model["b"].weight


def test_gradients_arrive_where_their_tensor_is() -> None:
    on_cpu = torch.ones(2, requires_grad=True)
    (on_cpu.to("mps") * 2).sum().backward()
    assert type(on_cpu.grad) is torch.Tensor
    assert on_cpu.grad.tolist() == [2, 2]
    on_mps = torch.ones(2, device="mps", requires_grad=True)
    (torch.where(on_mps > 0, on_mps, -on_mps).cpu() * 3).sum().backward()
    assert on_mps.grad is not None
    assert on_mps.grad.is_mps
    assert on_mps.grad.tolist() == [3, 3]


def test_to_and_fro_within_one_graph() -> None:
    x = torch.ones(2, requires_grad=True)
    (x.to("mps").exp().cpu() ** 2).sum().to("mps").backward()
    assert x.grad is not None
    assert x.grad.device.type == "cpu"


def test_a_parameter_moved_by_its_data_stays_the_same_object() -> None:
    parameter = nn.Parameter(torch.ones(2))
    same = parameter
    parameter.data = parameter.data.to("mps")
    assert parameter is same
    assert parameter.is_mps
    assert isinstance(parameter, nn.Parameter)
    parameter.data = parameter.data.cpu()
    assert not parameter.is_mps


def test_a_device_map() -> None:
    accelerate = pytest.importorskip("accelerate")
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model = accelerate.dispatch_model(model, {"0": "mps", "1": "cpu"}, main_device="mps")
    model(torch.ones(1, 2, device="mps")).sum()
    assert model[0].weight.is_mps


def test_what_goes_to_meta_has_no_memory_and_is_on_no_mac() -> None:
    x = torch.arange(6.0, device="mps").view(2, 3).t()
    for made in (x.to("meta"), x.to(device="meta"), torch.empty_like(x, device="meta"), x.new_zeros(2, device="meta")):
        assert (made.device.type, made.is_mps) == ("meta", False)
    assert (x.to("meta").shape, x.to("meta").stride()) == (x.shape, x.stride())
    assert nn.Linear(2, 3).to("mps").to("meta").weight.is_meta
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        x.to("meta").to("mps")


def test_a_method_that_calls_python_for_each_element_takes_no_tensor_on_mps() -> None:
    x = torch.ones(3, device="mps")
    with pytest.raises(TypeError, match=r"^apply_ is only implemented on CPU tensors$"):
        x.apply_(lambda value: value + 1)
    with pytest.raises(TypeError, match=r"^map_ is only implemented on CPU tensors$"):
        x.map_(x, lambda left, _right: left)
    assert torch.ones(2).apply_(lambda value: value + 1).tolist() == [2, 2]
    assert torch.ones(2).map_(torch.ones(2), lambda left, right: left + right).tolist() == [2, 2]
