"""What counts as wrong: no difference within the band of the CPU, each beyond it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("llvmlite")

from opcheck.kernels.host.host_call import CallArguments, HostCall
from opcheck.numerics.child.float64 import Float64Call
from opcheck.numerics.kernels.child import sampling
from opcheck.numerics.kernels.child.sampling import Sampler
from opcheck.numerics.kernels.child.wrong_results import WrongResults, find_wrong

aten = torch.ops.aten


def compare(func: Any, *args: Any, functor: str = "", name: str = "any", change: Any) -> WrongResults | None:
    """What is wrong of a kernel that gives the CPU's results with a change."""
    call = Float64Call(func, args, {})
    outputs = tuple(call.result_tensors(func(*args)))
    results = tuple(change(output.clone()) for output in outputs)
    operands = tuple(each for each in args if isinstance(each, Tensor))
    host = HostCall(func, name, call.arguments(), outputs)
    return find_wrong(host, CallArguments((), results, functor, operands))[0]


def at(place: int, value: float) -> Any:
    def change(output: Tensor) -> Tensor:
        output.view(-1)[place] = value
        return output

    return change


X = torch.linspace(-3, 3, 25)


def test_a_wrong_result_is_found_with_its_operand() -> None:
    wrong = compare(aten.exp.default, X, functor="exp", change=at(7, 5.0))
    assert wrong is not None
    assert wrong.elements == 1
    assert wrong.smallest.inputs == ("-1.25",)
    assert (wrong.smallest.result, wrong.smallest.expected) == ("5", "0.286504805")
    assert wrong.call is not None
    assert wrong.call.arguments["self"].tolist() == [-1.25]


def test_digits_that_mathematics_of_a_gpu_may_lose_are_not_wrong() -> None:
    assert compare(aten.exp.default, X, functor="exp", change=lambda y: y * (1 + 4e-7)) is None
    assert compare(aten.exp.default, X, functor="exp", change=lambda y: y * (1 + 4e-5)) is not None


def test_a_sum_that_cancels_may_be_added_in_another_order() -> None:
    numbers = torch.tanh(torch.linspace(-2, 2, 16)) * 2
    for error, is_wrong in ((1e-6, False), (1e-3, True)):
        wrong = compare(aten.sum.default, numbers, name="sum", change=lambda y: y - error)  # noqa: B023
        assert (wrong is not None) == is_wrong


def test_a_flushed_denormal_number_is_not_wrong_and_nan_is() -> None:
    tiny = torch.tensor([-100.0, 1.0])
    assert compare(aten.exp.default, tiny, functor="exp", change=at(0, 0.0)) is None
    assert compare(aten.exp.default, tiny, functor="exp", change=at(1, float("nan"))) is not None


def test_integers_are_compared_exactly() -> None:
    numbers = torch.tensor([16777217, 3])
    wrong = compare(aten.abs.default, numbers, functor="abs", change=at(0, 16777216))
    assert wrong is not None
    assert wrong.smallest.expected == "16777217"


def test_a_step_of_exact_operands_has_no_slack() -> None:
    args = (torch.tensor([33.0]), torch.tensor([0.001]))

    def floor(a: Tensor, b: Tensor) -> Tensor:
        return torch.div(a, b, rounding_mode="floor")

    call = Float64Call(aten.div.Tensor_mode, args, {"rounding_mode": "floor"})
    host = HostCall(call.func, "div", call.arguments(), (floor(*args),))
    bound = CallArguments((), (torch.tensor([33000.0]),), "div_floor", args)
    assert find_wrong(host, bound)[0] is not None


def test_rows_are_compared_with_the_whole_call_in_float64() -> None:
    x = torch.randn(6, 33, generator=torch.Generator().manual_seed(1))
    assert compare(aten._softmax.default, x, -1, False, change=lambda y: y * (1 + 3e-7)) is None
    wrong = compare(aten._softmax.default, x, -1, False, change=at(40, 0.5))
    assert wrong is not None
    assert wrong.smallest.inputs[0] == "result [1, 7]"
    assert wrong.smallest.inputs[1].startswith("self [6, 33] from ")


def test_a_sum_that_cancels_may_be_off_by_what_its_terms_round() -> None:
    x = torch.tensor([1e4, -1e4, 1e-3])
    assert compare(aten.sum.default, x, change=lambda y: y + 5e-4) is None
    assert compare(aten.sum.default, x, change=lambda y: y + 1.0) is not None


def test_samples_are_few_the_same_each_time_and_inside() -> None:
    shape = (64, 1000, 100)
    first, second = Sampler().draw(shape, (0, 1, 2)), Sampler().draw(shape, (0, 1, 2))
    assert first == second
    tensor = torch.zeros(shape)
    parts = [sampling.cut(tensor, block, 3) for block in first]
    assert 0 < sum(part.numel() for part in parts) <= sampling.WHOLE
    assert Sampler().draw((100, 100), (0, 1)) == [()]
    row = torch.zeros(100)
    assert sampling.cut(row, ((0, 3, 5), (2, 10, 20)), 3).numel() == 20
