"""What a Mac refuses because tensors are on two devices, and what it takes all the same."""

from __future__ import annotations

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
PLAIN = (
    "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!"
)


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
    "masked_fill": (
        "expected self and mask to be on the same device",
        lambda: there().masked_fill_(mask("cpu"), 0),
    ),
}

TAKEN: dict[str, Callable[[], torch.Tensor]] = {
    "indices on the CPU": lambda: there()[index("cpu")],
    "a mask on the CPU": lambda: there()[mask("cpu")],
    "a number on mps as an index": lambda: here()[torch.tensor(1, device="mps")],
    "a number of the CPU": lambda: there() + torch.tensor(2.0),
    "a number of the CPU, assigned": lambda: put(there(), index("mps"), torch.tensor(2.0)),
    "a copy": lambda: there().copy_(here()),
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
