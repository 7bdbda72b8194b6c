"""Registrations, declarations and stubs, read from a made library."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("lief")

from opcheck.common.errors import OpListError
from opcheck.data.wheels.column import find_declared, registrations, stub_table
from opcheck.data.wheels.image import Image, Section

# A made library: one page of code at 0, strings at 0x1000, data at 0x2000.
IMPL, FALLBACK, DESTROY = 0x100, 0x110, 0x120
WRAPPER, BOXED, BOXED_ERROR, STUBBED = 0x130, 0x140, 0x150, 0x160
STRINGS = {
    0x1000: "made.out",
    0x1010: "aten::fell",
    0x1020: "new(Tensor self) -> Tensor",
    0x1080: "The MPS backend is supported on macOS 14.0+.",
}
STUB = 0x2100


def adr(rd: int, target: int, pc: int) -> int:
    delta = target - pc & 0x1FFFFF
    return 0x10000000 | (delta & 3) << 29 | (delta >> 2) << 5 | rd


def bl(target: int, pc: int) -> int:
    return 0x94000000 | (target - pc >> 2 & 0x3FFFFFF)


def implement(kernel: int, name: int, pc: int) -> list[int]:
    """``m.impl(name, kernel)``, eight words, two of them not followed."""
    return [
        adr(9, kernel, pc),
        0xA90127E0,  # stp x0, x9, [sp, #0x10]
        adr(1, name, pc + 8),
        0xAA1303E0,  # mov x0, x19
        0x52800003,  # mov w3, #0
        bl(IMPL, pc + 20),
        0x910003E0,  # mov x0, sp
        bl(DESTROY, pc + 28),
    ]


def made_library(functions: dict[str, tuple[int, list[int]]], **symbols: int) -> Image:
    data = bytearray(0x3000)
    names: dict[int, tuple[str, ...]] = {
        IMPL: ("__ZNR5torch7Library5_implEPKc",),
        FALLBACK: ("__ZNR5torch7Library9_fallbackEO",),
        DESTROY: ("__ZN5torch11CppFunctionD1Ev",),
        WRAPPER: ("__ZN12wrapper_MPS_made",),
        BOXED: ("__ZN3c10make_boxedL_ZN2atL12mps_fallbackERKN3c10",),
        BOXED_ERROR: ("__ZN3c10make_boxedL_ZN2atL18mps_error_fallbackERKN3c10",),
        STUBBED: ("__ZN2atL23slow_conv2d_forward_mpsERKNS_6TensorE",),
    }
    for name, (address, words) in functions.items():
        struct.pack_into(f"<{len(words)}I", data, address, *words)
        names[address] = (name,)
    for address, text in STRINGS.items():
        data[address : address + len(text) + 1] = text.encode() + b"\0"
    for name, address in symbols.items():
        names[address] = (name,)
    sections = (
        Section("__TEXT", "__text", 0, 0x1000, 0),
        Section("__TEXT", "__cstring", 0x1000, 0x1000, 0x1000),
        Section("__DATA", "__data", 0x2000, 0x1000, 0x2000),
    )
    return Image(bytes(data), sections, names)


MPS_BLOCK = "__ZN2at12_GLOBAL__N_134TORCH_LIBRARY_IMPL_init_aten_MPS_3ERN5torch7LibraryE"
HAND_BLOCK = "__ZN2atL34TORCH_LIBRARY_IMPL_init_aten_MPS_2ERN5torch7LibraryE"


def test_registrations_are_read_from_the_code() -> None:
    image = made_library(
        {MPS_BLOCK: (0x200, implement(WRAPPER, 0x1000, 0x200)), HAND_BLOCK: (0x300, implement(BOXED, 0x1010, 0x300))}
    )
    first, second = registrations(image)
    assert (first.namespace, first.key, first.name) == ("aten", "MPS", "made.out")
    assert "__ZN12wrapper_MPS_made" in first.symbols
    assert not first.from_mps_fallback_file
    assert second.name == "aten::fell"
    assert any("12mps_fallbackE" in symbol for symbol in second.symbols)
    assert second.from_mps_fallback_file


def test_a_name_that_is_no_constant_stops_the_build() -> None:
    image = made_library({MPS_BLOCK: (0x200, [bl(IMPL, 0x200)])})
    with pytest.raises(OpListError, match="not a constant"):
        registrations(image)


def test_a_library_without_the_registering_functions_stops_the_build() -> None:
    image = Image(b"", (Section("__TEXT", "__text", 0, 0, 0),), {})
    with pytest.raises(OpListError, match="does not define torch::Library::_impl"):
        registrations(image)


def test_declarations_are_read_from_the_code() -> None:
    name = "__ZN2atL23TORCH_LIBRARY_init_atenERN5torch7LibraryE"
    image = made_library({name: (0x200, [adr(0, 0x1020, 0x200), adr(1, 0x1000, 0x204)])})
    assert find_declared(image) == {"aten::new"}


DEFAULT = "__ZN2at6native12DispatchStubIPFvvENS0_{}_DECLARE_DISPATCH_typeEE7DEFAULTE"


def test_the_stub_table() -> None:
    code = [adr(8, STUB, 0x200), adr(9, WRAPPER, 0x204), 0xF9000C00 | 8 << 5 | 9]
    image = made_library(
        {"__GLOBAL__sub_I_Made.mm": (0x200, code)},
        __ZN2at6native9made_stubE=STUB,
        __ZN2at6native9bare_stubE=STUB + 0x40,
        **{DEFAULT.format("9made_stub"): 0x2200, DEFAULT.format("9bare_stub"): 0x2208},
    )
    assert stub_table(image) == {"bare_stub": False, "made_stub": True}


def test_an_unreadable_stub_table_stops_the_build() -> None:
    with pytest.raises(OpListError, match="DispatchStub table"):
        stub_table(made_library({}, **{DEFAULT.format("9made_stub"): 0x2200}))


def test_a_fat_or_foreign_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "libtorch_cpu.dylib"
    path.write_bytes(b"\x7fELF" + bytes(100))
    with pytest.raises(OpListError, match="not a thin arm64 Mach-O"):
        Image.parse(path)
