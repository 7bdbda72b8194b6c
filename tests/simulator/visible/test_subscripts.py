"""Indexing as it is where the tensor is not on the CPU.  The lists are those that torch itself runs on ``meta``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opcheck.common.versions import Version
from tests.simulator.mac import names, recorded

INDICES: list[Any] = [
    0,
    (0, 1),
    ...,
    None,
    slice(None),
    slice(0, 2),
    (slice(None), 0),
    (slice(None), slice(None)),
    (..., 0),
    (None, 0),
    (0, slice(None, None, 2)),
]


class _Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name().removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def _on_meta(index: Any, value: Any) -> list[str]:
    x = torch.empty(3, 3, device="meta")
    with _Names() as seen:
        x[index] = value
    return seen.names


#: What C++ does with a number changed in this release.
FILLS = Version.parse(torch.__version__) >= Version(2, 15)


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_a_number_is_expanded_and_copied_and_from_2_15_on_it_fills(index: Any) -> None:
    def run(x: torch.Tensor) -> None:
        x[index] = 2.0

    made = {release: names(run, torch.ones(3, 3), release=release) for release in ("2.14", "2.15")}
    assert made["2.15" if FILLS else "2.14"] == _on_meta(index, 2.0)
    *views, last = made["2.15"]
    assert last == "fill_.Scalar"
    assert made["2.14"] == ["scalar_tensor", *views, *made["2.14"][len(views) + 1 :]]
    assert made["2.14"][-1] == "copy_"


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_so_is_a_value_on_the_device(index: Any) -> None:
    def run(x: torch.Tensor, value: torch.Tensor) -> None:
        x[index] = value

    called = names(run, torch.ones(3, 3), torch.tensor(2.0))
    assert called == _on_meta(index, torch.empty((), device="meta"))


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_the_values_are_those_of_the_cpu(index: Any) -> None:
    def fill(x: torch.Tensor) -> torch.Tensor:
        x[index] = 2.0
        return x

    seen: list[Any] = []
    x = torch.arange(9.0).reshape(3, 3)
    recorded(lambda moved: seen.append(fill(moved.clone()).cpu()), x)
    torch.testing.assert_close(seen[0], fill(x.clone()))


def test_a_value_on_the_cpu_fills() -> None:
    def run(x: torch.Tensor) -> None:
        x[:2] = torch.tensor(2.0)

    assert names(run, torch.ones(3, 3)) == ["slice.Tensor", "fill_.Tensor"]


@pytest.mark.parametrize("index", [[0, 1], (slice(None), [0, 1]), [True, False, True]], ids=str)
def test_a_list_goes_to_the_device(index: Any) -> None:
    called = names(lambda x: x[index], torch.ones(3, 3))
    assert called[0] == "_to_copy"
    assert called[-1] == "index.Tensor"


def test_numbers_on_the_device_in_a_list_are_read_one_by_one() -> None:
    def run(x: torch.Tensor, numbers: torch.Tensor) -> None:
        x[(numbers[0], numbers[1]), [0, 1]] = 2.0

    called = names(run, torch.ones(3, 3), torch.tensor([2, 1]))
    assert called.count("_local_scalar_dense") == 2
    assert "index_put_" in called


def test_gradients_go_through() -> None:
    def run(x: torch.Tensor) -> None:
        y = x.clone()
        y[:, 1] = 0.0
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.cpu().tolist() == [[1.0, 0.0, 1.0]] * 3

    recorded(run, torch.ones(3, 3).requires_grad_(), grad=True)


@pytest.mark.skipif(FILLS, reason="C++ itself fills, for every target")
@pytest.mark.parametrize(("release", "fills"), [("2.14", False), ("2.15", True)])
def test_from_2_15_on_a_number_under_a_mask_fills(release: str, *, fills: bool) -> None:
    def by_mask(x: torch.Tensor) -> None:
        x[x > 0] = 2.0

    def by_indices(x: torch.Tensor, indices: torch.Tensor) -> None:
        x[indices] = 2.0

    put = ["scalar_tensor", "index_put_"]
    x = torch.ones(3, 3)
    expected = ["masked_fill_.Scalar"] if fills else put
    assert names(by_mask, x, release=release)[1:] == expected
    expected = ["index_fill_.int_Scalar"] if fills else put
    assert names(by_indices, x, torch.tensor([0, 2]), release=release) == expected
