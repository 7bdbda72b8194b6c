"""The kernels of a release that carries them as source text are those that its macros instantiate."""

from __future__ import annotations

import pytest

from opcheck.common.errors import OpListError
from opcheck.data.wheels import metal_source

TEXT = rb"""
// kernel void commented_out(device int* a)
template <typename T>
kernel void cross(device T* out) {}
#define REGISTER(DTYPE, SIZE)                     \
  template [[host_name("cross_" #SIZE "_" #DTYPE)]] \
  kernel void cross<DTYPE>(device DTYPE * out);
#define REGISTER_ALL(SIZE) REGISTER(float, SIZE) REGISTER(half, SIZE)
REGISTER_ALL(8bit)
kernel void plain (device int* out) {}
"""


def test_names_are_host_names_and_plain_functions() -> None:
    functions = metal_source.functions(b"other\0" + TEXT + b"\0more")
    assert [each.name for each in functions] == ["cross_8bit_float", "cross_8bit_half", "plain"]
    assert all(each.digest and not each.bitcode for each in functions)


def test_a_macro_that_grows_without_end_is_refused() -> None:
    text = b"kernel void f(\n#define A(x) " + b"A(x) " * 400 + b"\n" + b"A(1) " * 400
    with pytest.raises(OpListError, match="do not end"):
        metal_source.functions(text + b"\0")


def test_a_library_without_kernels_has_none() -> None:
    assert metal_source.functions(b"no kernels\0") == ()
