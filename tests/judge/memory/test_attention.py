"""Attention whose weights a kernel does not write takes no memory for them."""

from __future__ import annotations

import pytest

from opcheck.judge.memory.estimate import estimate
from opcheck.judge.memory.replay import never_written
from opcheck.model.records import Lifetime, OpCall
from tests.made import call, make_target, make_trace, spec

OP = "aten::_scaled_dot_product_attention_math_for_mps"


def attention(heads: int = 64, queries: int = 100, dtype: str = "float16", mask: str = "") -> OpCall:
    shape = (1, 8, queries, heads)
    inputs = [
        spec(number, shape=shape, dtype=dtype, argument=name)
        for number, name in enumerate(("query", "key", "value"), 1)
    ]
    if mask:
        inputs.append(spec(6, shape=(queries, queries), dtype=mask, argument="attn_mask"))
    weights = spec(5, shape=(1, 8, queries, queries), dtype=dtype)
    return call(OP, inputs=tuple(inputs), outputs=(spec(4, shape=shape, dtype=dtype), weights))


@pytest.mark.parametrize(
    ("made", "torch", "written"),
    [
        (attention(), "2.13", False),
        (attention(mask="bool"), "2.15", False),
        (attention(mask="float16"), "2.13", False),
        (attention(), "2.12", True),
        (attention(heads=40), "2.13", True),
        (attention(queries=8), "2.13", True),
        (attention(mask="float32"), "2.13", True),
    ],
)
def test_which_kernels_write_them(made: OpCall, torch: str, *, written: bool) -> None:
    assert never_written(make_trace(made), make_target(torch)) == (set() if written else {5})


@pytest.mark.parametrize(("torch", "total"), [("2.12", 110), ("2.13", 10)])
def test_the_peak_does_not_have_them(torch: str, total: int) -> None:
    lives = tuple(
        Lifetime(storage=number, nbytes=size, first=0, freed=None, kind="result")
        for number, size in ((4, 10), (5, 100))
    )
    memory = estimate(make_trace(attention(), lifetimes=lives), make_target(torch))
    assert memory is not None
    assert memory.peak.total == total
