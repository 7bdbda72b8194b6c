"""The committed lists, read as opcheck reads them, and what the reader says of damaged ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from opcheck.common.errors import OpListError
from opcheck.data.files import dump_releases, read_history
from opcheck.data.history import contract, dump, expand
from opcheck.data.registrations import FILES, VALUES, OpLists, data_directory, load

LISTS = load()
NEWEST = LISTS.releases[-1].line

#: Counted in the wheels by another program, before this reader was written:
#: aten_mps, sparse_mps, sparse_csr_mps, autocast_mps, always_fallback, python, stubs, macOS.
COUNTS = {
    "1.13.1": (487, 0, 0, 0, 13, 0, 2, "12.3"),
    "2.0.1": (550, 0, 0, 0, 10, 3, 3, "12.3"),
    "2.1.2": (620, 0, 0, 0, 9, 3, 9, "12.3"),
    "2.2.2": (653, 0, 0, 0, 8, 3, 10, "12.3"),
    "2.3.1": (667, 0, 0, 0, 8, 2, 11, "12.3"),
    "2.4.1": (674, 0, 0, 0, 8, 2, 11, "12.3"),
    "2.5.1": (693, 0, 0, 98, 6, 2, 13, "12.3"),
    "2.6.0": (713, 0, 0, 99, 5, 2, 19, "13.0"),
    "2.7.1": (745, 0, 0, 99, 5, 2, 33, "13.0"),
    "2.8.0": (817, 0, 0, 99, 3, 2, 91, "13.0"),
    "2.9.1": (851, 107, 13, 101, 3, 2, 98, "14.0"),
    "2.10.0": (859, 158, 13, 101, 3, 3, 114, "14.0"),
    "2.11.0": (871, 160, 13, 101, 3, 3, 120, "14.0"),
    "2.12.1": (882, 160, 13, 101, 3, 3, 130, "14.0"),
    "2.13.0": (894, 160, 13, 95, 3, 1, 173, "14.0"),
    "2.14.1": (914, 161, 13, 95, 1, 0, 188, "14.0"),
    "2.15.0": (930, 161, 13, 95, 1, 0, 206, "15.0"),
}


@pytest.mark.parametrize("release", LISTS.releases, ids=lambda release: release.torch)
def test_the_counts_are_those_of_the_wheels(release: object) -> None:
    result = LISTS.release(getattr(release, "line", ""))
    counts = result.counts
    assert (
        counts.aten_mps,
        counts.sparse_mps,
        counts.sparse_csr_mps,
        counts.autocast_mps,
        counts.always_fallback,
        counts.python,
        counts.stubs_with_mps,
        result.minimum_macos,
    ) == COUNTS[result.torch]


@pytest.mark.parametrize("line", [release.line for release in LISTS.releases])
def test_the_lists_hold_as_many_as_they_say(line: str) -> None:
    counts = LISTS.release(line).counts
    values = LISTS.operators(line)
    words = [value.partition(":")[0] for value in values.values()]
    assert len(values) == counts.overloads
    assert words.count("cpu_fallback") == counts.always_fallback
    assert words.count("python_kernel") == counts.python
    assert words.count("error_stub") == 1
    assert len(LISTS.operators(line, "SparseMPS")) == counts.sparse_mps
    assert len(LISTS.operators(line, "SparseCsrMPS")) == counts.sparse_csr_mps
    assert len(LISTS.operators(line, "AutocastMPS")) == counts.autocast_mps
    stubs = list(LISTS.operators(line, "stubs").values())
    assert stubs.count("kernel") == counts.stubs_with_mps


@pytest.mark.parametrize("line", [release.line for release in LISTS.releases])
def test_every_overload_resolves(line: str) -> None:
    for name in LISTS.operators(line):
        result = LISTS.resolve(name, line)
        assert result.status != "unknown"
        assert (result.kind is None) == (result.status != "fallback")
        assert result.chain[0] == name


def test_every_known_release_is_listed() -> None:
    assert [release.torch for release in LISTS.releases] == list(COUNTS)


@pytest.mark.parametrize(
    ("op", "line", "status", "kind", "last"),
    [
        ("aten::mm", "1.13", "native", None, "aten::mm"),
        ("aten::add.Tensor", NEWEST, "native", None, "aten::add.Tensor"),
        # A composite with an explicit fallback on top; what it would call has no kernel.
        ("aten::linalg_svd", "2.13", "fallback", "always", "aten::linalg_svd"),
        ("aten::_linalg_svd", "2.13", "fallback", "env", "aten::_linalg_svd.U"),
        ("aten::_linalg_svd", "2.14", "native", None, "aten::_linalg_svd"),
        # A Mac's error names the .out overload.
        ("aten::gcd", "2.9", "fallback", "env", "aten::gcd.out"),
        ("aten::gcd", "2.13", "native", None, "aten::gcd"),
        ("aten::embedding_renorm", "2.15", "fallback", "always", "aten::embedding_renorm_"),
        # Registered, and broken: its stub has no MPS kernel; withdrawn in 2.0.
        ("aten::put_", "1.13", "unsupported", None, "aten::put_"),
        ("aten::put_", "2.0", "fallback", "env", "aten::put_"),
        ("aten::kaiser_window.beta", NEWEST, "unsupported", None, "aten::kaiser_window.beta"),
        ("aten::kaiser_window.out", NEWEST, "unsupported", None, "aten::kaiser_window"),
        ("aten::mode.values", NEWEST, "unsupported", None, "aten::mode.values"),
        ("aten::_slow_conv2d_forward", "2.9", "unsupported", None, "aten::_slow_conv2d_forward"),
        # Registered from Python, later by the library.
        ("aten::native_group_norm", "2.12", "native", None, "aten::native_group_norm"),
        ("aten::linalg_lu_solve", "2.13", "native", None, "aten::linalg_lu_solve.out"),
        ("aten::softmax.int", NEWEST, "composite", None, "aten::softmax.int"),
        ("aten::no_such_operator", NEWEST, "unknown", None, "aten::no_such_operator"),
        ("torchvision::nms", NEWEST, "native", None, "torchvision::nms"),
    ],
)
def test_the_effective_status(op: str, line: str, status: str, kind: str, last: str) -> None:
    result = LISTS.resolve(op, line)
    assert (result.status, result.kind, result.chain[-1]) == (status, kind, last)


def test_the_explicit_fallbacks_of_2_13() -> None:
    fallbacks = {n for n, value in LISTS.operators("2.13").items() if value == "cpu_fallback"}
    assert fallbacks == {"aten::embedding_renorm_", "aten::linalg_svd", "aten::linalg_svd.U"}
    assert fallbacks < LISTS.kernels("2.13")


def test_the_forms_of_structured_operators_that_reach_a_missing_kernel() -> None:
    def lost(line: str) -> int:
        columns = LISTS.operators(line)
        ends = (LISTS.resolve(n, line) for n, v in columns.items() if v.startswith("out:"))
        return sum(end.kind == "env" for end in ends)

    assert (lost("2.9"), lost("2.15")) == (33, 18)


def test_histories_and_columns_say_the_same() -> None:
    for line in ("1.13", "2.9", NEWEST):
        column = LISTS.operators(line)
        for name in ("aten::abs", "aten::put_", "aten::gcd", "aten::no_such_operator"):
            assert LISTS.registration(name, line) == column.get(name)
    assert LISTS.history("aten::mm")[0] == ("1.13", "kernel")
    assert LISTS.history("aten::no_such_operator") == ()


def test_autocast_policies() -> None:
    policies = LISTS.operators("2.13", "AutocastMPS")
    assert policies["aten::mm"] == "lower_precision_fp"
    assert policies["aten::softmax.int"] == "fp32"
    assert policies["aten::addcdiv"] == "promote"
    assert LISTS.registration("aten::mm", "2.4", "AutocastMPS") is None


def test_a_release_without_a_list() -> None:
    with pytest.raises(OpListError, match=r"no op list for torch 9\.9"):
        LISTS.registration("aten::mm", "9.9")


def test_reading_needs_neither_torch_nor_lief() -> None:
    code = (
        "import sys; from opcheck.data.registrations import load; load();"
        "sys.exit(bool({'torch', 'lief', 'capstone', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("key", list(FILES))
def test_the_histories_are_as_the_builder_writes_them(key: str) -> None:
    path = data_directory() / FILES[key]
    lines = [release.line for release in LISTS.releases]
    history, raw = read_history(path, lines, VALUES[key])
    again = {name: contract(expand(h, lines), lines) for name, h in history.operators.items()}
    assert dump(msgspec.structs.replace(history, operators=again)).encode() == raw


def test_the_releases_are_as_the_builder_writes_them() -> None:
    text = (data_directory() / "releases.yaml").read_text()
    assert dump_releases(LISTS.releases) == text


def test_the_data_stay_small_and_tidy() -> None:
    files = [data_directory() / file for file in ("releases.yaml", *FILES.values())]
    assert sum(file.stat().st_size for file in files) < 700_000
    for file in files:
        text = file.read_text()
        assert text.endswith("\n")
        assert not any(line.endswith(" ") for line in text.splitlines())


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(data_directory(), tmp_path / "op_lists"))


def test_a_copy_reads_the_same(copy: Path) -> None:
    result = load(copy)
    assert isinstance(result, OpLists)
    assert result.digest == LISTS.digest
    assert len(result.digest) == 12


def change(path: Path, old: str, new: str) -> int:
    """Replace the first occurrence, and tell its line."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return text[: text.index(old)].count("\n") + 1


ATEN = FILES["MPS"]


@pytest.mark.parametrize(
    ("file", "old", "new", "message", "place"),
    [
        (ATEN, '"aten::mm": [["', '"aten::mm": [["9', "unknown release", "operators.aten::mm"),
        (ATEN, '"kernel"', '"kernal"', "unknown value: 'kernal'", "operators."),
        (ATEN, '"aten::mm": [["', '"aten::mm": @[["', "not JSON", ""),
        (ATEN, '"aten::mm": [["', '"aten::mm": [[1, "', "not the form", ""),
        (ATEN, '[["1.13",', '[["2.15","kernel"],["1.13",', "out of the order", "operators."),
        (ATEN, '"schema": 1', '"schema": 2', "schema 2", ": schema"),
        (FILES["stubs"], '"none"', '"nil"', "unknown value: 'nil'", "operators."),
        ("releases.yaml", 'torch: "2.13.0"', "torch: 2.13", "Expected `str`", ""),
        ("releases.yaml", 'line: "2.13"', 'line: "2.12"', "releases.2.13: a release under another's key", ""),
        ("releases.yaml", "schema: 1", "schema: [", "not YAML", ""),
        ("releases.yaml", "schema: 1", "schema: 7", "the schema must be 1", ""),
    ],
)
def test_damage_is_reported_with_its_place(copy: Path, file: str, old: str, new: str, message: str, place: str) -> None:
    line = change(copy / file, old, new)
    with pytest.raises(OpListError) as caught:
        load(copy)
    error = caught.value
    assert message in error.message
    assert place in error.context
    assert str(copy / file) in error.context
    assert error.hint
    if file.endswith(".json") and "schema" not in old:
        assert f"{file}:{line}" in error.context


def test_a_missing_file_is_reported(copy: Path) -> None:
    (copy / FILES["AutocastMPS"]).unlink()
    with pytest.raises(OpListError, match="cannot be read"):
        load(copy)


def test_a_reference_to_nowhere_is_reported(copy: Path) -> None:
    path = copy / ATEN
    document = json.loads(path.read_text())
    document["operators"]["aten::mm"] = [["1.13", "out:aten::nowhere"]]
    path.write_text(json.dumps(document))
    with pytest.raises(OpListError, match="aten::nowhere"):
        load(copy).resolve("aten::mm", "2.13")
