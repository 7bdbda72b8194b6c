"""Extension libraries: registrations through stubs, the stable ABI, and whole wheels."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("lief")

from opcheck.common.errors import OpListError, UsageError
from opcheck.data.extensions import FILE, read_extensions, registrations_file
from opcheck.data.registrations import data_directory
from opcheck.data.wheels.archive import default_cache
from opcheck.data.wheels.extension import (
    Registered,
    build_extension,
    find_registered,
    find_values,
    is_extension,
    read_extension,
)
from opcheck.data.wheels.image import Image, Section

# A made library: code at 0, stubs at 0x800, strings at 0x1000.
STUBS = {
    0x800: "__ZNR5torch7Library5_implEPKcONS_11CppFunctionENS_17_RegisterOrVerifyE",
    0x80C: "__ZNR5torch7Library4_defEONSt3__17variantIJN3c1012OperatorNameE",
    0x818: "_aoti_torch_library_init_impl",
    0x824: "_aoti_torch_library_init_fragment",
    0x830: "_aoti_torch_library_def",
    0x83C: "_torch_library_impl",
    0x848: "__ZdlPv",
}
IMPL, DEF, INIT_IMPL, INIT_FRAGMENT, STABLE_DEF, STABLE_IMPL, DELETE = STUBS
STRINGS = {
    0x1000: "made",
    0x1010: "MPS",
    0x1020: "nms",
    0x1030: "made::nms(Tensor dets) -> Tensor",
    0x1060: "made::loop",
    0x1070: "CPU",
    0x1080: "fell(Tensor self) -> Tensor",
    0x10A0: "made::roi.out",
}
MADE, MPS, NMS, SCHEMA, LOOP, CPU, FELL, ROI = STRINGS
#: Templates of the extension's own, in its own code.
DECLARE, DECLARE_WITH_KERNEL = 0x700, 0x710


def adr(rd: int, target: int, pc: int) -> int:
    delta = target - pc & 0x1FFFFF
    return 0x10000000 | (delta & 3) << 29 | (delta >> 2) << 5 | rd


def call(target: int, pc: int, first: int = 0, second: int = 0) -> list[int]:
    """Three words: the constants of x0 and x1, or nothing, and the call."""
    words = [
        adr(register, value, pc + 4 * register) if value else 0xD503201F  # nop
        for register, value in enumerate((first, second))
    ]
    return [*words, 0x94000000 | (target - pc - 8 >> 2 & 0x3FFFFFF)]


def made(functions: dict[str, list[tuple[int, int, int]]]) -> Image:
    data = bytearray(0x2000)
    names: dict[int, tuple[str, ...]] = {
        DECLARE: ("__ZNR5torch7Library3defIRA33_KcEERS0_OT_RKNSt3__16vector",),
        DECLARE_WITH_KERNEL: ("__ZNR5torch7Library3defIRA11_KcPFvxEEERS0_OT_OT0_RKNSt3__16vector",),
    }
    for index, (name, calls) in enumerate(functions.items()):
        address = 0x100 * index
        names[address] = (name,)
        words = [w for i, c in enumerate(calls) for w in call(c[0], address + 12 * i, *c[1:])]
        struct.pack_into(f"<{len(words)}I", data, address, *words)
    for address, text in STRINGS.items():
        data[address : address + len(text) + 1] = text.encode() + b"\0"
    sections = (Section("__TEXT", "__text", 0, 0x800, 0), Section("__TEXT", "__cstring", 0x1000, 0x1000, 0x1000))
    return Image(bytes(data), sections, names, dict(STUBS))


MPS_BLOCK = "__ZN6vision3opsL34TORCH_LIBRARY_IMPL_init_made_MPS_1ERN5torch7LibraryE"
CPU_BLOCK = "__ZL40TORCH_LIBRARY_IMPL_init_made_CPU_2RN5torch7LibraryE"
FRAGMENT = "__ZN6vision3opsL34TORCH_LIBRARY_FRAGMENT_init_made_3ERN5torch7LibraryE"
LIBRARY = "__ZL29TORCH_LIBRARY_init_madeRN5torch7LibraryE"


def test_calls_through_stubs() -> None:
    image = made(
        {
            MPS_BLOCK: [(IMPL, 0, NMS), (DELETE, 0, 0)],
            CPU_BLOCK: [(IMPL, 0, NMS), (IMPL, 0, ROI)],
            FRAGMENT: [(DECLARE, 0, SCHEMA)],
            LIBRARY: [(DECLARE_WITH_KERNEL, 0, LOOP)],
        }
    )
    assert find_registered(image) == (
        Registered("made", "", "loop"),
        Registered("made", "", "nms"),
        Registered("made", "CPU", "nms"),
        Registered("made", "CPU", "roi.out"),
        Registered("made", "CompositeImplicitAutograd", "loop"),
        Registered("made", "MPS", "nms"),
    )
    assert find_values("made", find_registered(image)) == {
        "made::loop": "composite_implicit",
        "made::nms": "kernel",
        "made::roi.out": "cpu_only",
    }


def test_the_stable_abi() -> None:
    image = made(
        {
            "__GLOBAL__sub_I_nms_kernel.mm": [
                (INIT_FRAGMENT, MADE, NMS),
                (STABLE_DEF, 0, FELL),
                (INIT_IMPL, MADE, MPS),
                (STABLE_IMPL, 0, NMS),
                (INIT_IMPL, MADE, CPU),
                (STABLE_IMPL, 0, ROI),
            ]
        }
    )
    assert find_values("made", find_registered(image)) == {
        "made::fell": "no_dense_kernel",
        "made::nms": "kernel",
        "made::roi.out": "cpu_only",
    }
    assert find_values("other", find_registered(image)) == {}


@pytest.mark.parametrize(
    ("name", "calls", "message"),
    [
        ("__ZN4some8functionEv", [(IMPL, 0, NMS)], "outside of a TORCH_LIBRARY_IMPL block"),
        (MPS_BLOCK, [(IMPL, 0, 0)], "whose name is not a constant"),
        (FRAGMENT, [(DEF, 0, 0)], "inlined"),
        (FRAGMENT, [(INIT_IMPL, MADE, 0)], "a dispatch key that is not a constant"),
        (FRAGMENT, [(INIT_FRAGMENT, MADE, 0), (STABLE_DEF, 0, 0)], "schema is not a constant"),
    ],
)
def test_what_the_reader_does_not_know_stops_it(name: str, calls: list[tuple[int, int, int]], message: str) -> None:
    with pytest.raises(OpListError, match=message):
        find_registered(made({name: calls}))


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("torchvision==0.28.0", True),
        ("torchaudio==2.11.0", True),
        ("some/torchvision-0.29.2-py3-none-macosx_14_0_arm64.whl", True),
        ("2.13.0", False),
        ("torch==2.13.0", False),
        ("torch-2.13.0-cp311-cp311-macosx_14_0_arm64.whl", False),
    ],
)
def test_what_names_an_extension(source: str, answer: bool) -> None:
    assert is_extension(source) is answer


def test_bad_sources(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not an extension library: torchtext"):
        build_extension("torchtext==0.18.0", tmp_path, tmp_path)
    with pytest.raises(UsageError, match="neither a torchvision release nor a wheel"):
        build_extension("torchvision==0.28", tmp_path, tmp_path)
    for name, message in (
        ("torchvision-0.28.0.whl", "not a wheel's file name"),
        ("torchvision-0.28.0-cp311-cp311-manylinux_2_28_x86_64.whl", "not a macOS arm64 wheel"),
        ("torchvision-0.28.0-cp311-cp311-macosx_14_0_arm64.whl", "the wheel is damaged"),
    ):
        wheel = tmp_path / name
        wheel.write_bytes(b"no archive")
        with pytest.raises(OpListError, match=message):
            read_extension(wheel)


RELEASES = read_extensions(data_directory() / FILE)


@pytest.mark.wheel
@pytest.mark.parametrize(
    "source", [f"{library}=={release.version}" for library, releases in RELEASES.items() for release in releases]
)
def test_a_rebuilt_release_is_the_committed_one(source: str, tmp_path: Path) -> None:
    committed = data_directory()
    lists = Path(shutil.copytree(committed, tmp_path / "op_lists"))
    try:
        done = build_extension(source, lists, default_cache())
    except OpListError as error:
        if "could be downloaded" not in error.message:
            raise
        pytest.skip(f"the wheel of {source} cannot be had: {error.context}")
    assert done.changed == ()
    # From nothing, the release alone.
    alone = build_extension(source, tmp_path / "new", default_cache())
    assert alone.changed == (FILE, registrations_file(alone.library))
    again = read_extensions(tmp_path / "new" / FILE)
    assert again[alone.library] == (alone.release,)
