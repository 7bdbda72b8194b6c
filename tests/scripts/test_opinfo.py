"""The committed evaluation of PyTorch's CI lists: well-formed, and what the installed torch says."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from opcheck.common.errors import OpListError
from opcheck.common.versions import Version
from opcheck.data.registrations import OpLists, data_directory
from scripts.opinfo import ci, record, reference, store
from scripts.opinfo import evaluation as opinfo
from scripts.opinfo.store import MACOS, PASSES

#: 2.8 is the first release whose wheel holds common_mps.py.
LINES = ("2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15")
INSTALLED = str(Version.parse(torch.__version__))
#: Kernels of other languages, skipped by what a machine has (dsl_ops_by_dsl of common_methods_invocations.py, 2.15).
BY_MACHINE = ("/triton_optimized", "/cutedsl")
#: A leaf, a composite, one with a variant, one that is refused, one with complex dtypes, a factory.
SAMPLE = (
    "add",
    "nn.functional.conv2d",
    "nn.functional.pad/reflect",
    "linalg.eig",
    "fft.rfft",
    "zeros_like",
    "nn.functional.grid_sample",
)


def evaluation(line: str) -> opinfo.Evaluation:
    result = opinfo.read(line)
    assert result is not None
    return result


def test_every_release_since_the_lists_ship_has_its_evaluation() -> None:
    assert sorted(opinfo.lines(), key=Version.parse) == list(LINES)
    assert opinfo.read("2.7") is None


@pytest.mark.parametrize("line", LINES)
def test_rows_name_what_exists(line: str, lists: OpLists) -> None:
    result = evaluation(line)
    assert result.torch == lists.release(line).torch
    assert len(result.opinfos) > 600
    known = lists.operators(line)
    assert not [op for op in result.overloads if op.startswith("aten::") and op not in known]
    for name in result.opinfos:
        for kind in opinfo.PASSES:
            states = result.dtypes(name, kind)
            assert set(result.failed(name, kind)) <= set(store.DTYPES)
            assert set(states.values()) <= {"pass", "xfail", "skip"}
            assert all(call in result.overloads for call in result.calls(name, kind))


def test_the_lists_of_a_release_as_they_were_counted() -> None:
    # Pinned to our own count, so that a change of the evaluation shows: OpInfos by the dtypes for which
    # the operator database says "mps", with those of test_mps.py only (no float64, no complex128), at
    # macOS 15.0.  A second evaluation counted two more passes among 5165 pairs; which is not known.
    result = evaluation("2.13")
    states = [state for name in result.opinfos for state in result.dtypes(name).values()]
    assert len(result.opinfos) == 702
    assert [states.count(state) for state in ("pass", "xfail", "skip")] == [4545, 525, 93]


def test_a_refused_operator_is_an_expected_failure_and_reached() -> None:
    result = evaluation("2.13")
    assert result.dtypes("linalg.eig")["float32"] == "xfail"
    assert result.calls("linalg.eig") == ("aten::linalg_eig",)


@pytest.mark.filterwarnings("ignore")  # PyTorch's own samples provoke PyTorch's own warnings
def test_the_installed_release_still_says_what_was_written() -> None:
    result = evaluation(INSTALLED)
    ops = {ci.key(op): op for op in record.op_db()}
    for macos in MACOS:
        now = ci.expectations(macos)
        for kind in PASSES:
            names = {name for name in result.opinfos if not name.endswith(BY_MACHINE)}
            written = {name: result.dtypes(name, kind, macos) for name in names}
            assert written == {name: now[name][kind] for name in names}
            assert {name for name in now if not name.endswith(BY_MACHINE)} == names
    watch = record.Watch()
    with record.mac(INSTALLED, watch):
        for name in SAMPLE:
            samples = record.samples_of(ops[name], torch.float32, result.samples)
            run = record.run(ops[name], samples, watch, gradient=False)
            reached = {op for call in run.calls for op in (call.inner or (call.op,))}
            # The written ones are of all dtypes together.
            assert reached
            assert reached <= set(result.calls(name))


def test_what_the_cpu_refuses_is_expected_to_fail_in_some_release() -> None:
    result = reference.TABLE.load()
    evaluations = [evaluation(line) for line in LINES]
    assert result.why("forward", "median", "bool") == reference.REASONS["raises"]
    assert result.why("forward", "resize_", "float32") == reference.REASONS["raises"]
    assert result.why("forward", "as_strided/partial_views", "int8") == reference.REASONS["copied"]
    assert result.why("forward", "bernoulli", "float32") == reference.REASONS["random"]
    assert not result.why("forward", "sort", "int8")
    for reason, kind in itertools.product(reference.REASONS, PASSES):
        for name, dtypes in getattr(result, reason)[kind].items():
            for dtype in dtypes:
                assert any(
                    item.dtypes(name, kind).get(dtype) == "xfail" for item in evaluations if name in item.opinfos
                )


def test_no_statement_rests_on_what_the_cpu_refuses(lists: OpLists) -> None:
    result = reference.TABLE.load()
    for statement in lists.statements.all:
        results = [item.detail or "" for item in statement.evidence if item.kind == "opinfo"]
        if not statement.id.startswith("ci-") or not results:
            continue
        names = results[0].rpartition("test_output_match: ")[2].partition(" (")[0].partition(";")[0]
        for dtype in statement.dtypes:
            assert not all(result.why("forward", name, dtype) for name in names.split(", "))


def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "opinfo").mkdir()
    path = tmp_path / "opinfo" / "2.13.json"
    path.write_text('{"schema": 1, "torch": 2}', encoding="utf-8")
    with pytest.raises(OpListError) as caught:
        opinfo.read("2.13", tmp_path)
    assert str(path) in str(caught.value)


def test_the_whole_evidence_is_small() -> None:
    sizes = [path.stat().st_size for path in (data_directory() / "opinfo").glob("*.json")]
    assert sum(sizes) < 700_000
