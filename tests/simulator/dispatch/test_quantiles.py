"""Quantiles: neither the check of q (installed 2.9) nor the float64 ranks (installed 2.15) are a Mac's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.simulator.mac import names, recorded

#: 2.15 sorts last, so the order says which torch is installed; the calls do not.
CALLS = [
    "scalar_tensor",
    "sort",
    "view",
    "mul.Scalar",
    "isnan",
    "any.dim",
    "expand",
    "masked_fill.Scalar",
    "_to_copy",
    "gather",
    "sub.Tensor",
    "ceil_",
    "_to_copy",
    "gather",
    "lerp_.Tensor",
    "squeeze_.dim",
]


@pytest.mark.parametrize("release", ["2.5", "2.9", "2.13", "2.15"])
def test_the_calls_are_those_of_a_mac_whatever_torch_is_installed(release: str) -> None:
    called = names(lambda x: torch.quantile(x, 0.4, dim=1), torch.randn(3, 4), release=release)
    assert sorted(called) == sorted(CALLS)


@pytest.mark.parametrize("function", [torch.quantile, torch.nanquantile])
@pytest.mark.parametrize("release", ["2.9", "2.15"])
def test_nothing_is_read_and_nothing_is_float64(function: Callable[..., torch.Tensor], release: str) -> None:
    given = (torch.randn(3, 4), torch.tensor([0.2, 0.5]))
    calls = recorded(lambda x, q: function(x, q, dim=0), *given, release=release).calls
    assert not any(entry.call.route.reads_data for entry in calls)
    dtypes = {output.spec.dtype for entry in calls for output in entry.call.outputs}
    assert torch.float64 not in dtypes


@pytest.mark.parametrize("function", [torch.quantile, torch.nanquantile])
@pytest.mark.parametrize("interpolation", ["linear", "lower", "nearest"])
def test_the_values_are_those_of_the_cpu(function: Callable[..., torch.Tensor], interpolation: str) -> None:
    x = torch.randn(3, 5)
    x[1, 2] = float("nan")
    given = (x, torch.tensor([0.0, 0.55, 1.0]))

    def run(a: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        return function(a, q, dim=0, interpolation=interpolation)

    got: list[torch.Tensor] = []
    recorded(lambda a, q: got.append(run(a, q).cpu()), *given)
    torch.testing.assert_close(got[0], run(*given), equal_nan=True)
