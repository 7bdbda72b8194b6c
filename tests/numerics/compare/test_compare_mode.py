"""One call at a time: what is right, what is wrong, what has more than one right answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from opcheck.numerics.child.closeness import measure
from opcheck.numerics.child.float64 import Float64Call
from opcheck.numerics.child.kept_tensors import keep, keep_all, place, restore
from opcheck.numerics.compare.child import cpu_reference
from opcheck.numerics.compare.child.compare_mode import IS_BLANK, ComparedCall, CompareMode

aten = torch.ops.aten
CPU = torch.device("cpu")


def judged(call: Callable[[], Any], *, views: bool = False) -> list[ComparedCall]:
    seen: list[ComparedCall] = []
    with CompareMode(CPU, seen.append, views=views):
        call()
    return seen


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.arange(5, dtype=torch.int8) * 100,
        lambda: torch.tensor([70000.0]).half(),
        lambda: torch.tensor([1.0, -1.0, 0.0]) / 0,
        lambda: torch.zeros(4).add_(1).mul_(0.3),
        lambda: torch.ones(3, 4)[:, ::2].t().sub_(0.7),
        lambda: torch.tensor([3.7, math.nan, 1e30]).to(torch.int32),
        lambda: torch.tensor([1 + 2j, 3j]).conj() * 1j,
        torch.tensor([2.0, 1.0, 2.0]).sort,
        lambda: torch._foreach_add([torch.ones(2), torch.ones(3)], 2.0),
        lambda: functional.batch_norm(torch.ones(4, 2), torch.zeros(2), torch.ones(2), training=True),
    ],
)  # fmt: skip
def test_the_cpu_agrees_with_itself(call: Callable[[], Any]) -> None:
    seen = judged(call)
    assert seen
    assert {item.outcome for item in seen if item.reason != IS_BLANK} <= {"agrees", "loose"}


def test_views_are_judged_where_they_are_asked_for() -> None:
    x = torch.randn(3, 4)
    assert not judged(x.t)
    assert [item.outcome for item in judged(lambda: x.t().unfold(0, 2, 1), views=True)] == ["agrees", "agrees"]


def test_blank_memory_and_random_numbers_are_not_compared() -> None:
    seen = judged(lambda: (torch.empty(3), torch.rand(3)))
    assert [item.outcome for item in seen] == ["not compared", "not compared"]
    assert len({item.reason for item in seen}) == 2


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (torch.tensor([1.0, 2.001]), "value"),
        (torch.tensor([1.0, math.nan]), "nan"),
        (torch.tensor([1.0, math.inf]), "infinite"),
        (torch.tensor([1.0]), "shape"),
    ],
)
def test_what_is_wrong_is_named(found: torch.Tensor, kind: str) -> None:
    measured = measure(found, torch.tensor([1.0, 2.0], dtype=torch.float64))
    assert measured.error > 1
    assert measured.kind == kind


def test_a_whole_number_is_right_or_wrong() -> None:
    assert measure(torch.tensor([1, 3]), torch.tensor([1, 2])).element == (1,)
    assert not measure(torch.tensor([1, 2]), torch.tensor([1, 2])).error


def test_infinite_is_right_for_what_the_dtype_cannot_hold() -> None:
    exact = torch.tensor([1e6], dtype=torch.float64)
    assert not measure(torch.tensor([math.inf], dtype=torch.float16), exact).error
    assert measure(torch.tensor([-math.inf], dtype=torch.float16), exact).error == math.inf


def test_a_tie_is_no_difference_but_another_element_is() -> None:
    x = torch.tensor([2.0, 1.0, 2.0])
    argmax, topk = (Float64Call(aten.argmax.default, (x,), {}), Float64Call(aten.topk.default, (x, 2), {}))
    same = cpu_reference.same_choice(argmax, torch.tensor(0), torch.tensor(2))
    other = cpu_reference.same_choice(argmax, torch.tensor(0), torch.tensor(1))
    twice = cpu_reference.same_choice(topk, torch.tensor([0, 0]), torch.tensor([0, 2]))
    assert (same, other, twice) == (True, False, False)


def test_a_tensor_is_kept_with_its_layout() -> None:
    x = torch.arange(24.0).view(2, 3, 4).to(torch.complex64)[:, 1:, ::2].conj()
    there = place(x, CPU)
    assert there.stride() == x.stride()
    assert there.storage_offset() == x.storage_offset()
    assert there.is_conj()
    assert torch.equal(there, x)
    assert torch.equal(keep(x).tensor(), x)


@pytest.mark.parametrize(("is_causal", "bias"), [(False, None), (True, None), (False, torch.randn(5, 5).double())])
def test_the_formula_of_attention_is_pytorchs_with_its_derivative(
    *, is_causal: bool, bias: torch.Tensor | None
) -> None:
    q, k, v = (torch.randn(2, 4, 5, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    wanted = functional.scaled_dot_product_attention(q, k, v, bias, is_causal=is_causal)
    grad = torch.randn_like(wanted)
    gradients = torch.autograd.grad(wanted, (q, k, v), grad)
    arguments = {
        "query": q, "key": k, "value": v, "attn_bias": bias, "dropout_p": 0.0, "is_causal": is_causal,
        "scale": None, "grad_out": grad,
    }  # fmt: skip
    (result,) = cpu_reference.FORMULAS["aten::_scaled_dot_product_efficient_attention"](arguments)
    assert torch.allclose(result, wanted)
    back = cpu_reference.FORMULAS["aten::_scaled_dot_product_efficient_attention_backward"](arguments)
    for item, other in zip(back, gradients, strict=True):
        assert torch.allclose(item, other)


def test_the_cpu_in_the_same_dtype_and_in_float64() -> None:
    call = Float64Call(aten.mul.Tensor, keep_all((torch.ones(3, dtype=torch.float16), 0.1)), {})
    (plain,) = cpu_reference.in_its_dtype(call) or [torch.empty(0)]
    (exact,) = cpu_reference.in_float64(call)
    assert plain.dtype == torch.float16
    assert exact.dtype == torch.float64
    assert exact[0] == 0.1
    assert isinstance(restore(call.args)[0], torch.Tensor)
