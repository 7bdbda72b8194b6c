"""The Mac's own errors and warnings."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import opcheck
from opcheck.common.errors import UsageError

FLOAT64 = (
    "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
    "Please use float32 instead."
)
NUMPY = "can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
TWO_DEVICES = "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!"
MISSING = "The operator 'aten::special_airy_ai.out' is not currently implemented for the MPS device."


def there(*shape: int) -> torch.Tensor:
    return torch.ones(shape or (2, 2), device="mps")


def here(*shape: int) -> torch.Tensor:
    return torch.ones(shape or (2, 2))


RAISES: dict[str, tuple[type[Exception], str, Callable[[], object]]] = {
    "float64 factory": (TypeError, FLOAT64, lambda: torch.zeros(2, dtype=torch.float64, device="mps")),
    "float64 move": (TypeError, FLOAT64, lambda: here().double().to("mps")),
    "float64 cast": (TypeError, FLOAT64, lambda: there().double()),
    "float64 to": (TypeError, FLOAT64, lambda: there().to(torch.float64)),
    "float64 type": (TypeError, FLOAT64, lambda: there().type(torch.float64)),
    "float64 from numpy": (TypeError, FLOAT64, lambda: torch.from_numpy(np.ones(2)).to("mps")),
    "float64 of numpy": (TypeError, FLOAT64, lambda: torch.tensor(np.ones(2), device="mps")),
    "float64 module": (TypeError, FLOAT64, lambda: nn.Linear(2, 2).double().to("mps")),
    "numpy": (TypeError, NUMPY, lambda: there().numpy()),
    "numpy array": (TypeError, NUMPY, lambda: np.asarray(there())),
    "missing": (NotImplementedError, MISSING, lambda: torch.special.airy_ai(there())),
    "two devices": (RuntimeError, TWO_DEVICES, lambda: there() + here()),
    "two devices, turned": (RuntimeError, TWO_DEVICES, lambda: here() * there()),
    "two devices, in place": (RuntimeError, TWO_DEVICES, lambda: there().add_(here())),
    "two devices, loss": (RuntimeError, TWO_DEVICES, lambda: F.mse_loss(there(), here())),
    "linear, input": (
        RuntimeError,
        "Tensor for argument input is on cpu but expected on mps",
        lambda: nn.Linear(2, 2).to("mps")(here()),
    ),
    "linear, weight": (
        RuntimeError,
        "Tensor for argument weight is on cpu but expected on mps",
        lambda: nn.Linear(2, 2)(there()),
    ),
    "matmul": (
        RuntimeError,
        "Tensor for argument #2 'mat2' is on CPU, but expected it to be on GPU (while checking arguments for mm)",
        lambda: there() @ here(),
    ),
    "convolution": (
        RuntimeError,
        "Input type (torch.FloatTensor) and weight type (MPSFloatType) should be the same",
        lambda: nn.Conv2d(1, 1, 1).to("mps")(here(1, 1, 2, 2)),
    ),
    "convolution, turned": (
        RuntimeError,
        "Input type (MPSFloatType) and weight type (torch.FloatTensor) should be the same",
        lambda: nn.Conv2d(1, 1, 1)(there(1, 1, 2, 2)),
    ),
    "dot": (
        RuntimeError,
        "Expected all tensors to be on the same device. Found: mps:0, cpu",
        lambda: there(2).dot(here(2)),
    ),
    "masked_fill": (
        RuntimeError,
        "expected self and mask to be on the same device, but got mask on cpu and self on mps:0",
        lambda: there().masked_fill_(here() > 0, 1),
    ),
    "generator of the CPU": (
        RuntimeError,
        "Expected a 'mps' device type for generator but found 'cpu'",
        lambda: torch.rand(2, device="mps", generator=torch.Generator()),
    ),
    "generator of mps": (
        RuntimeError,
        "Expected a 'cpu' device type for generator but found 'mps'",
        lambda: torch.rand(2, generator=torch.Generator("mps")),
    ),
}


@pytest.mark.usefixtures("mac")
@pytest.mark.parametrize("name", RAISES)
def test_it_raises_what_the_mac_raises(name: str) -> None:
    kind, text, call = RAISES[name]
    with pytest.raises(kind, match=re.escape(text)) as caught:
        call()
    assert type(caught.value) is kind


@pytest.mark.usefixtures("mac")
def test_an_error_leaves_the_device_as_it_was() -> None:
    x = there(2)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            x.add_(here(2))
    assert x.tolist() == [1, 1]
    assert (x + 1).tolist() == [2, 2]


@pytest.mark.usefixtures("mac")
def test_an_error_in_backward_is_the_error() -> None:
    x = there(2).requires_grad_()
    x.register_hook(lambda grad: grad + torch.ones(2))
    with pytest.raises(RuntimeError, match="two devices"):
        x.sum().backward()
    y = there(2).requires_grad_()
    y.sum().backward()
    assert y.grad is not None


@pytest.mark.usefixtures("mac")
@pytest.mark.usefixtures("mac")
@pytest.mark.parametrize(("device", "name"), [("mps", "MPSFloatType"), ("cpu", r"torch\.FloatTensor")])
def test_the_error_of_a_tensor_that_was_modified_names_its_type(device: str, name: str) -> None:
    x = torch.ones(2, device=device, requires_grad=True)
    y = x * 2
    loss = (y**2).sum()
    y.add_(1)
    with pytest.raises(RuntimeError, match=rf"modified by an inplace operation: \[{name} \[2\]\]"):
        loss.backward()


def test_a_number_of_the_cpu_may_be_mixed_in() -> None:
    assert (there(2) + torch.tensor(1.0)).tolist() == [2, 2]


def test_one_mac_at_a_time(mac: object) -> None:
    assert mac is not None
    with pytest.raises(UsageError, match="running in this process already"), opcheck.emulate():
        pass
