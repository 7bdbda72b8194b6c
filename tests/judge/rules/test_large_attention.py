"""What public reports say of attention of about 2**32 scores is what the calls are judged as."""

from __future__ import annotations

import pytest

from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.judge.assembly import report
from opcheck.model.records import OpCall, Report, Trace
from tests.made import call, spec

PYTORCH = "https://github.com/pytorch/pytorch"
FUSED = "aten::_scaled_dot_product_attention_math_for_mps"


def attend(heads: int, queries: int, keys: int, size: int, dtype: str = "float32") -> OpCall:
    """Make a call of the fused attention of one batch, whose scores MPSGraph keeps."""
    shapes = {"query": queries, "key": keys, "value": keys}
    inputs = tuple(
        spec(number, shape=(1, heads, length, size), dtype=dtype, argument=name)
        for number, (name, length) in enumerate(shapes.items(), 2)
    )
    scores = spec(6, shape=(1, heads, queries, keys), dtype=dtype)
    others = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False}
    result = spec(5, shape=(1, heads, queries, size), dtype=dtype)
    return call(FUSED, inputs=inputs, outputs=(result, scores), arguments=others)


def multiply(batch: int, rows: int, inner: int, columns: int) -> OpCall:
    """Make a product of matrices in batches, as attention without the fused operator makes it."""
    inputs = (
        spec(2, shape=(batch, rows, inner), argument="self"),
        spec(3, shape=(batch, inner, columns), argument="mat2"),
    )
    return call("aten::bmm", inputs=inputs, outputs=(spec(4, shape=(batch, rows, columns)),))


#: The report, the call, the release, the version of macOS, and what came of it.  Where the report names a build between
#: releases, it is the release that followed; where it names no macOS, the newest of its time.
REPORTS = [
    ("issues/149261", attend(12, 29640, 29640, 128), "2.8", "15.3", "ends"),
    ("issues/134177", multiply(272, 4096, 40, 4096), "2.3", "14.5", "ends"),
    ("issues/141909", multiply(1, 72250, 1, 72250), "2.5", "15.0", "raises"),
    ("pull/179592", attend(8, 16384, 65536, 64), "2.11", "26.0", "wrong"),
    ("pull/179592", attend(8, 16384, 32768, 64), "2.11", "26.0", "works"),
    ("pull/181575", attend(32, 8192, 8192, 128, "bfloat16"), "2.12", "26.0", "works"),
    ("pull/181575", attend(64, 8192, 8192, 128, "bfloat16"), "2.13", "26.0", "works"),
    ("pull/190791", attend(24, 14000, 14000, 128, "bfloat16"), "2.14", "26.0", "works"),
    ("pull/190791", attend(24, 14000, 14000, 128), "2.14", "26.0", "works"),
    *(("issues/197636", multiply(65520, 256, 256, 64), line, "27.0", "works") for line in ("2.4", "2.14")),
    *(("issues/197636", multiply(65552, 256, 256, 64), line, "27.0", "wrong") for line in ("2.4", "2.14")),
]  # fmt: skip


def judged(made: OpCall, torch: str, macos: str) -> Report:
    target = Target(torch=Version.parse(torch), macos=Version.parse(macos))
    return report(Trace(model="m", calls=(made,)), target, load())


def outcome(result: Report) -> str:
    """Return what becomes of the program: it ends, raises, gives wrong values, or works."""
    if result.groups[0].status == "unsupported":
        return "raises"
    found = {finding.rule: finding for finding in result.findings}
    if "OC131" in found and found["OC131"].prints:
        return "ends"
    # 2.13 drops a NaN at any size.
    wrong = {name for row in result.wrong for name in row.ids} - {"sdpa-blocks-nan-dropped"}
    return "wrong" if "OC131" in found or wrong else "works"


@pytest.mark.parametrize(("address", "made", "torch", "macos", "came"), REPORTS)
def test_a_report_of_large_attention(address: str, made: OpCall, torch: str, macos: str, came: str) -> None:
    assert outcome(judged(made, torch, macos)) == came, f"{PYTORCH}/{address}"


#: The shapes that MPSGraph still computes in 2.15, and one that a Metal kernel computes.
@pytest.mark.parametrize(("size", "came"), [(64, "works"), (40, "wrong"), (160, "wrong")])
def test_the_route_decides_from_2_13_on(size: int, came: str) -> None:
    assert outcome(judged(attend(8, 16384, 65536, size), "2.15", "26.0")) == came
