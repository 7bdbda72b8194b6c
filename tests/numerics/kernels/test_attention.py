"""Attention of few queries: each form of a mask is computed by the release's kernel, and agrees with the CPU."""

from __future__ import annotations

import pytest

pytest.importorskip("llvmlite")

import torch
from torch.nn import functional

import opcheck

pytestmark = pytest.mark.wheel


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("queries", "keys", "form"), [(1, 9, ""), (1, 30, "bool"), (4, 40, "added"), (3, 50, "a row"), (8, 8, "causal")]
)
@pytest.mark.parametrize("line", ["2.13", "2.15"])
def test_attention_of_few_queries_agrees(line: str, queries: int, keys: int, form: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    with opcheck.emulate(torch=line, kernels="shadow") as run:
        q, k, v = (torch.randn(2, 4, n, 64).to(dtype).to("mps") for n in (queries, keys, keys))
        masks = {
            "bool": (torch.rand(2, 1, queries, keys) > 0.3).index_fill(3, torch.tensor([0]), True),
            "added": torch.randn(1, 4, queries, keys).to(dtype),
            "a row": torch.randn(2, 1, 1, keys).to(dtype),
        }
        mask = masks[form].to("mps") if form in masks else None
        functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=form == "causal")
    assert run.numbers is not None
    assert not run.numbers.wrong
    assert not [each for each in run.numbers.unchecked if "attention" in each.op]
    assert run.numbers.calls.checked
