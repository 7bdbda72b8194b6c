"""What a program does with the values of a tensor on the device."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("mac")

PRINTED: dict[str, Callable[[], torch.Tensor]] = {
    "tensor([1., 2.], device='mps:0')": lambda: torch.tensor([1.0, 2.0], device="mps"),
    "tensor(3, device='mps:0')": lambda: torch.tensor(3, device="mps"),
    "tensor([], device='mps:0')": lambda: torch.empty(0, device="mps"),
    "tensor([1.], device='mps:0', dtype=torch.float16)": lambda: torch.ones(1, device="mps", dtype=torch.float16),
    "tensor([1.], device='mps:0', requires_grad=True)": lambda: torch.ones(1, device="mps", requires_grad=True),
    "tensor([2.], device='mps:0', grad_fn=<MulBackward0>)": lambda: torch.ones(1, device="mps", requires_grad=True) * 2,
    "Parameter containing:\ntensor([1.], device='mps:0', requires_grad=True)": lambda: nn.Parameter(
        torch.ones(1, device="mps")
    ),
}

#: Python's own operations on a number: what each gives for 2.5.
SCALARS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "float": (float, 2.5),
    "int": (int, 2),
    "bool": (bool, True),
    "item": (lambda x: x.item(), 2.5),
    "format": (lambda x: f"{x:.2f}", "2.50"),
    "math": (math.floor, 2),
    "comparison": (lambda x: bool(x > 2), True),
    "reflected": (lambda x: float(10 / x), 4.0),
    "power": (lambda x: float(x**2), 6.25),
    "index of a list": (lambda x: ["a", "b", "c"][x.long()], "c"),
    "range": (lambda x: [*range(x.long())], [0, 1]),
    "tensor of scalars": (lambda x: torch.tensor([x, x]).tolist(), [2.5, 2.5]),
}


@pytest.mark.parametrize("text", PRINTED)
def test_it_prints_as_on_a_mac(text: str) -> None:
    assert repr(PRINTED[text]()) == text


@pytest.mark.parametrize("name", SCALARS)
def test_a_number(name: str) -> None:
    function, expected = SCALARS[name]
    assert function(torch.tensor(2.5, device="mps")) == expected


def test_a_sequence() -> None:
    x = torch.arange(3, device="mps")
    assert len(x) == 3
    assert [int(each) for each in x] == [0, 1, 2]
    assert 1 in x
    assert x.tolist() == [0, 1, 2]


def test_masks_and_indices() -> None:
    x = torch.arange(6.0, device="mps").view(2, 3)
    mask = x > 2
    assert x[mask].tolist() == [3, 4, 5]
    assert mask.nonzero().shape == (3, 2)
    x[mask] = 0
    x[0, 1] = 9
    x[:, 2] = torch.tensor([7.0, 8.0], device="mps")
    assert x.tolist() == [[0, 9, 7], [0, 0, 8]]
    assert x[[0, 1], [1, 2]].tolist() == [9, 8]
    assert x[torch.tensor([1])].tolist() == [[0, 0, 8]]
    assert x[None, ..., 0].shape == (1, 2)


def test_views_share_memory() -> None:
    x = torch.zeros(2, 3, device="mps")
    x.view(6)[0] = 1
    x.t()[1, 0] = 5
    x.chunk(2)[1].fill_(7)
    x[0].add_(1)
    assert x.tolist() == [[2, 6, 1], [7, 7, 7]]
    assert x.view(6).data_ptr() == x.data_ptr() != 0
    assert x[1:].storage_offset() == 3
    assert x.t().stride() == (1, 3)


@pytest.mark.parametrize(
    ("change", "shape"),
    [
        (lambda x: x.t_(), (3, 2)),
        (lambda x: x.transpose_(0, 1), (3, 2)),
        (lambda x: x.unsqueeze_(0), (1, 2, 3)),
        (lambda x: x.unsqueeze_(0).squeeze_(0), (2, 3)),
        (lambda x: x.resize_(4, 2), (4, 2)),
        (lambda x: x.set_(torch.ones(5, device="mps")), (5,)),
        (lambda x: torch.add(torch.ones(7, device="mps"), 1, out=x.resize_(0)), (7,)),
        (lambda x: setattr(x, "data", torch.ones(4, device="mps")), (4,)),
    ],
)
def test_metadata_changes_in_place(change: Callable[[torch.Tensor], object], shape: tuple[int, ...]) -> None:
    x = torch.zeros(2, 3, device="mps")
    change(x)
    assert x.shape == shape
    assert x.clone().shape == shape
    assert len(x.tolist()) == shape[0]


def test_data_has_no_history_and_shares_memory() -> None:
    parameter = nn.Parameter(torch.ones(2, device="mps"))
    version = parameter._version
    parameter.data.add_(2)
    parameter.data[0] = 10
    assert parameter.tolist() == [10, 3]
    assert parameter._version == version
    parameter.data = parameter.data.half()
    assert parameter.dtype is torch.float16


def test_copies() -> None:
    model = nn.Linear(2, 2).to("mps")
    model(torch.ones(1, 2, device="mps")).sum().backward()
    other = copy.deepcopy(model)
    assert other.weight is not model.weight
    assert isinstance(other.weight, nn.Parameter)
    assert torch.equal(other.weight, model.weight)
    # torch/nn/parameter.py, Parameter.__deepcopy__, copies the values alone; torch/_tensor.py the gradient, too.
    assert other.weight.grad is None
    leaf = torch.ones(2, device="mps", requires_grad=True)
    leaf.sum().backward()
    twin = copy.deepcopy(leaf)
    assert twin.grad is not None
    assert torch.equal(twin.grad, torch.ones(2, device="mps"))
    assert twin.data_ptr() != leaf.data_ptr()
    twin.data.add_(1)
    assert (leaf.tolist(), twin.tolist()) == ([1, 1], [2, 2])
    assert copy.copy(model.weight.data).is_mps


def test_what_it_says_of_itself() -> None:
    x = torch.ones(3, device="mps")
    assert x.type() == "torch.mps.FloatTensor"
    assert x.type(torch.float16).dtype is torch.float16
    assert x.get_device() == 0
    assert x.untyped_storage().device.type == "mps"
    assert x.untyped_storage().nbytes() == 12
    assert isinstance(x, torch.Tensor)
    assert torch.is_tensor(x)
    assert torch.equal(x, x.clone())
    torch.testing.assert_close(x, x + 0)


def test_tensor_of_a_tensor() -> None:
    x = torch.ones(2, device="mps")
    with pytest.warns(UserWarning, match="copy construct from a tensor"):
        y = torch.tensor(x)
    assert y.is_mps
    assert y is not x
    assert torch.as_tensor(x) is x


def test_numpy_by_way_of_the_cpu() -> None:
    x = torch.ones(2, device="mps")
    assert x.cpu().numpy().sum() == x.numpy(force=True).sum() == 2


def test_distributions_and_random_fills() -> None:
    normal = torch.distributions.Normal(torch.zeros(2, device="mps"), torch.ones(2, device="mps"))
    assert normal.log_prob(normal.rsample()).is_mps
    assert nn.init.trunc_normal_(torch.empty(3, device="mps")).is_mps
    assert torch.multinomial(torch.ones(3, device="mps"), 2).is_mps
