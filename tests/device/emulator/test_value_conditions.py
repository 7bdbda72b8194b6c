"""Conditions on values: a run holds the values, so that it says yes or nothing."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import opcheck
from opcheck.data.conditions import VALUE_FUNCTIONS, ConditionError, check_values
from opcheck.data.registrations import load
from opcheck.device.emulator.child.value_conditions import _ConditionNames, holds


def advisories(run: Callable[[], Any], release: str) -> tuple[set[str], set[str]]:
    """Return the advisories of a run that hold for certain, and those that hold perhaps."""
    with opcheck.emulate(torch=release, macos="15") as emulation:
        run()
    verdicts = [group.verdict for group in emulation.report.groups]
    certain = {entry.detail for v in verdicts for entry in v.evidence if entry.kind == "advisory"}
    return certain, {name for v in verdicts for name in v.advisories} - certain


def _attend(first: float) -> torch.Tensor:
    q = torch.ones(1, 1, 16, 32, device="mps")
    mask = torch.zeros(16, 16, device="mps")
    mask[0] = first
    with torch.no_grad():
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def _multiply(value: float) -> torch.Tensor:
    x = torch.ones(1, 2, 2, device="mps")
    return torch.baddbmm(x * value, x, x, beta=0)


def _multiply_in_place(value: float) -> torch.Tensor:
    x = torch.ones(1, 2, 2, device="mps")
    return (x * value).baddbmm_(x, x, beta=0)


def _normalize(scale: float) -> torch.Tensor:
    rows = torch.arange(8.0).repeat(4, 1) * scale
    return F.layer_norm(rows.to("mps"), (8,))


def _clamp(value: float) -> torch.Tensor:
    return torch.full((2,), value, device="mps").clamp_min(0)


def _double(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], torch.Tensor]:
    return lambda value: function(torch.tensor([value, value], device="mps"))


def _attend_directly(allowed: Any) -> Any:
    # scaled_dot_product_attention makes numbers of such a mask first (attention.cpp, convert_boolean_attn_mask).
    q = torch.ones(1, 1, 8, 64, device="mps")
    mask = torch.full((8, 8), allowed, dtype=torch.bool, device="mps")
    with torch.no_grad():
        return torch.ops.aten._scaled_dot_product_attention_math_for_mps(q, q, q, mask)


CASES: dict[str, tuple[str, str, Callable[[Any], Any], Any, Any]] = {
    "a row without variance": ("2.13", "layer-norm-small-variance", _normalize, 1e-5, 1.0),
    "a row masked throughout": ("2.8", "sdpa-fully-masked-row", _attend, -math.inf, 0.0),
    "NaN beside beta=0": ("2.13", "baddbmm-zero-beta-nan", _multiply, math.nan, 1.0),
    "NaN that the call overwrites": (
        *("2.13", "baddbmm-zero-beta-nan", _multiply_in_place, math.nan, 1.0),
    ),
    "integers beyond 2**24": (
        "2.13",
        "abs-integers-through-float",
        _double(torch.abs),
        2**24 + 1,
        3,
    ),
    "a boolean mask to the kernel": (
        *("2.12", "sdpa-one-pass-fully-masked-row", _attend_directly, False, True),
    ),
    "an infinity to lgamma": ("2.13", "lgamma-infinity", _double(torch.lgamma), math.inf, 2.0),
    "the far end of erfc": ("2.13", "erfc-tail", _double(torch.special.erfc), 5.0, 1.0),
    "a small number to expm1": ("2.13", "expm1-small", _double(torch.expm1), 1e-4, 1.0),
    "a real complex number to acos": (
        "2.13",
        "acos-complex-one",
        _double(torch.acos),
        2 + 0j,
        0.1j,
    ),
    "complex zero": ("2.13", "sinc-complex-zero", _double(torch.sinc), 0j, 1 + 0j),
    "a singular matrix": (
        *(
            "2.14",
            "svd-null-space",
            lambda x: torch.linalg.svd(torch.eye(4, device="mps") * x),
            0.0,
            1.0,
        ),
    ),
    "NaN to clamp": ("2.0", "clamp-nan", _clamp, math.nan, 1.0),
}


@pytest.mark.parametrize("name", CASES)
def test_values_that_meet_the_condition_make_it_certain(name: str) -> None:
    release, advisory, run, meets, _ = CASES[name]
    certain, perhaps = advisories(lambda: run(meets), release)
    assert advisory in certain
    assert advisory not in perhaps


@pytest.mark.parametrize("name", CASES)
def test_values_that_do_not_meet_it_leave_it_out(name: str) -> None:
    release, advisory, run, _, misses = CASES[name]
    certain, perhaps = advisories(lambda: run(misses), release)
    assert advisory not in certain | perhaps


def test_one_call_of_two_that_meets_it_is_found() -> None:
    certain, _ = advisories(lambda: (_clamp(1.0), _clamp(math.nan), _clamp(1.0)), "2.0")
    assert "clamp-nan" in certain


def test_an_audit_says_perhaps() -> None:
    report = opcheck.audit(torch.nn.LayerNorm(8), (torch.ones(4, 8),), torch="2.13", macos="15")
    (verdict,) = [g.verdict for g in report.groups if g.op == "aten::native_layer_norm"]
    assert "layer-norm-small-variance" in verdict.advisories
    assert all(entry.detail != "layer-norm-small-variance" for entry in verdict.evidence)


def test_each_expression_names_arguments_of_its_operators() -> None:
    # Another name would leave every call open.
    known = {"first", "tensors", "unknown", "inf", *VALUE_FUNCTIONS}
    lists = load().statements
    statements = [each for each in lists.by_id.values() if each.values]
    assert len(statements) > 50
    for statement in statements:
        tree = ast.walk(ast.parse(statement.values))
        names = {node.id for node in tree if isinstance(node, ast.Name)} - known
        for op in statement.ops:
            assert names <= set(lists.arguments.get(op, names)), (statement.id, op)
        assert statement.when


@pytest.mark.parametrize(
    "text", ["self.x", "open('f')", "[0 for _ in self]", "(lambda: 0)()", "a b"]
)
def test_an_expression_may_use_nothing_but_numbers_and_their_functions(text: str) -> None:
    with pytest.raises(ConditionError):
        check_values(text)


def test_what_is_unknown_leaves_the_answer_open() -> None:
    x = {"self": torch.tensor([1.0])}
    assert holds("any(self > 0) or unknown", x) is True
    assert holds("any(self > 2) or unknown", x) is None
    assert holds("any(self > 2) and unknown", x) is False


def test_every_function_of_the_lists_is_one_that_a_run_has() -> None:
    names = _ConditionNames({})
    assert all(name in names for name in VALUE_FUNCTIONS)
