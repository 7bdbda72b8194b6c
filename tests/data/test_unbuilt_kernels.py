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
        ("aten::_weight_norm_interface_backward", "uint16", "2.8", "unsupported"),
        ("aten::native_group_norm_backward", "complex32", "2.14", "unsupported"),
        ("aten::native_group_norm_backward", "float16", "2.14", "native"),
        ("aten::index_select.out", "float32", "2.14", "native"),
        ("aten::max_unpool3d.out", "complex64", "2.9", "unsupported"),
        ("aten::max_unpool3d.out", "int64", "2.9", "native"),
        ("aten::_upsample_bicubic2d_aa.out", "bool", "2.15", "unsupported"),
        # The host code passes the operation alone; a function for all unary or binary kernels adds layout and dtypes.
        ("aten::elu_", "uint16", "2.13", "unsupported"),
        ("aten::elu_", "float16", "2.13", "native"),
        ("aten::exp", "uint32", "2.9", "unsupported"),
        ("aten::exp", "uint8", "2.9", "native"),
        ("aten::add.Tensor", "uint16", "2.13", "unsupported"),
        ("aten::add.Tensor", "int16", "2.13", "native"),
        ("aten::index_copy", "uint16", "2.11", "unsupported"),
        ("aten::gather", "uint16", "2.14", "unsupported"),
        ("aten::gather", "int16", "2.14", "native"),
        ("aten::bitwise_not", "float32", "2.12", "unsupported"),
        # With no decimals it runs the kernels of round, which integers have.
        ("aten::round.decimals", "int64", "2.10", "native"),
        ("aten::round.decimals", "uint32", "2.10", "unsupported"),
    ],
)
def test_the_built_kernels_decide_the_dtype(op: str, dtype: str, line: str, status: str) -> None:
    assert OperatorLookup(load()).state(op, target(line, "15.0"), dtype).status == status


@pytest.mark.parametrize(
    ("op", "dtype", "status"),
    [
        ("aten::digamma_", "uint8", "unsupported"),
        ("aten::digamma", "uint8", "native"),
        ("aten::mul_.Scalar", "bool", "native"),
        ("aten::ceil.out", "complex64", "unsupported"),
        ("aten::ceil.out", "float16", "native"),
        ("aten::silu_", "complex64", "unsupported"),
    ],
)
def test_a_form_in_place_or_with_out_is_refused_where_its_result_cannot_be(op: str, dtype: str, status: str) -> None:
    assert OperatorLookup(load()).state(op, target("2.12", "15.0"), dtype).status == status
