"""The container and the metadata of compiled kernels, read from libraries that are made here."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from opcheck.common.errors import OpListError
from opcheck.data.wheels import metallib
from opcheck.kernels import air, kernel_names, library
from tests.kernels import made

_HALF = "  %r = fmul float %x, 5.0e-1"
_TWICE = "  %r = fmul float %x, 2.0"


def a_library(release: str, **bodies: str) -> library.Library:
    data = made.metallib({name: made.unary(name, body) for name, body in bodies.items()})
    functions = {function.name: function for function in metallib.functions(data)}
    return library.Library(torch=release, section="metal_basic", functions=functions)


def test_a_wheels_library_is_read_and_kept(tmp_path: Path) -> None:
    data = made.metallib({"half_dense_float_float": made.unary("half_dense_float_float", _HALF)})
    wheel = tmp_path / "wheels" / "torch-2.99.0-cp311-cp311-macosx_14_0_arm64.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("torch/lib/libtorch_cpu.dylib", made.dylib({"metal_basic": data, "text": b"x"}))
    read = library.read("2.99.0", wheel.parent)
    assert (read.torch, read.section, list(read.functions)) == (*("2.99.0", "metal_basic"), ["half_dense_float_float"])
    wheel.unlink()
    assert library.read("2.99.0", wheel.parent) == read


def test_a_wheel_without_kernels_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "torch-2.1.0-cp311-cp311-macosx_14_0_arm64.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("torch/lib/libtorch_cpu.dylib", made.dylib({"text": b"x"}))
    with pytest.raises(OpListError, match="the wheel has no compiled kernels"):
        library.read(str(wheel), tmp_path)


@pytest.mark.parametrize("data", [b"", b"\xcf\xfa\xed\xfe" + bytes(8), b"elf" * 20])
def test_a_damaged_dylib_is_refused(data: bytes) -> None:
    with pytest.raises(OpListError, match="a dylib whose sections cannot be read"):
        metallib.sections(data)


def test_the_arguments_come_from_the_metadata() -> None:
    out, given, thread = air.arguments(made.unary("k", _HALF))
    assert (out.name, out.location, out.space, out.written, out.size) == ("output", 0, 1, True, 4)
    assert (given.name, given.location, given.written) == ("input", 1, False)
    assert (thread.kind, thread.is_buffer) == ("air.thread_position_in_grid", False)


def test_the_fields_of_a_struct_and_of_an_array_in_it() -> None:
    node = (
        '!"air.buffer", !"air.location_index", i32 0, i32 1, !"air.read", !"air.address_space", '
        'i32 2, !"air.struct_type_info", !90, !"air.arg_type_size", i32 20, '
        '!"air.arg_type_name", !"P", !"air.arg_name", !"params"'
    )
    text = made.air("", "k", [node]) + (
        '!90 = !{i32 0, i32 4, i32 0, !"float", !"p", !"air.struct_type_info", !91, '
        'i32 4, i32 16, i32 0, !"metal::array", !"sizes"}\n'
        '!91 = !{i32 0, i32 4, i32 4, !"uint", !"__elems"}\n'
    )
    (params,) = air.arguments(text)
    assert params.fields == (air.Field(0, 4, 0, "float", "p"), air.Field(4, 16, 4, "uint", "sizes"))


def test_a_module_without_a_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no !air\.kernel"):
        air.arguments("define void @f() {\n  ret void\n}\n")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add_dense_scalar_lhs_cast_float_half", ("add", "dense_scalar_lhs_cast", ("float32", "float16"), "")),
        ("exp2_strided_float_float", ("exp2", "strided", ("float32", "float32"), "")),
        ("add_alpha_dense_half_half_half", ("add_alpha", "dense", ("float16",) * 3, "")),
        ("copy_neg_dense_castout_float8_e4m3fn", ("copy_neg", "dense_castout", ("float8_e4m3fn",), "")),
        ("clamp_scalar_dense_int_int_ClampScalarParams_int", ("clamp_scalar", "dense", ("int32",) * 3, "ClampScalarParams")),
        ("sum_reduction_half_float", ("sum_reduction", "", ("float16", "float32"), "")),
    ],
)  # fmt: skip
def test_names(name: str, expected: tuple[object, ...]) -> None:
    named = kernel_names.parse(name)
    assert (named.operation, named.form, named.dtypes, named.params) == expected


def test_two_libraries_are_compared_by_code_not_by_metadata(tmp_path: Path) -> None:
    old = a_library("2.98.0", same=_HALF, other=_HALF, gone=_HALF)
    new = a_library("2.99.0", same=_HALF, other=_TWICE, new=_HALF)
    renamed = made.unary("same", _HALF).replace('!"index"', '!"thread"')
    (function,) = metallib.functions(made.metallib({"same": renamed}))
    new.functions["same"] = function
    assert function.digest != old.functions["same"].digest
    result = library.changes(old, new, cache=tmp_path)
    assert (result.new, result.gone, result.changed, result.same) == (("new",), ("gone",), ("other",), 1)
    assert library.changes(old, new, cache=tmp_path) == result


def test_an_operation_selects_its_kernels_and_a_pattern_those_that_it_matches() -> None:
    kernels = ["remainder_dense_float", "remainder_strided_half", "fmod_dense_float"]
    assert kernel_names.matching(kernels, "remainder") == kernels[:2]
    assert kernel_names.matching(kernels, "remainder_dense*") == kernels[:1]
    assert kernel_names.matching(kernels, "remain") == []
