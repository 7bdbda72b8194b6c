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
    ],
)
def test_a_release_refuses_the_dtype_and_a_later_one_computes_it(
    op: str, dtype: str, refused: str, computed: str
) -> None:
    lookup = OperatorLookup(load())
    states = [lookup.state(op, target(line, "15.0"), dtype).status for line in (refused, computed)]
    assert states == ["unsupported", "native"]
