"""Where early releases end the process for a dtype, and where a later release raises."""

from __future__ import annotations

import pytest

from opcheck.data.registrations import load
from opcheck.judge.judge import judge_by_lists
from opcheck.lookup.plain_call import OperatorLookup, target
from opcheck.model.records import OpCall, TensorSpec


@pytest.mark.parametrize(
    ("op", "dtype", "line", "named"),
    [
        ("aten::add.Tensor", "float8_e5m2", "2.1", "the process ends"),
        ("aten::add.Tensor", "float8_e5m2", "2.2", "kernels do not know the dtype"),
        ("aten::gather", "float8_e5m2", "2.9", "move values by MPSGraph do not know float8"),
        ("aten::gather", "float8_e5m2", "2.13", "no form for this kind of float8"),
        ("aten::repeat", "float8_e4m3fn", "2.15", "move values by MPSGraph do not know float8"),
        ("aten::tril", "float8_e5m2", "2.8", "no form for this kind of float8"),
        ("aten::normal_", "float8_e4m3fn", "2.12", "move values by MPSGraph do not know float8"),
        ("aten::flip", "float8_e5m2", "2.1", "move values by MPSGraph do not know"),
        ("aten::add.Tensor", "float8_e5m2", "2.0", "torch has neither float8"),
        ("aten::empty.memory_format", "float4_e2m1fn_x2", "2.7", "torch has no float4"),
        ("aten::view", "uint16", "2.2", "torch has no unsigned integers"),
        ("aten::add.Tensor", "quint8", "1.13", "No quantized tensor can be made"),
        ("aten::empty.memory_format", "quint8", "2.13", "No quantized tensor can be made"),
    ],
)
def test_the_verdict_says_how_the_call_ends(op: str, dtype: str, line: str, named: str) -> None:
    verdict = OperatorLookup(load()).verdict(op, target(line, "14.0"), dtype)
    assert verdict.status == "unsupported"
    assert named in verdict.because


@pytest.mark.parametrize(
    ("op", "dtype", "line"),
    [
        ("aten::slice.Tensor", "complex64", "2.0"),
        ("aten::empty.memory_format", "uint8", "2.13"),
        ("aten::view", "uint16", "2.3"),
        ("aten::gather", "float8_e4m3fn", "2.15"),
        ("aten::masked_fill_.Scalar", "float8_e5m2", "2.7"),
        ("aten::index_select", "float8_e5m2", "2.14"),
    ],
)
def test_a_view_and_a_dtype_that_the_release_takes_stay_native(op: str, dtype: str, line: str) -> None:
    assert OperatorLookup(load()).verdict(op, target(line, "14.0"), dtype).status == "native"


@pytest.mark.parametrize(("shape", "status"), [((2,), "unsupported"), ((), "native")])
def test_a_complex_view_with_a_dimension_ends_the_process_in_the_oldest_release(
    shape: tuple[int, ...], status: str
) -> None:
    source = TensorSpec(tensor=0, storage=0, dtype="complex64", shape=(2,), stride=(1,), argument="self")
    view = TensorSpec(tensor=1, storage=0, dtype="complex64", shape=shape, stride=(1,) * len(shape))
    call = OpCall(op="aten::as_strided", inputs=(source,), outputs=(view,))
    assert judge_by_lists(call, target("1.13", "14.0"), load()).status == status


def test_a_dtype_that_the_release_lacks_prints_the_missing_attribute() -> None:
    spec = TensorSpec(tensor=0, storage=0, dtype="float8_e5m2", shape=(2,), stride=(1,), argument="self")
    verdict = judge_by_lists(OpCall(op="aten::neg", inputs=(spec,), outputs=(spec,)), target("2.0", "14.0"), load())
    assert verdict.prints == "module 'torch' has no attribute 'float8_e5m2'"
