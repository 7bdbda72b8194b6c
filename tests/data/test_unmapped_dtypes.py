"""A dtype without a name in MPSGraph raises or ends the process; where the kernel asks for the name decides."""

import pytest

from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.lookup.plain_call import OperatorLookup
from opcheck.model.records import OpCall, TensorSpec

LISTS = load()


def effect(op: str, line: str, dtypes: dict[str, str]) -> str:
    """Return the effect that decides the call with one matrix an argument; empty: none does."""
    inputs = tuple(
        TensorSpec(tensor=i, storage=i, dtype=dtype, shape=(2, 2), stride=(2, 1), argument=name)
        for i, (name, dtype) in enumerate(dtypes.items())
    )
    target = Target(torch=Version.parse(line), macos=Version.parse("13.3"))
    decisive = LISTS.matching(OpCall(op=f"aten::{op}", inputs=inputs), target).decisive
    return decisive.effect if decisive else ""


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "complex32"])
def test_a_graph_of_complex_numbers_ends_the_process_until_exceptions_leave_its_block(dtype: str) -> None:
    effects = [effect("abs", line, {"self": dtype}) for line in ("1.13", "2.0", "2.1", "2.2")]
    assert effects == ["aborts", "aborts", "aborts", "raises"]
    assert effect("abs", "2.1", {"self": "float32"}) == ""


@pytest.mark.parametrize("op", ["flip", "gather", "index_select", "repeat", "where.self"])
def test_a_kernel_that_asks_for_the_dtype_before_its_graph_raises(op: str) -> None:
    effects = [effect(op, line, {"self": "complex64"}) for line in ("1.13", "2.0", "2.1", "2.2")]
    assert effects == ["aborts", "raises", "raises", "raises"]


@pytest.mark.parametrize("op", ["mm", "bmm"])
def test_a_product_of_dtypes_that_its_check_refuses_raises(op: str) -> None:
    assert {effect(op, line, {"self": dtype}) for line in ("1.13", "2.0") for dtype in ("bfloat16", "complex64")} == {
        "raises"
    }


def test_a_convolution_of_bfloat16_passes_the_check_of_its_dtype_and_ends_the_process() -> None:
    assert effect("_mps_convolution", "2.0", {"self": "bfloat16"}) == "aborts"
    assert effect("_mps_convolution", "2.0", {"self": "complex64"}) == "raises"
    assert effect("_mps_convolution", "1.13", {"self": "complex64"}) == "aborts"


def test_a_sum_checks_its_first_tensor_alone_in_2_1() -> None:
    assert effect("add.Tensor", "2.1", {"self": "complex64", "other": "float32"}) == "raises"
    assert effect("add.Tensor", "2.1", {"self": "float32", "other": "complex64"}) == "aborts"
    assert effect("add.Tensor", "2.0", {"self": "complex64", "other": "float32"}) == "aborts"


def test_accumulated_booleans_end_the_process_until_exceptions_leave_the_block() -> None:
    both = [LISTS.statements.by_id[name] for name in ("index-put-accumulate-bool-2-1", "index-put-accumulate-bool")]
    assert [(each.effect, each.spans("2.1"), each.spans("2.2")) for each in both] == [
        ("aborts", True, False),
        ("raises", False, True),
    ]


def test_no_operator_loses_its_verdict_where_the_process_ends() -> None:
    lookup = OperatorLookup(LISTS)
    for line in ("1.13", "2.0", "2.1"):
        target = Target(torch=Version.parse(line), macos=Version.parse("13.3"))
        for op in ("abs", "cumsum", "sum", "tril", "norm.out", "add.Tensor", "nan_to_num.out", "linalg_cross"):
            if LISTS.operators(line).get(f"aten::{op}") == "kernel":
                assert lookup.verdict(f"aten::{op}", target, "complex64").status == "unsupported", (line, op)
