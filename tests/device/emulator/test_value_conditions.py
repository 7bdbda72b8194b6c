"""Conditions on values: a run holds the values, so that it says yes or nothing."""

from __future__ import annotations

import ast
import contextlib
import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import opcheck
from opcheck.data.conditions import VALUE_FUNCTIONS, ConditionError, check_values
from opcheck.data.registrations import load
from opcheck.device.emulator.child.verdicts import _ConditionNames, holds


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


def _with(function: Callable[..., torch.Tensor], other: complex) -> Callable[[Any], torch.Tensor]:
    return lambda value: function(torch.tensor([value], device="mps"), torch.tensor([other], device="mps"))


def _cut(value: float) -> torch.Tensor:
    return torch.nn.functional.threshold(torch.tensor([value], device="mps"), 0.1, 20)


def _cut_backward(value: float) -> None:
    torch.relu(torch.tensor([value], device="mps", requires_grad=True)).sum().backward()


def _halves(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], None]:
    def run(value: complex) -> None:
        with warnings.catch_warnings(), contextlib.suppress(RuntimeError):  # the CPU has no such kernel
            warnings.simplefilter("ignore")  # of complex32
            function(torch.tensor([value], dtype=torch.complex32).to("mps"))

    return run


def _bessel(value: float) -> None:
    with contextlib.suppress(RuntimeError):  # the CPU has no such kernel
        torch.special.modified_bessel_i0(torch.tensor([value], dtype=torch.half, device="mps"))


def _histogram(value: float) -> Any:
    bins = torch.tensor([0.0, 1.0, 2.0], device="mps")
    return torch.histogram(torch.tensor([0.5, value], device="mps"), bins=bins)


def _sum_bytes(value: int) -> torch.Tensor:
    return torch.tensor([value, 100], dtype=torch.uint8, device="mps").sum(dtype=torch.uint8)


def _lerp(weight: float) -> torch.Tensor:
    start, end = torch.tensor([100.0], device="mps"), torch.tensor([1e-3], device="mps")
    return torch.lerp(start, end, torch.full((1,), weight, device="mps"))


def _remember(value: float) -> Any:
    lstm = torch.nn.LSTM(4, 8, num_layers=2).to("mps")
    state = torch.full((2, 1, 8), value, device="mps")
    return lstm(torch.ones(3, 1, 4, device="mps"), (state, torch.zeros_like(state)))


def _put(index: int) -> None:
    # Only the second index is out of range, of a dimension that is longer than the first.
    x = torch.zeros(2, 100, device="mps")
    x[torch.tensor([1], device="mps"), torch.tensor([index], device="mps")] = torch.ones(1).to("mps")


CASES: dict[str, tuple[str, str, Callable[[Any], Any], Any, Any]] = {
    "a row without variance": ("2.13", "layer-norm-small-variance", _normalize, 1e-5, 1.0),
    "a row masked throughout": ("2.8", "sdpa-fully-masked-row", _attend, -math.inf, 0.0),
    "NaN beside beta=0": ("2.13", "baddbmm-zero-beta-nan", _multiply, math.nan, 1.0),
    "NaN that the call overwrites": (*("2.13", "baddbmm-zero-beta-nan", _multiply_in_place, math.nan, 1.0),),
    "integers beyond 2**24": ("2.13", "abs-integers-through-float", _double(torch.abs), 2**24 + 1, 3),
    "a large number to abs": ("2.11", "abs-complex-large-or-small", _double(torch.abs), 1e20j, 1j),
    "a small number to abs": ("2.11", "abs-complex-large-or-small", _double(torch.abs), 1e-21j, 0j),
    "halves beyond 256 to abs": (*("2.11", "abs-complex32-half", _halves(torch.abs), 300j, 200j),),
    "a large divisor": (*("2.14", "div-complex-large-or-small", lambda x: _with(torch.div, x)(1e3j), 1e20j, 1j),),
    "a small divisor": (*("2.14", "div-complex-large-or-small", lambda x: _with(torch.div, x)(1j), 1e-21j, 1j),),
    "a zero to the norm of order 0": ("2.0", "norm-zero-counts-zeros", _double(lambda x: torch.norm(x, 0)), 0.0, 1.0),
    "NaN to threshold": ("2.13", "threshold-nan", _cut, math.nan, 1.0),
    "NaN to the gradient of threshold": ("2.13", "threshold-backward-nan", _cut_backward, math.nan, 1.0),
    "a boolean mask to the kernel": (*("2.12", "sdpa-one-pass-fully-masked-row", _attend_directly, False, True),),
    "an infinity to lgamma": ("2.13", "lgamma-infinity", _double(torch.lgamma), math.inf, 2.0),
    "the far end of erfc": ("2.13", "erfc-tail", _double(torch.special.erfc), 5.0, 1.0),
    "a small number to expm1": ("2.13", "expm1-small", _double(torch.expm1), 1e-4, 1.0),
    "a real complex number to acos": ("2.13", "acos-complex-one", _double(torch.acos), 2 + 0j, 0.1j),
    "complex zero": ("2.13", "sinc-complex-zero", _double(torch.sinc), 0j, 1 + 0j),
    "a singular matrix": (
        *("2.14", "svd-null-space", lambda x: torch.linalg.svd(torch.eye(4, device="mps") * x), 0.0, 1.0),
    ),
    "an element just outside of the bins": (*("2.13", "histogram-edges", _histogram, -1e-6, -1.0),),
    "a sum beyond uint8": ("2.11", "sum-uint8-saturates", _sum_bytes, 200, 100),
    "a negative half to sigmoid": (*("2.13", "sigmoid-complex-negative", _halves(torch.sigmoid), -20 + 1j, 1 + 1j),),
    "a negative number to sigmoid": (
        *("2.13", "sigmoid-complex64-small-part", _double(torch.sigmoid), -100 + 1e-20j, 1 + 1j),
    ),
    "a small number to sqrt": ("2.13", "sqrt-complex-small", _double(torch.sqrt), 1e-20j, 1 + 1j),
    "a small part to sqrt": ("2.13", "sqrt-complex-small", _double(torch.sqrt), -34 - 1e-3j, 2 + 0j),
    "halves beyond 256 to sqrt": (*("2.13", "sqrt-complex32-half", _halves(torch.sqrt), 300j, 0j),),
    "halves beyond 256 to log": (*("2.13", "log-complex32-overflow", _halves(torch.log), 300j, 3j),),
    "a large order": (*("2.13", "zeta-large-order", _with(torch.special.zeta, 3.0), 100.0, 2.0),),
    "a small number to log1p": ("2.13", "log1p-complex-small", _double(torch.log1p), 1e-6j, 1j),
    "a small number to rsqrt": ("2.13", "rsqrt-complex-small", _double(torch.rsqrt), 1e-20j, 1j),
    "a quotient that rounds up": (*("2.13", "remainder-rounded-quotient", _with(torch.remainder, 0.1), 1.0, 1.05),),
    "a quotient of many digits": (*("2.13", "remainder-rounded-quotient", _with(torch.remainder, 7.0), 1e9, 8.0),),
    "half numbers to i0": (*("2.13", "modified-bessel-i0-half-overflow", _bessel, 12.0, 1.0),),
    "the weight 1": ("2.15", "lerp-weight-near-one", _lerp, 1.0, 0.25),
    "a large base": ("2.15", "pow-complex-large-or-small", _with(torch.pow, 0.5 + 0j), 1e20j, 1j),
    "a small number to sinh": ("2.13", "sinh-complex-small", _double(torch.sinh), 1e-6 + 0j, 1 + 0j),
    "a small part to cosh": (*("2.13", "cosh-complex32-small-part", _halves(torch.cosh), 0.007 - 11j, 1 + 1j),),
    "the second index": ("2.1", "index-put-no-bounds-check", _put, 100, 50),
    "an initial state": ("1.13", "lstm-layers-initial-state", _remember, 1.0, 0.0),
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


def test_the_first_condition_of_a_process_is_decided() -> None:
    program = """
import torch
from opcheck.device.emulator.child.verdicts import holds
print(holds("any(first > 1.5)", {"self": torch.ones(2, dtype=torch.float64) * 2}))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout == "True\n"


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


@pytest.mark.parametrize("text", ["self.x", "open('f')", "[0 for _ in self]", "(lambda: 0)()", "a b"])
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
