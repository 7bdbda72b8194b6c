"""The dtypes that the host code or the source text of the kernels of a release leaves out, as the wheels show."""

from __future__ import annotations

import pytest

from opcheck.data.registrations import load
from opcheck.lookup.plain_call import OperatorLookup, target


@pytest.mark.parametrize(
    ("op", "dtype", "refused", "computed"),
    [
        ("aten::nan_to_num.out", "complex64", "2.13", "2.14"),
        ("aten::nan_to_num.out", "bfloat16", "2.5", "2.6"),
        ("aten::histc", "float16", "2.7", "2.12"),
        ("aten::arange.start_out", "uint8", "2.0", "2.1"),
        ("aten::range.out", "int8", "2.0", "2.1"),
        ("aten::pow.Tensor_Scalar", "int64", "1.13", "2.0"),
        ("aten::_local_scalar_dense", "complex32", "2.10", "2.11"),
        ("aten::_local_scalar_dense", "float8_e4m3fn", "2.14", "2.15"),
        ("aten::copysign.Tensor", "bfloat16", "2.5", "2.6"),
        ("aten::linalg_cross", "bfloat16", "2.5", "2.6"),
        ("aten::flip", "uint16", "2.8", "2.9"),
        ("aten::index_select", "uint32", "2.4", "2.9"),
        ("aten::where.self", "complex64", "2.2", "2.3"),
        ("aten::roll", "uint16", "2.8", "2.9"),
        ("aten::equal", "bfloat16", "2.0", "2.3"),
    ],
)
def test_a_release_refuses_the_dtype_and_a_later_one_computes_it(
    op: str, dtype: str, refused: str, computed: str
) -> None:
    lookup = OperatorLookup(load())
    states = [lookup.state(op, target(line, "15.0"), dtype).status for line in (refused, computed)]
    assert states == ["unsupported", "native"]


@pytest.mark.parametrize(
    ("op", "refused", "computed", "line"),
    [
        ("aten::repeat_interleave.Tensor", "uint8", "int64", "2.4"),
        ("aten::repeat_interleave.Tensor", "int16", "int32", "2.10"),
        ("aten::lu_unpack", "uint16", "float32", "2.10"),
        ("aten::bincount", "uint32", "int64", "2.12"),
        ("aten::histc", "int64", "float32", "2.11"),
        ("aten::arange.start_out", "uint16", "int16", "2.4"),
        ("aten::uniform_", "uint32", "float16", "2.12"),
        ("aten::index_reduce", "uint16", "int16", "2.12"),
        ("aten::hardtanh", "uint16", "int16", "2.12"),
        ("aten::baddbmm", "uint16", "float16", "2.9"),
        ("aten::baddbmm", "bool", "int32", "2.15"),
        ("aten::bmm", "bool", "int32", "2.7"),
        ("aten::bmm", "uint16", "uint8", "2.15"),
        ("aten::mm", "uint32", "int64", "2.9"),
        ("aten::addmm", "uint16", "int32", "2.15"),
        ("aten::mps_convolution_backward", "int16", "float16", "2.12"),
        ("aten::linalg_polar", "float16", "float32", "2.14"),
    ],
)
def test_a_release_refuses_one_dtype_and_computes_another(op: str, refused: str, computed: str, line: str) -> None:
    lookup = OperatorLookup(load())
    states = [lookup.state(op, target(line, "15.0"), dtype).status for dtype in (refused, computed)]
    assert states == ["unsupported", "native"]
