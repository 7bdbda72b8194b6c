"""Each difference that the report speaks of is one: seen on plain tensors, with and without a dispatch mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode

from opcheck.common.versions import Span, Version
from opcheck.data.known_deviations import DIFFERENCES, differing


class _Mode(TorchDispatchMode):
    """Makes C++ take the ways that it has for subclasses."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _called(program: Callable[[], Any]) -> set[str]:
    with profile() as seen:
        program()
    return {event.name for event in seen.events() if event.name.startswith("aten::")}


def _x() -> torch.Tensor:
    return torch.rand(3, 3, requires_grad=True)


def _filled() -> torch.Tensor:
    value = torch.tensor(1.0, requires_grad=True)
    return torch.rand(3, 3).masked_fill(torch.ones(3, 3, dtype=torch.bool), value)


#: overload -> a result to differentiate, and an operator that only a plain tensor's gradient calls
PROGRAMS: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "aten::prod": (lambda: _x().prod(), "nonzero"),
    "aten::prod.dim_int": (lambda: _x().prod(0), "item"),
    "aten::cumprod": (lambda: _x().cumprod(0), "item"),
    "aten::cumprod_": (lambda: _x().clone().cumprod_(0), "item"),
    "aten::max": (lambda: _x().max(), "item"),
    "aten::min": (lambda: _x().min(), "item"),
    "aten::median": (lambda: _x().median(), "item"),
    "aten::nanmedian": (lambda: _x().nanmedian(), "item"),
    "aten::masked_fill.Tensor": (_filled, "masked_select"),
    "aten::masked_fill_.Tensor": (lambda: _filled().clone(), "masked_select"),
}


@pytest.mark.parametrize("op", PROGRAMS)
def test_a_plain_tensor_takes_another_way_back(op: str) -> None:
    make, only_plain = PROGRAMS[op]

    def program() -> None:
        make().sum().backward()

    plain = _called(program)
    with _Mode():
        like_subclasses = _called(program)
    assert f"aten::{only_plain}" in plain - like_subclasses


def test_each_gradient_is_tried() -> None:
    of_every_release = [difference for difference in DIFFERENCES if difference.backward and difference.torch == Span()]
    assert {op for item in of_every_release for op in item.ops} == set(PROGRAMS)


@pytest.mark.parametrize(
    ("calls", "torch_line", "number"),
    [
        ([("aten::prod", "forward")], "2.13", 0),
        ([("aten::prod", "forward"), ("aten::mul.Tensor", "backward")], "2.13", 1),
        ([("aten::mul.Tensor", "forward"), ("aten::cumprod", "backward")], "2.13", 0),
        ([("aten::masked_scatter", "forward"), ("aten::sum", "backward")], "2.1", 1),
        ([("aten::masked_scatter", "forward"), ("aten::sum", "backward")], "2.2", 0),
        ([("aten::max_pool2d_with_indices", "forward")], "1.13", 1),
        ([("aten::max_pool2d_with_indices", "forward")], "2.0", 0),
    ],
)
def test_what_a_report_says(calls: list[tuple[str, str]], torch_line: str, number: int) -> None:
    assert len(list(differing(calls, Version.parse(torch_line)))) == number
