"""Conditions on values: a run holds the values, so that it says yes or nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import opcheck
from opcheck.data.registrations import load
from opcheck.device.emulator.child.value_conditions import CONDITIONS


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


CASES = {
    "a row without variance": ("2.13", "layer-norm-small-variance", _normalize, 1e-5, 1.0),
    "a row masked throughout": ("2.8", "sdpa-fully-masked-row", _attend, -math.inf, 0.0),
    "NaN beside beta=0": ("2.13", "baddbmm-zero-beta-nan", _multiply, math.nan, 1.0),
    "NaN that the call overwrites": (
        *("2.13", "baddbmm-zero-beta-nan", _multiply_in_place, math.nan, 1.0),
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


def test_each_condition_is_that_of_a_statement() -> None:
    words = {statement.when for statement in load().statements.by_id.values()}
    assert set(CONDITIONS) <= words
