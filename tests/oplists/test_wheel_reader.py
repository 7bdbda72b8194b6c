"""The wheel reader on small made inputs: archives, Python files, yaml, a made library."""

from __future__ import annotations

import shutil
import struct
import zipfile
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("lief")

from opcheck.errors import OpListError, UsageError
from opcheck.oplists.files import Counts, Release, read_releases
from opcheck.oplists.registrations import FILES, load
from opcheck.oplists.wheel import archive, column
from opcheck.oplists.wheel.builder import build, merged
from opcheck.oplists.wheel.declarations import declared
from opcheck.oplists.wheel.dispatcher import Registration, registrations
from opcheck.oplists.wheel.image import Image, Section
from opcheck.oplists.wheel.python_side import python_kernels
from opcheck.oplists.wheel.release import ReleaseFacts
from opcheck.oplists.wheel.schemas import Schema, read_schemas
from opcheck.oplists.wheel.stubs import stub_table

WHEEL = "torch-2.13.0-cp311-cp311-macosx_14_0_arm64.whl"
VERSION = "__version__ = '2.13.0'\ngit_version = 'abc'\n"


def made_wheel(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {"torch/version.py": VERSION, **members}.items():
            wheel.writestr(zipfile.ZipInfo(name, (2026, 7, 3, 1, 2, 4)), text)
    return path


def test_what_a_wheel_says_about_itself(tmp_path: Path) -> None:
    found = archive.read_archive(made_wheel(tmp_path / WHEEL))
    assert (found.torch, found.commit, found.built) == ("2.13.0", "abc", date(2026, 7, 3))
    assert len(found.sha256) == 64


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torch.whl", "not a wheel's file name"),
        ("torch-2.2.2-cp311-none-macosx_10_9_x86_64.whl", "not a macOS arm64 wheel"),
        ("torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl", "not a macOS arm64 wheel"),
        ("torch-2.13.0-cp311-cp311-manylinux_2_28_aarch64.whl", "not a macOS arm64 wheel"),
        ("numpy-2.13.0-cp311-cp311-macosx_14_0_arm64.whl", "not a macOS arm64 wheel"),
        ("torch-2.12.0-cp311-cp311-macosx_14_0_arm64.whl", "disagrees"),
    ],
)
def test_other_wheels_are_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(OpListError, match=message) as caught:
        archive.read_archive(made_wheel(tmp_path / name))
    assert len(str(caught.value).splitlines()) == 3


def test_a_damaged_wheel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / WHEEL
    path.write_bytes(b"not a zip archive")
    with pytest.raises(OpListError, match="damaged"):
        archive.read_archive(path)


def test_a_wheel_without_the_library_is_refused(tmp_path: Path) -> None:
    wheel = archive.read_archive(made_wheel(tmp_path / WHEEL))
    with pytest.raises(OpListError, match="the wheel has no torch/lib"):
        wheel.unpack(tmp_path / "tree")


@pytest.mark.parametrize("source", ["", "latest", "2.13", "torch==2.13.0", "no/such/file.whl"])
def test_a_source_is_a_release_or_a_wheel(tmp_path: Path, source: str) -> None:
    with pytest.raises(UsageError, match="neither a torch release nor a wheel"):
        build(source, tmp_path / "lists", tmp_path / "cache")
    assert not list(tmp_path.iterdir())


def test_the_cache_answers_before_the_index(tmp_path: Path) -> None:
    path = made_wheel(tmp_path / WHEEL)
    assert archive.obtain("2.13.0", tmp_path) == path


def test_the_cache_directory_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPCHECK_CACHE", "elsewhere")
    assert archive.default_cache() == Path("elsewhere")
    monkeypatch.delenv("OPCHECK_CACHE")
    assert archive.default_cache().parts[-2:] == ("opcheck", "wheels")


def test_known_python_registrations_are_found() -> None:
    found = python_kernels(
        {
            "torch/backends/mps/__init__.py": (
                '_lib = _Library("aten", "IMPL")\n'
                '_lib.impl("native_group_norm", fn, "MPS")\n'
                '_lib.impl("bmm", fn, "CUDA")\n'
            ),
            "torch/_refs/linalg/__init__.py": (
                'mps_lib = torch.library.Library("aten", "IMPL", "MPS")\n'
                'mps_lib.impl("aten::linalg_lu_solve.out", fn)\n'
            ),
            "torch/_inductor/test_operators.py": (
                'lib = torch.library.Library("_inductor_test", "IMPL")\n'
                'for key in ("CPU", "MPS"):\n    lib.impl("realize", fn, key)\n'
            ),
            "torch/nn/other.py": 'x = "MPSProperties"\n',
        }
    )
    assert found == {"aten::native_group_norm", "aten::linalg_lu_solve.out"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('lib = Library("aten", "IMPL")\nlib.impl("mm", fn, "MPS")\n', "aten::mm"),
        ('lib = Library("aten", "IMPL")\nlib.impl("mm", fn, dispatch_key="MPS")\n', "aten::mm"),
        ("lib.impl('mm', fn, 'SparseMPS')\n", "a dispatch key"),
        ('register(op, key="MPS")\n', "a dispatch key"),
    ],
)
def test_a_new_python_registration_stops_the_build(text: str, named: str) -> None:
    with pytest.raises(OpListError, match="that opcheck does not know") as caught:
        python_kernels({"torch/new.py": text})
    assert "torch/new.py" in caught.value.context
    assert named in caught.value.context


MADE_YAML = """
- func: lone(Tensor self) -> Tensor
  dispatch:
    CPU: lone_cpu
    MPS: lone_mps

- func: made(Tensor self) -> Tensor
  structured_delegate: made.out

- func: made_(Tensor(a!) self) -> Tensor(a!)
  structured_delegate: made.out

- func: made.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  structured_inherits: TensorIteratorBase
  dispatch:
    CPU: made_out
    MPS: made_out_mps
    SparseMPS: made_out_sparse_mps

- func: grow(Tensor self) -> Tensor
  dispatch:
    CPU: grow_cpu
  autogen: grow.out

- func: sum_of(Tensor self) -> Tensor
"""


@pytest.fixture
def torchgen_tree(tmp_path: Path) -> Path:
    """The installed torchgen, with a native_functions.yaml of six operators."""
    spec = find_spec("torchgen")
    if spec is None or spec.origin is None:
        pytest.skip("no torchgen is installed")
    source = Path(spec.origin).parent
    shutil.copytree(source, tmp_path / "torchgen", ignore=shutil.ignore_patterns("__pycache__"))
    native = tmp_path / "torchgen/packaged/ATen/native"
    (native / "native_functions.yaml").write_text(MADE_YAML)
    return tmp_path


def test_the_yaml_is_read_through_torchgen(torchgen_tree: Path) -> None:
    found = read_schemas(torchgen_tree)
    assert found["aten::lone"] == Schema(generated=False, keys=("MPS",))
    # The structured kernel of made.out serves the other forms; the SparseMPS one does not.
    for form in ("aten::made", "aten::made_"):
        assert found[form] == Schema(generated=False, keys=("MPS",), out="aten::made.out")
    assert found["aten::made.out"].keys == ("MPS", "SparseMPS")
    assert found["aten::grow.out"] == Schema(generated=True, keys=(), base="aten::grow")
    assert found["aten::sum_of"] == Schema(generated=False, keys=())


def test_a_yaml_that_torchgen_refuses(torchgen_tree: Path) -> None:
    native = torchgen_tree / "torchgen/packaged/ATen/native"
    (native / "native_functions.yaml").write_text("- func: broken(\n")
    with pytest.raises(OpListError, match="does not parse"):
        read_schemas(torchgen_tree)


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
        {
            MPS_BLOCK: (0x200, implement(WRAPPER, 0x1000, 0x200)),
            HAND_BLOCK: (0x300, implement(BOXED, 0x1010, 0x300)),
        }
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
    assert declared(image) == {"aten::new"}


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


def registered(key: str, *names: str, symbols: str = "") -> list[Registration]:
    by_hand = "mps" in symbols
    return [Registration("aten", key, name, frozenset({symbols}), by_hand) for name in names]


FALLBACKS = [
    Registration("_", "MPS", None, frozenset({f"_ZN2atL{name}RKN3c10"}), True)
    for name in ("12mps_fallbackE", "18mps_error_fallbackE")
]
HAND = [
    *registered("MPS", "aten::fell", symbols="L12mps_fallbackE"),
    *registered("MPS", "_slow_conv2d_forward", symbols="L23slow_conv2d_forward_mpsE"),
]
SCHEMAS = {
    "aten::native": Schema(generated=False, keys=("MPS",)),
    "aten::fell": Schema(generated=False, keys=()),
    "aten::_slow_conv2d_forward": Schema(generated=False, keys=()),
    "aten::made": Schema(generated=False, keys=(), out="aten::made.out"),
    "aten::made.out": Schema(generated=False, keys=()),
    "aten::grow": Schema(generated=False, keys=()),
    "aten::grow.out": Schema(generated=True, keys=(), base="aten::grow"),
    "aten::implicit": Schema(generated=False, keys=()),
    "aten::nothing": Schema(generated=False, keys=()),
    "aten::from_python": Schema(generated=False, keys=()),
    "aten::kaiser_window": Schema(generated=False, keys=()),
}


def test_the_values_follow_the_dispatchers_order() -> None:
    found = column.dispatch(
        (
            *FALLBACKS,
            *HAND,
            *registered("MPS", "native"),
            *registered("CompositeExplicitAutogradNonFunctional", "made"),
            *registered("CompositeExplicitAutograd", "grow", "grow.out", "kaiser_window", "native"),
            *registered("CompositeImplicitAutograd", "implicit", "fell"),
            *registered("CPU", "made.out", "native", "fell", "implicit"),
        )
    )
    column.check(found, SCHEMAS)
    assert column.column(found, SCHEMAS, {"aten::from_python"}, {"kaiser_window_stub": False}) == {
        "aten::from_python": "python_kernel",
        "aten::fell": "cpu_fallback",
        "aten::_slow_conv2d_forward": "error_stub",
        "aten::native": "kernel",
        "aten::made": "out:aten::made.out",
        "aten::made.out": "cpu_only",
        "aten::kaiser_window": "missing_stub:kaiser_window_stub",
        "aten::grow": "composite_explicit",
        "aten::grow.out": "wrapper:aten::grow",
        "aten::implicit": "composite_implicit",
        "aten::nothing": "no_dense_kernel",
    }


def test_a_stub_with_a_kernel_is_not_missing() -> None:
    found = column.dispatch((*FALLBACKS, *registered("CompositeExplicitAutograd", "kaiser_window")))
    values = column.column(found, SCHEMAS, set(), {"kaiser_window_stub": True})
    assert values["aten::kaiser_window"] == "composite_explicit"


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (registered("MPS", "made"), "MPS: in the library only"),
        (registered("SparseMPS", "made"), "SparseMPS: in the library only"),
        (registered("CPU", "undeclared"), "kernels without a schema"),
        (registered("MPS", "grow", symbols="L23slow_conv2d_forward_mpsE"), "error stubs"),
        (registered("MPS", "native", symbols="L12mps_fallbackE"), "that the yaml calls a kernel"),
    ],
)
def test_a_broken_invariant_stops_the_build(extra: list[Registration], message: str) -> None:
    found = column.dispatch((*FALLBACKS, *HAND, *registered("MPS", "native"), *extra))
    with pytest.raises(OpListError, match=message) as caught:
        column.check(found, SCHEMAS)
    assert len(str(caught.value).splitlines()) == 3


def test_a_yaml_kernel_that_the_library_lacks_stops_the_build() -> None:
    with pytest.raises(OpListError, match="MPS: in the yaml only"):
        column.check(column.dispatch((*FALLBACKS, *HAND)), SCHEMAS)


def test_both_backend_wide_fallbacks_are_needed() -> None:
    with pytest.raises(OpListError, match="not the two that are known"):
        column.dispatch(tuple(FALLBACKS[:1]))


def test_autocast_policies_are_named() -> None:
    symbol = "__ZN2at8autocast13WrapFunction_ILNS0_10CastPolicyE4ELN3c1010DeviceTypeE13E"
    found = column.dispatch((*FALLBACKS, *registered("AutocastMPS", "aten::dot", symbols=symbol)))
    assert found.autocast == {"aten::dot": "promote"}
    with pytest.raises(OpListError, match="CastPolicy"):
        column.dispatch((*FALLBACKS, *registered("AutocastMPS", "aten::dot", symbols="other")))


def facts(torch: str, values: dict[str, str]) -> ReleaseFacts:
    counts = Counts(
        aten_mps=1,
        sparse_mps=0,
        sparse_csr_mps=0,
        autocast_mps=0,
        always_fallback=0,
        python=0,
        stubs_with_mps=0,
        overloads=len(values),
    )
    release = Release(
        torch=torch,
        line=torch.rpartition(".")[0],
        wheel="made.whl",
        sha256="0",
        commit="0",
        built=date(2026, 1, 2),
        minimum_macos="14.0",
        minimum_macos_text="from 14.0+ on",
        counts=counts,
    )
    columns: dict[str, dict[str, str]] = {key: {} for key in FILES}
    return ReleaseFacts(release=release, columns={**columns, "MPS": values})


def write(made: ReleaseFacts, directory: Path) -> None:
    for file, text in merged(made, directory).items():
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(text)


def contents(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(directory.rglob("*.*"))}


def test_the_order_of_whole_builds_leaves_no_trace(tmp_path: Path) -> None:
    releases = [
        facts("2.9.1", {"aten::a": "cpu_only", "aten::b": "kernel"}),
        facts("2.10.0", {"aten::a": "kernel"}),
        facts("1.13.1", {"aten::b": "kernel"}),
    ]
    for name, order in {"one": (0, 1, 2), "other": (2, 1, 0), "again": (1, 0, 2, 1)}.items():
        for index in order:
            write(releases[index], tmp_path / name)
    assert (
        contents(tmp_path / "one") == contents(tmp_path / "other") == contents(tmp_path / "again")
    )
    lists = load(tmp_path / "one")
    assert [release.line for release in lists.releases] == ["1.13", "2.9", "2.10"]
    assert lists.history("aten::b") == (("1.13", "kernel"), ("2.10", None))
    assert read_releases(tmp_path / "one" / "releases.yaml")[0][2] == releases[1].release


def test_histories_without_their_releases_are_refused(tmp_path: Path) -> None:
    write(facts("2.9.1", {"aten::a": "kernel"}), tmp_path)
    (tmp_path / "releases.yaml").unlink()
    with pytest.raises(OpListError, match="without their releases"):
        merged(facts("2.10.0", {}), tmp_path)
