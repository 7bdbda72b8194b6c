"""Derivatives in forward mode: tangents that nobody gave are zeros without memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.simulator.mac import names

#: torch/_decomp/decompositions_for_jvp.py makes scripts when forward mode is first used.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x, weight).tanh()


@pytest.mark.parametrize(
    "run",
    [
        lambda x, w: torch.func.jvp(lambda v: linear(v, w), (x,), (x,)),
        lambda x, w: torch.func.jacfwd(lambda v: linear(v, w))(x[0]),
        lambda x, w: torch.func.hessian(lambda v: linear(v, w).sum())(x[0]),
    ],
    ids=["jvp", "jacfwd", "hessian"],
)
def test_the_run_comes_to_its_end(run: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    called = names(run, torch.zeros(4, 8), torch.zeros(8, 8))
    assert "tanh" in called
    assert {"mul.Tensor", "tanh_backward"} & set(called)
