"""What computes an operator is read from the code: a graph, a Metal kernel, other operators, or nothing."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("lief")

from opcheck.data.kernel_routes import KINDS, TABLE
from opcheck.data.registrations import data_directory, load
from scripts.read_routes import changes, value
from scripts.wheels import routes
from tests.data.test_wheel_library import MPS_BLOCK, STUB, adr, bl, implement, made_library

RETURN = 0xD65F03C0
ENTRY, KERNEL, HELPER, COLD, GRAPH, METAL, ADD, PLACEHOLDER = range(0x400, 0x600, 0x40)

GRAPH_NAME = "__ZN2at6native3mps11runMPSGraphEPNS_3mps9MPSStreamEP8MPSGraph"
METAL_NAME = "__ZN2at6native3mps18MetalShaderLibrary23getLibraryPipelineStateEv"


def reached(kernel: list[int]) -> routes.Reached | None:
    """Read a library whose only kernel has this code."""
    library = made_library(
        {
            MPS_BLOCK: (0x200, implement(ENTRY, 0x1000, 0x200)),
            "__ZN3c104impl28wrap_kernel_functor_unboxed_I4madeE4callEv": (ENTRY, [bl(KERNEL, ENTRY), RETURN]),
            "__ZN2at6native8made_mpsERKNS_6TensorE": (KERNEL, kernel),
            "__ZN2at6nativeL4helpERKNS_6TensorE": (HELPER, [bl(METAL, HELPER), RETURN]),
            "__ZN2at6native3mps9mps_copy_ERNS_6TensorERKS2_b.cold.1": (COLD, [bl(GRAPH, COLD), RETURN]),
            GRAPH_NAME: (GRAPH, [RETURN]),
            METAL_NAME: (METAL, [RETURN]),
            "__ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_": (ADD, [bl(METAL, ADD), RETURN]),
            "__ZN2at6native3mps11PlaceholderC1EP14MPSGraphTensor": (PLACEHOLDER, [bl(METAL, PLACEHOLDER), RETURN]),
        }
    )
    (result,) = routes.read_routes(library, ["aten::add.Tensor"]).values()
    return result


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        ([bl(GRAPH, KERNEL), RETURN], "graph"),
        ([bl(HELPER, KERNEL), RETURN], "metal"),
        ([bl(HELPER, KERNEL), bl(GRAPH, KERNEL + 4), RETURN], "graph+metal"),
        ([bl(ADD, KERNEL), RETURN], "calls:aten::add.Tensor"),
        ([bl(ADD, KERNEL), bl(GRAPH, KERNEL + 4), RETURN], "graph"),
        ([bl(COLD, KERNEL), RETURN], "view"),
        ([bl(PLACEHOLDER, KERNEL), bl(GRAPH, KERNEL + 4), RETURN], "graph"),
    ],
    ids=["graph", "helper", "both", "calls", "graph-and-calls", "error-path", "shared-helper"],
)
def test_a_kernel_has_the_marks_that_it_reaches(kernel: list[int], text: str) -> None:
    assert value(reached(kernel)) == text


def test_a_dispatch_stub_stands_for_the_kernel_that_a_file_stores_into_it() -> None:
    store = [adr(8, STUB, 0x300), adr(9, HELPER, 0x304), 0xF9000C00 | 8 << 5 | 9]  # str x9, [x8, #0x18]
    library = made_library(
        {
            MPS_BLOCK: (0x200, implement(ENTRY, 0x1000, 0x200)),
            "__GLOBAL__sub_I_Made.mm": (0x300, store),
            "__ZN3c104impl28wrap_kernel_functor_unboxed_I4madeE4callEv": (ENTRY, [adr(0, STUB, ENTRY), RETURN]),
            "__ZN2at6nativeL4helpERKNS_6TensorE": (HELPER, [bl(METAL, HELPER), RETURN]),
            METAL_NAME: (METAL, [RETURN]),
        },
        __ZN2at6native9made_stubE=STUB,
    )
    assert [value(each) for each in routes.read_routes(library, ()).values()] == ["metal"]


def test_a_kernel_without_a_function_that_can_be_followed_is_unknown() -> None:
    library = made_library({MPS_BLOCK: (0x200, implement(KERNEL, 0x1000, 0x200))})
    assert [value(each) for each in routes.read_routes(library, ()).values()] == ["unknown"]


def test_a_rebuild_shows_what_changed() -> None:
    before, after = ({"aten::a": "graph", "aten::b": "metal"}, {"aten::a": "metal", "aten::b": "metal"})
    assert changes(before, after) == ["  aten::a: graph -> metal"]


def test_each_kernel_of_the_lists_has_a_row() -> None:
    lists = load()
    rows = TABLE.load().operators
    for release in lists.releases:
        native = {op for op, text in lists.operators(release.line).items() if text == "kernel"}
        missing = sorted(native - rows.keys())
        assert not missing, (release.line, missing)


def test_a_damaged_wheel_leaves_the_old_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from scripts import read_routes as script

    wheel = tmp_path / "torch-2.15.0-cp311-cp311-macosx_14_0_arm64.whl"
    wheel.write_bytes(b"no archive")
    before = (data_directory() / TABLE.name).read_bytes()
    monkeypatch.setenv("OPCHECK_CACHE", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["read_routes", "2.15.0"])
    assert script.main() != 0
    assert len(capsys.readouterr().err.splitlines()) == 3
    assert (data_directory() / TABLE.name).read_bytes() == before


def test_a_message_that_encodes_work_is_a_mark() -> None:
    library = made_library(
        {
            MPS_BLOCK: (0x200, implement(ENTRY, 0x1000, 0x200)),
            "__ZN3c104impl28wrap_kernel_functor_unboxed_I4madeE4callEv": (ENTRY, [bl(HELPER, ENTRY), RETURN]),
            "_objc_msgSend$encodeToCommandBuffer:sourceMatrix:resultMatrix:": (HELPER, [RETURN]),
        }
    )
    assert [value(each) for each in routes.read_routes(library, ()).values()] == ["mps"]


def test_a_kernel_that_moves_arguments_to_its_own_operator_leaves_them_to_the_cpu() -> None:
    plain = routes.Reached(frozenset({"graph"}), frozenset({"aten::topk", "aten::to.dtype"}), frozenset({"topk"}))
    moving = plain._replace(texts=frozenset({"cpu"}))
    assert routes._with_cpu("aten::topk.values", plain).marks == {"graph"}
    assert routes._with_cpu("aten::topk.values", moving).marks == {"graph", "cpu"}
    assert routes._with_cpu("aten::sort.stable", moving).marks == {"graph"}


MOVZ_SIGM = [0x52800000 | ord("s") << 5 | ord("i") << 13, 0x72A00000 | ord("g") << 5 | ord("m") << 13]
MOVZ_MOID = [0x52800001 | ord("m") << 5 | ord("o") << 13, 0x72A00001 | ord("i") << 5 | ord("d") << 13]


def test_a_short_name_is_read_from_the_registers_that_it_is_built_in() -> None:
    code = struct.pack("<4I", *MOVZ_SIGM, *MOVZ_MOID)
    assert "sigmoid" in set(routes._immediates(code))


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        ({"sigmoid", "self"}, ["sigmoid"]),
        ({"layer_norm_{}_{}"}, ["layer_norm"]),
        ({"argmax"}, []),
        ({"argmax", "{}_reduction_{}"}, ["argmax"]),
        ({"float"}, []),
    ],
    ids=["whole", "format", "word", "open-format", "dtype"],
)
def test_the_texts_of_a_kernel_name_metal_kernels(texts: set[str], names: list[str]) -> None:
    known = routes.stems(["sigmoid_dense_float_float", "layer_norm_single_row_float", "argmax_reduction_outer_float"])
    assert routes.named_kernels(texts, known) == names


def test_the_kinds_are_those_of_the_reader() -> None:
    assert set(routes.MARKS) == set(KINDS)
