"""What a Mac refuses because tensors are on two devices, and what it takes all the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import opcheck

pytestmark = pytest.mark.usefixtures("mac")

#: TensorAdvancedIndexing.cpp, check_indices_on_cpu_or_selfdevice; github.com/pytorch/pytorch/issues/81051
INDICES = r"indices should be either on cpu or on the same device as the indexed tensor \(cpu\)"
PLAIN = "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!"


def here() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


def there() -> torch.Tensor:
    return here().to("mps")


def index(device: str) -> torch.Tensor:
    return torch.tensor([0, 1], device=device)


def mask(device: str) -> torch.Tensor:
    return torch.tensor([[True, False, True], [False, True, False]], device=device)


def put(x: torch.Tensor, where: Any, value: Any) -> torch.Tensor:
    x[where] = value
    return x


REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "indices on mps": (INDICES, lambda: here()[index("mps")]),
    "indices on mps in a tuple": (INDICES, lambda: here()[:, index("mps")]),
    "a mask on mps": (INDICES, lambda: here()[mask("mps")]),
    "indices on mps, assigned": (INDICES, lambda: put(here(), index("mps"), 1.0)),
    "a mask on mps, assigned": (INDICES, lambda: put(here(), mask("mps"), torch.ones(3))),
    "index_put_": (INDICES, lambda: here().index_put_((index("mps"),), torch.ones(2, 3))),
    "values on the CPU": (PLAIN, lambda: put(there(), index("mps"), torch.ones(2, 3))),
    "values on mps": (PLAIN, lambda: put(here(), index("cpu"), there())),
    "gather": (PLAIN, lambda: here().gather(1, index("mps")[:, None])),
    "add": (PLAIN, lambda: there() + here()),
    "where": (PLAIN, lambda: torch.where(there() > 1, there(), here())),
    "a loss": (PLAIN, lambda: F.mse_loss(there(), here())),
    "lerp_": (PLAIN, lambda: there().lerp_(here(), 0.5)),
    "masked_fill": ("expected self and mask to be on the same device", lambda: there().masked_fill_(mask("cpu"), 0)),
}

TAKEN: dict[str, Callable[[], torch.Tensor]] = {
    "indices on the CPU": lambda: there()[index("cpu")],
    "a mask on the CPU": lambda: there()[mask("cpu")],
    "a number on mps as an index": lambda: here()[torch.tensor(1, device="mps")],
    "a number of the CPU": lambda: there() + torch.tensor(2.0),
    "a number of the CPU, assigned": lambda: put(there(), index("mps"), torch.tensor(2.0)),
    "a copy": lambda: there().copy_(here()),
    "an empty tensor of the CPU that cat skips": lambda: torch.cat([torch.tensor([]), there()]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    text, run = REFUSED[name]
    with pytest.raises(RuntimeError, match=text):
        run()


@pytest.mark.parametrize("name", TAKEN)
def test_it_is_taken(name: str) -> None:
    assert TAKEN[name]().numel() > 0


def test_the_state_of_an_optimizer_stays_on_the_cpu() -> None:
    """Module.to moves parameters, no state of an optimizer (torch/optim/adam.py)."""
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    layer.to("mps")
    with pytest.raises(RuntimeError, match=PLAIN):
        optimizer.step()


class Table(nn.Module):
    """A table that is no buffer stays on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.arange(8.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table[x]


def test_an_audit_refuses_indices_on_mps() -> None:
    report = opcheck.audit(Table(), (torch.tensor([1, 2]),), torch="2.13", macos="15")
    (group,) = [group for group in report.groups if group.verdict.status == "unsupported"]
    assert group.op == "aten::index.Tensor"
    assert "indices should be either on cpu" in group.verdict.prints


def mps_number() -> torch.Tensor:
    return torch.tensor(3.0, device="mps")


def number() -> torch.Tensor:
    return torch.tensor(2.0)


def leaf() -> torch.Tensor:
    return there().requires_grad_()


class OnTheCpu(torch.autograd.Function):
    """Its backward returns a gradient on the CPU."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:  # noqa: ARG004 - autograd passes it
        return x * factor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ARG004
        return gradient.cpu() * 3.0, None


def hooked() -> None:
    x = leaf()
    x.register_hook(lambda gradient: gradient.cpu())
    x.sum().backward()


#: structured kernels: ATen/RegisterMPS.cpp, resize_out
OUT = "Expected out tensor to have device mps:0, but got cpu instead"
#: ATen/TensorIterator.cpp, compute_types
TOO_MANY = "Trying to pass too many CPU scalars to non-CPU kernel!"

NUMBERS_REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "a sum on the CPU": (PLAIN, lambda: number().add_(mps_number())),
    "stack": ("Passed CPU tensor to MPS op", lambda: torch.stack([mps_number(), number()])),
    "stack, the CPU's first": ("Passed CPU tensor to MPS op", lambda: torch.stack([number(), mps_number()])),
    "an index of gather": (PLAIN, lambda: there()[0].gather(0, torch.tensor(1))),
    "an index of embedding": (
        "Placeholder storage has not been allocated",
        lambda: F.embedding(torch.tensor(1), there()),
    ),
    "a class": (PLAIN, lambda: F.cross_entropy(there()[0], torch.tensor(1))),
    "a mask": ("expected self and mask to be on the same device", lambda: there().masked_fill(torch.tensor(True), 0)),
    "the first matrix": (
        "Tensor for argument #1 'self' is on CPU",
        lambda: torch.addmm(number(), there()[:, :2], there()),
    ),
    "two numbers": (TOO_MANY, lambda: torch.addcmul(there(), number(), number())),
    "two numbers, out on mps": (TOO_MANY, lambda: torch.add(number(), number(), out=mps_number())),
    "sum, out": (OUT, lambda: torch.sum(there(), 1, out=torch.empty(2))),
    "mean, out": (OUT, lambda: torch.mean(there(), 1, out=torch.empty(2))),
    "amax, out": (OUT, lambda: torch.amax(there(), 1, out=torch.empty(2))),
    "argmax, out": (OUT, lambda: torch.argmax(there(), 1, out=torch.empty(2, dtype=torch.int64))),
    "a number, out": (OUT, lambda: torch.sum(there(), (0, 1), out=torch.tensor(0.0))),
    "add, out": (PLAIN, lambda: torch.add(there(), there(), out=here())),
    "nonzero, out": (
        "expected self and out to be on the same device, but got out on cpu and self on mps:0",
        lambda: torch.nonzero(there(), out=torch.empty(0, dtype=torch.int64)),
    ),
    "quantile, out": (
        r"quantile\(\) out tensor must be on the same device",
        lambda: torch.quantile(there(), 0.5, 1, out=torch.empty(2)),
    ),
    "out on mps": (
        "Expected out tensor to have device cpu, but got mps:0 instead",
        lambda: torch.sum(here(), 1, out=torch.empty(2, device="mps")),
    ),
    "out on mps, device on the CPU": (
        r"device type cpu does not match device type of out parameter \(mps\)",
        lambda: torch.randn(2, 3, out=there(), device="cpu"),
    ),
    "meshgrid": (
        "meshgrid expects all tensors to have the same device",
        lambda: torch.meshgrid(there()[0], here()[0], indexing="ij"),
    ),
    "a custom Function": (
        "Function OnTheCpuBackward returned an invalid gradient at index 0 - expected device mps:0 but got cpu",
        lambda: OnTheCpu.apply(leaf(), 2.0).sum().backward(),
    ),
    "a hook": (r"has changed the type of value \(was MPSFloatType got torch.FloatTensor\)", hooked),
    "a first gradient": (
        "invalid gradient at index 0 - expected device mps:0 but got cpu",
        lambda: (leaf() * 2).backward(torch.ones(2, 3)),
    ),
}


def _function_of_a_number() -> torch.Tensor:
    x = mps_number().requires_grad_()
    OnTheCpu.apply(x, 2.0).backward()
    assert x.grad is not None
    assert x.grad.is_mps
    return x.grad


def _learned_number() -> torch.Tensor:
    scale = number().requires_grad_()
    optimizer = torch.optim.SGD([scale], lr=0.1)
    (there() * scale).sum().backward()
    assert scale.grad is not None
    assert scale.grad.is_cpu
    optimizer.step()
    return scale


NUMBERS_TAKEN: dict[str, Callable[[], Any]] = {
    "in place": lambda: there().mul_(number()),
    "beside a number": lambda: number() + mps_number(),
    "compared": lambda: there() < number(),
    "where, twice": lambda: torch.where(there() > 1, number(), number()),
    "masked_fill": lambda: there().masked_fill(there() > 1, number()),
    "index_fill": lambda: there().index_fill(0, index("mps"), number()),
    "lerp": lambda: torch.lerp(there(), there(), number()),
    "a loss of numbers": lambda: F.mse_loss(mps_number(), number()),
    "a range": lambda: torch.linspace(number(), number(), 3, device="mps"),
    "the slice of another": lambda: there().slice_scatter(here()[:1], 0, 0, 1),
    "out on mps": lambda: torch.zeros(2, 3, out=there(), device="mps"),
    "a gradient without dimensions": _function_of_a_number,
    "a parameter without dimensions": _learned_number,
}


@pytest.mark.parametrize("name", NUMBERS_REFUSED)
def test_a_number_or_a_result_of_the_cpu_is_refused(name: str) -> None:
    text, run = NUMBERS_REFUSED[name]
    with pytest.raises(RuntimeError, match=text):
        run()


@pytest.mark.parametrize("name", NUMBERS_TAKEN)
def test_a_number_of_the_cpu_is_taken(name: str) -> None:
    assert NUMBERS_TAKEN[name]().numel() > 0


class Stacked(nn.Module):
    """Joins a number of the CPU with one of its input's device."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x.sum(), torch.tensor(1.0)])


class Accumulated(nn.Module):
    """Adds a number of its input's device to one on the CPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.tensor(0.0)
        total += x.sum()
        return total


@pytest.mark.parametrize(("model", "op"), [(Stacked(), "aten::stack"), (Accumulated(), "aten::add_.Tensor")])
def test_an_audit_refuses_a_number_of_the_cpu(model: nn.Module, op: str) -> None:
    report = opcheck.audit(model, (torch.ones(3),), torch="2.13", macos="15")
    refused = [group.op for group in report.groups if group.verdict.status == "unsupported"]
    assert refused == [op]


def test_a_tensor_takes_no_memory_of_another_device() -> None:
    for tensor, other in ((here(), there()), (there(), here())):
        text = f'tensor on device "{tensor.device}" to a storage on different device "{other.device}"'
        with pytest.raises(RuntimeError, match=text):
            tensor.set_(other.untyped_storage())
        own = torch.empty(0, device=tensor.device).set_(tensor.untyped_storage(), 0, (6,), (1,))
        assert (own.device, own.tolist()) == (tensor.device, [0, 1, 2, 3, 4, 5])


def test_a_copy_of_a_tensor_of_the_cpu_warns_of_no_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.storage, "_always_warn_typed_storage_removal", True)
    assert copy.deepcopy(here()).tolist() == here().tolist()
    with pytest.warns(UserWarning, match="TypedStorage is deprecated"):
        typed = there().storage()
    with pytest.raises(RuntimeError, match='to a storage on different device "mps:0"'):
        here().set_(typed)
