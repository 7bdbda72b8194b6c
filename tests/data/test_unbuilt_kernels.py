"""A dtype that a release's Metal kernels were not built for raises, where the operator has no other way to compute."""

from __future__ import annotations

import pytest

from opcheck.data.registrations import load
from opcheck.lookup.plain_call import OperatorLookup, target


@pytest.mark.parametrize(
    ("op", "dtype", "line", "status"),
    [
        # aten/src/ATen/native/mps/kernels/CrossKernel.metal, 2.6: REGISTER_CROSS_OP of float to bool
        ("aten::linalg_cross", "complex64", "2.6", "unsupported"),
        ("aten::linalg_cross", "int8", "2.6", "native"),
        ("aten::tril_indices", "int16", "2.6", "unsupported"),
        ("aten::tril_indices", "int32", "2.6", "native"),
        ("aten::upsample_bicubic2d", "uint8", "2.6", "unsupported"),
        ("aten::upsample_bicubic2d", "bfloat16", "2.6", "native"),
    ],
)
def test_the_built_kernels_decide_the_dtype(op: str, dtype: str, line: str, status: str) -> None:
    assert OperatorLookup(load()).state(op, target(line, "15.0"), dtype).status == status
