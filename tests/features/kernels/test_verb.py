"""``opcheck kernels`` over a library that is made here, in the place of a release's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from opcheck.data.registrations import load
from opcheck.data.targets import beyond
from tests.command_line import CommandLine
from tests.kernels import made

_SQUARE, _TWICE = "  %r = fmul float %x, %x", "  %r = fadd float %x, %x"
_NAMES = ("sqr_dense_float_float", "sqr_dense_scalar_float_float")


@pytest.fixture(autouse=True)
def _libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kernels" / "libraries"
    kept.mkdir(parents=True)
    for release, second in (("2.14.1", _SQUARE), ("2.15.0", _TWICE)):
        bodies = dict(zip(_NAMES, (_SQUARE, second), strict=True))
        data = made.metallib({name: made.unary(name, body) for name, body in bodies.items()})
        (kept / f"metal_basic-{release}.metallib").write_bytes(data)
    monkeypatch.setenv("OPCHECK_CACHE", str(tmp_path / "wheels"))


def test_the_operations_and_the_kernels_are_listed(opcheck: CommandLine) -> None:
    listed = opcheck("kernels", "list", "--torch", "2.15")
    assert (listed.code, listed.err) == (0, "")
    assert listed.out.splitlines() == [*("torch 2.15.0, metal_basic: 2 kernels", ""), "  sqr      2  float32"]
    named = opcheck("kernels", "list", "--torch", "2.15", "*scalar*")
    assert named.out.splitlines()[2:] == [
        "sqr_dense_scalar_float_float",
        "  sqr, dense_scalar: float32, float32",
        "    output: buffer 0, written, float, 4 bytes",
        "    input: buffer 1, read, float, 4 bytes",
        "    index: thread_position_in_grid",
    ]


def test_a_release_that_has_no_list_is_answered_by_another_which_is_said(opcheck: CommandLine) -> None:
    result = opcheck("kernels", "list", "--torch", "9", "--newest-known")
    assert result.out.startswith("torch 2.15.0, ")
    assert result.err == "note: the list of torch 2.15.0 answers for 9, which is newer than the op lists\n"
    assert result.code == 0


@pytest.mark.parametrize("words", [("list", "--torch", "9"), ("test", "--torch", "9"), ("diff", "2.14", "9")])
def test_no_run_about_a_release_without_a_list_ends_as_a_good_one(opcheck: CommandLine, words: tuple[str, ...]) -> None:
    result = opcheck("kernels", *words)
    assert result.code == 3
    assert "could not tell: torch 9 is newer than the op lists" in result.err
    assert opcheck("kernels", *words, "--newest-known").code in {0, 1}


def test_a_wheel_in_place_of_a_release_answers_for_itself() -> None:
    assert beyond("torch-9.0.0-cp311-cp311-macosx_14_0_arm64.whl", None, load()) == ""
    assert beyond("9.0", None, load())


def test_an_unknown_name_is_refused(opcheck: CommandLine) -> None:
    result = opcheck("kernels", "list", "--torch", "2.15", "nothing*")
    assert result.code == 2
    assert result.err.startswith("no kernel of torch 2.15.0 has this name\n  in: nothing*\n")


def test_two_releases_are_compared(opcheck: CommandLine) -> None:
    result = opcheck("kernels", "diff", "2.14", "2.15", "-q")
    assert result.out.splitlines() == [
        "torch 2.14.1 -> 2.15.0, metal_basic",
        *("0 new, 0 gone, 1 changed", "1 of the same code", "", "changed"),
        "  sqr_dense_scalar_float_float",
    ]


def test_a_release_is_run_and_judged(opcheck: CommandLine, tmp_path: Path) -> None:
    result = opcheck("kernels", "test", "--torch", "2.15", "-q", "-j", "1")
    assert result.code == 1
    assert "2 kernels: 1 right, 1 wrong" in result.out
    assert "sqr        float32  1        0.5             1       0.25" in result.out
    table = tmp_path / "run.json"
    again = opcheck("kernels", "test", "--torch", "2.14", "-q", "-j", "1", "-o", str(table))
    assert again.code == 0
    outcomes = json.loads(table.read_text())["outcomes"]
    assert [outcome["verdict"] for outcome in outcomes] == ["right", "right"]


def test_a_table_has_one_row_a_kernel(opcheck: CommandLine, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "run.parquet"
    assert opcheck("kernels", "test", "--torch", "2.15", "-q", "-j", "1", "-o", str(path)).code == 1
    rows = parquet.read_table(path).to_pylist()
    assert [(row["kernel"], row["verdict"], row["inputs"]) for row in rows] == [
        (_NAMES[0], "right", []),
        (_NAMES[1], "wrong", ["0.5"]),
    ]


def test_without_llvmlite_the_extra_is_named(opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "llvmlite.binding", None)
    result = opcheck("kernels", "test", "--torch", "2.15")
    assert result.code == 2
    assert result.err.splitlines()[-1] == "  help: pip install 'opcheck[kernels]'"
