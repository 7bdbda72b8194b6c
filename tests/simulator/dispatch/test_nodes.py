"""In backward, what C++ makes for itself is where its node is, and the program's own calls are the program's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.checkpoint import checkpoint

from opcheck.simulator.dispatch.tensor import is_on_mps
from tests.simulator.mac import recorded

#: Their formulas make zeros, ones, ranges or scalars (FunctionsManual.cpp).
FORMULAS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "clamp": lambda x: x.clamp(0.0, 1.0),
    "pow": lambda x: x**2.5,
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "cumprod": lambda x: x.cumprod(0),
    "prod": lambda x: x.prod(),
    "trace": torch.trace,
    "sinc": torch.sinc,
    "repeat": lambda x: x.repeat(2, 2),
    "copysign": lambda x: x.copysign(-1.0),
    "cat of nothing": lambda x: torch.cat([x, x[:0]]),
    "in place": lambda x: x.clone().mul_(2).clamp_(0.0, 1.0),
    "max": lambda x: x.max(),
}


@pytest.mark.parametrize("engine", ["backward", "autograd.backward", "grad"])
@pytest.mark.parametrize("name", FORMULAS)
def test_what_a_formula_makes_is_on_mps(name: str, engine: str) -> None:
    def run(x: torch.Tensor) -> None:
        y = FORMULAS[name](x).sum()
        if engine == "backward":
            y.backward()
        elif engine == "autograd.backward":
            torch.autograd.backward(y)
        else:
            torch.autograd.grad(y, x)
            return
        assert is_on_mps(x.grad)

    calls = recorded(run, torch.rand(3, 3).requires_grad_(), grad=True).calls
    assert not [entry.call.refusal for entry in calls if entry.call.refusal]
    assert {ref.spec.device for entry in calls for ref in entry.call.outputs} == {"mps"}


@pytest.mark.parametrize("name", FORMULAS)
def test_what_it_makes_for_the_cpu_is_not(name: str) -> None:
    # One graph on both: the loss is made on the CPU, with the same formula on either side of the move.
    def run(x: torch.Tensor) -> None:
        y = FORMULAS[name](x).cpu()
        FORMULAS[name](y if y.dim() == 2 else y.expand(3, 3)).sum().backward()
        assert is_on_mps(x.grad)

    calls = recorded(run, torch.rand(3, 3).requires_grad_(), grad=True).calls
    assert not [entry.call.refusal for entry in calls if entry.call.refusal]


def _makes(where: str) -> torch.Tensor:
    """What the program makes without a device is on the CPU, wherever it does so."""
    made = torch.zeros(3)
    assert type(made) is torch.Tensor, where
    return made.to("mps")


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_a_checkpoint_runs_again_is_the_programs(*, reentrant: bool) -> None:
    def block(x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + _makes("checkpoint"))

    def run(x: torch.Tensor) -> None:
        out: Any = checkpoint(block, x, use_reentrant=reentrant)
        out.sum().backward()

    calls = recorded(run, torch.rand(3).requires_grad_(), grad=True).calls
    assert [entry.call.route.name for entry in calls].count("aten::relu") == 2


def test_hooks_and_functions_are_the_programs() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(_ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2 + _makes("function")

    def run(x: torch.Tensor) -> None:
        y: Any = Double.apply(x)
        y.register_hook(lambda grad: grad + _makes("hook"))
        y.sum().backward()

    calls = recorded(run, torch.rand(3).requires_grad_(), grad=True).calls
    assert not [entry.call.refusal for entry in calls if entry.call.refusal]


def test_renorm_accumulates_in_float32() -> None:
    def run(x: torch.Tensor) -> None:
        torch.renorm(x, 2, 0, 1.0).abs().sum().backward()

    for dtype, wide in ((torch.float32, torch.float64), (torch.complex64, torch.complex128)):
        calls = recorded(run, torch.rand(3, 3, dtype=dtype).requires_grad_(), grad=True).calls
        made = {ref.spec.dtype for entry in calls for ref in entry.call.outputs}
        assert not made & {torch.float64, wide}


def test_the_engine_is_torchs_own_again() -> None:
    autograd: Any = torch.autograd
    before = autograd._engine_run_backward
    recorded(lambda x: x.sum().backward(), torch.rand(3).requires_grad_(), grad=True)
    assert autograd._engine_run_backward is before
