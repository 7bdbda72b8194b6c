"""Bodies of composites: those of the target's release, where the installed torch's calls something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from opcheck.data.registrations import load
from opcheck.simulator.dispatch.operators import LEGACY_BODIES
from opcheck.simulator.dispatch.routes import make_route
from opcheck.simulator.dispatch.tensor_meta import contiguous
from opcheck.tracing.torch_private import dispatch
from tests.simulator.mac import from_2_10, recorded


def attend(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    # Not contiguous: in 2.5 the kernel of MPS is not taken.
    q = x.transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)


@pytest.mark.parametrize(("release", "calls"), [("2.5", "aten::eq.Tensor"), ("2.6", "aten::isneginf")])
def test_safe_softmax_compares_in_2_5_and_asks_from_2_6_on(release: str, calls: str) -> None:
    x = torch.ones(2, 4, 8, 16, requires_grad=True)
    made = recorded(attend, x, torch.zeros(4, 4), release=release, grad=True).calls
    (softmax,) = (item.call for item in made if item.call.route.name == "aten::_safe_softmax")
    assert softmax.inner is not None
    assert calls in softmax.inner


def test_where_in_the_safe_softmax_of_2_5_has_the_layout_of_the_result() -> None:
    def apply(x: torch.Tensor) -> None:
        torch.ops.aten._safe_softmax(x.transpose(1, 2), -1)

    (softmax,) = (
        item.call
        for item in recorded(apply, torch.ones(2, 3, 4, 4), release="2.5").calls
        if item.call.route.name == "aten::_safe_softmax"
    )
    (where,) = softmax.body.calls
    assert where.route.name == "aten::where.self"
    assert where.outputs == (contiguous((2, 4, 3, 4), torch.float32),)


def _inner(op: str, run: Callable[..., Any], *inputs: torch.Tensor, release: str) -> set[str]:
    results = [item.call for item in recorded(run, *inputs, release=release).calls]
    (call,) = (item for item in results if item.route.name == op)
    return set(call.inner or ())


@pytest.mark.parametrize(("release", "sigmoid"), [("2.0", False), ("2.2", False), ("2.3", True)])
def test_cross_entropy_with_logits_takes_log_sigmoid_from_2_3_on(release: str, *, sigmoid: bool) -> None:
    x = torch.rand(2, 3)
    op = "aten::binary_cross_entropy_with_logits"
    called = _inner(op, F.binary_cross_entropy_with_logits, x, x, release=release)
    assert ("aten::log_sigmoid_forward" in called) is sigmoid
    assert ("aten::log_" in called) is not sigmoid


def test_embedding_bag_had_a_composite_backward_before_2_5() -> None:
    def train(weight: torch.Tensor) -> None:
        index = torch.tensor([0, 1, 0, 2]).to(weight.device)
        F.embedding_bag(index, weight, index.new_tensor([0, 2]), mode="sum").sum().backward()

    weight = torch.randn(5, 3, requires_grad=True)
    op = "aten::_embedding_bag_backward"
    for release, calls in (("2.4", ("aten::_embedding_bag_dense_backward",)), ("2.5", ())):
        made = recorded(train, weight, release=release, grad=True).calls
        assert [item.call.inner for item in made if item.call.route.name == op] == [calls]


def test_a_composite_that_the_installed_torch_has_no_body_of_is_not_said_to_call_nothing() -> None:
    registrations = dict(load().operators("2.4"))
    op = torch.ops.aten._embedding_bag_backward.default
    assert make_route(op, registrations, {}).bodiless
    assert not make_route(op, dict(load().operators("2.5")), {}).bodiless


def test_group_norm_of_1_13_is_a_batch_norm() -> None:
    x = torch.rand(1, 4, 3, 3)
    called = _inner("aten::native_group_norm", lambda x: F.group_norm(x, 2), x, release="1.13")
    assert "aten::native_batch_norm" in called
    assert "aten::var_mean.correction" not in called


@pytest.mark.parametrize(("release", "out"), [("2.9", False), from_2_10])
def test_mvlgamma_in_place_calls_its_out_form_from_2_10_on(release: str, *, out: bool) -> None:
    called = _inner("aten::mvlgamma_", lambda x: x.mvlgamma_(2), torch.ones(3) * 4, release=release)
    assert ("aten::mvlgamma.out" in called) is out


def test_each_legacy_body_calls_operators_in_some_release() -> None:
    assert LEGACY_BODIES
    for name, body in LEGACY_BODIES.items():
        assert dispatch.has_schema(name)
        assert all(dispatch.has_schema(call) for call in body.calls)
        assert body.calls
        assert not body.releases.empty


def test_grouped_heads_are_repeated_where_the_argument_is_not_known() -> None:
    def group(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.scaled_dot_product_attention(q, k, k, enable_gqa=True)

    made = recorded(group, torch.ones(1, 8, 4, 16), torch.ones(1, 2, 4, 16), release="2.4").calls
    names = [item.call.route.name for item in made]
    assert names.count("aten::expand") >= 2
    assert "aten::bmm" in names
