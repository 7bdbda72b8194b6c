"""The advisories: every row that was researched is answered for, and each says what can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opcheck.data.registrations import data_directory, load
from opcheck.data.statement_files import read_written
from opcheck.data.statement_model import Statement
from opcheck.data.strict_yaml import read
from opcheck.model.records import TensorSpec

LISTS = load()
LINES = [release.line for release in LISTS.releases]
WRITTEN, PROBLEMS = read_written(data_directory())
ADVISORIES = {entry.statement.id: entry.statement for entry in WRITTEN if entry.statement.sort == "advisory"}

#: Composites with code of their own for MPS, or that a user calls by this name.
COMPOSITES = {
    "aten::copy_",
    "aten::_to_copy",
    "aten::gru.input",
    "aten::gru.data",
    "aten::fft_fftfreq",
    "aten::fft_fftfreq.out",
    "aten::linalg_lstsq",  # since 2.14, by SVD
}


def coverage() -> dict[str, Any]:
    document = read(Path(__file__).with_name("coverage-advisories.yaml"), "coverage-advisories.yaml")
    assert not document.problems
    rows = document.value["rows"]
    assert isinstance(rows, dict)
    return rows


def reported() -> set[str]:
    """Return the statements that the list of public reports names."""
    document = read(data_directory() / "reports.yaml", "reports.yaml")
    assert not document.problems
    return {name for report in document.value["reports"] for name in report.get("statements", ())}


def test_the_files_hold_no_problem() -> None:
    assert [problem for problem in PROBLEMS if problem.file.startswith("advisories")] == []


def test_every_row_has_advisories_or_a_reason() -> None:
    rows = coverage()
    assert list(rows) == [f"S{number:03}" for number in range(1, 81)]
    for row, answer in rows.items():
        if isinstance(answer, dict):
            assert answer.keys() == {"left_out"}, row
            assert len(answer["left_out"]) > 20, row
        else:
            assert answer, row
            assert set(answer) <= ADVISORIES.keys(), row


def test_every_advisory_comes_from_a_row_a_kernel_that_was_run_or_pytorchs_source() -> None:
    listed = {name for answer in coverage().values() if isinstance(answer, list) for name in answer}
    ran = {
        name
        for name, statement in ADVISORIES.items()
        if any(entry.kind == "kernel-run" for entry in statement.evidence)
    }
    read = {
        name
        for name, statement in ADVISORIES.items()
        if any(entry.kind == "source" and entry.torch for entry in statement.evidence)
    }
    sourced = listed | ran | read | (reported() & ADVISORIES.keys())
    assert sourced == ADVISORIES.keys(), "name it in op_lists/reports.yaml, or give kernel-run or source evidence"
    assert not listed & ran


def spanned(statement: Statement) -> list[str]:
    return [line for line in LINES if statement.spans(line)]


@pytest.mark.parametrize("statement", ADVISORIES.values(), ids=ADVISORIES)
def test_each_operator_has_a_kernel_in_every_release_of_the_span(statement: Statement) -> None:
    assert spanned(statement)
    for op in statement.ops:
        for line in spanned(statement):
            status = LISTS.resolve(op, line).status
            assert status == ("composite" if op in COMPOSITES else "native"), (op, line)


@pytest.mark.parametrize("statement", ADVISORIES.values(), ids=ADVISORIES)
def test_each_says_what_goes_wrong_and_who_says_so(statement: Statement) -> None:
    assert statement.effect in {"wrong_result", "aborts"}
    assert statement.summary
    assert statement.way_out
    assert statement.evidence
    assert bool(statement.fixed) == bool(statement.fixed_basis)
    if statement.torch.until is None:
        assert not statement.fixed
    assert statement.condition or statement.when or statement.dtypes
    for link in statement.links:
        assert link.startswith("https://github.com/")


@pytest.mark.parametrize("statement", ADVISORIES.values(), ids=ADVISORIES)
def test_the_conditions_ask_for_arguments_that_the_operators_have(statement: Statement) -> None:
    torch = pytest.importorskip("torch")
    asked = set(statement.dtypes_of) | (statement.parsed.names if statement.parsed else set())
    for op in statement.ops:
        name, _, overload = op.partition(".")
        schema = torch._C._get_schema(name, overload)
        assert asked <= {argument.name for argument in schema.arguments} | {"result", "recomputed"}, op


def tensor(
    *shape: int, stride: tuple[int, ...] = (), dtype: str = "float32", offset: int = 0, device: str = "mps"
) -> TensorSpec:
    dense = []
    step = 1
    for size in reversed(shape):
        dense.append(step)
        step *= size
    return TensorSpec(
        tensor=1,
        storage=1,
        dtype=dtype,
        shape=shape,
        stride=stride or tuple(reversed(dense)),
        offset=offset,
        device=device,
    )


#: As ``x.transpose(1, 2)`` of a batch of two sequences of four positions, eight heads of 64 makes it.
HEADS = tensor(2, 8, 4, 64, stride=(2048, 64, 512, 1))
PLAIN = {"is_causal": False, "attn_mask": None, "scale": None}
FLAT, TURNED = tensor(4, 6), tensor(4, 6, stride=(1, 4))
LONG = 32767


@pytest.mark.parametrize(
    ("name", "values", "holds"),
    [
        ("addc-strided-output", {"result": TURNED}, True),
        ("addc-strided-output", {"result": FLAT}, False),
        ("addc-strided-output", {}, None),
        ("where-strided-condition", {"result": TURNED}, True),
        ("masked-fill-strided", {"self": FLAT, "mask": FLAT}, False),
        ("masked-fill-strided", {"self": FLAT, "mask": tensor(6)}, True),
        ("index-select-2-31", {"self": tensor(2**20, 2**11)}, False),
        ("index-select-2-31", {"self": tensor(2**20, 2**11 + 1)}, True),
        ("sort-many-short-rows", {"self": tensor(3, 2**22 + 1), "dim": 0}, True),
        ("sort-many-short-rows", {"self": tensor(3, 2**22), "dim": 0}, False),
        ("sort-many-short-rows", {"self": tensor(2**22 + 1, 3), "dim": 0}, False),
        ("linear-expanded-input", {"input": tensor(5, 9, 8, stride=(0, 8, 1))}, True),
        ("linear-expanded-input", {"input": tensor(1, 9, 8, stride=(0, 8, 1))}, False),
        ("linear-half-no-bias", {"input": tensor(2, 3, 4), "bias": None}, True),
        ("linear-half-no-bias", {"input": tensor(2, 3, 4), "bias": tensor(4)}, False),
        ("mm-reduction-32767", {"self": tensor(16, LONG), "mat2": tensor(LONG, 16)}, True),
        ("mm-reduction-32767", {"self": tensor(16, LONG - 1), "mat2": tensor(LONG - 1, 16)}, False),
        ("mm-reduction-32767", {"self": tensor(15, LONG), "mat2": tensor(LONG, 16)}, False),
        ("linear-backward-many-rows", {"self": tensor(8, 4096, 16), "weight": tensor(16, 16)}, True),
        ("linear-backward-many-rows", {"self": tensor(7, 4096, 16), "weight": tensor(16, 16)}, False),
        ("conv2d-strided-weight", {"weight": tensor(3, 8, 3, 3)}, False),
        ("conv2d-strided-weight", {"weight": tensor(3, 8, 3, 3, stride=(216, 27, 3, 1))}, True),
        (
            # channels_last
            "conv2d-strided-weight",
            {"weight": tensor(3, 8, 3, 3, stride=(72, 1, 24, 8))},
            False,
        ),
        ("conv2d-channel-slice", {"self": tensor(1, 1, 1, 2, stride=(4, 1, 4, 2))}, True),
        ("conv2d-channel-slice", {"self": tensor(2, 8, 4, 4, stride=(128, 1, 32, 8))}, False),
        ("conv2d-channel-slice", {"self": tensor(2, 1, 4, 4)}, False),
        ("layer-norm-backward-frozen-input", {"output_mask": (False, True, True)}, True),
        ("layer-norm-backward-frozen-input", {"output_mask": (True, True, True)}, False),
        ("lstm-dropout-in-eval", {"num_layers": 2, "dropout": 0.5, "train": False}, True),
        ("lstm-dropout-in-eval", {"num_layers": 1, "dropout": 0.5, "train": False}, False),
        ("sdpa-broadcast-mask", {"attn_mask": tensor(2, 1, 8, 8), "query": tensor(2, 4, 8, 64)}, True),
        ("sdpa-broadcast-mask", {"attn_mask": tensor(1, 1, 8, 8), "query": tensor(2, 4, 8, 64)}, False),
        ("sdpa-broadcast-mask", {"attn_mask": None, "query": tensor(2, 4, 8, 64)}, False),
        ("sdpa-permuted", {"query": HEADS, "key": HEADS, "value": HEADS, **PLAIN}, True),
        ("sdpa-permuted", dict.fromkeys(("query", "key", "value"), tensor(2, 8, 4, 64)) | PLAIN, False),
        (
            "sdpa-permuted",
            dict.fromkeys(("query", "key", "value"), tensor(2, 8, 9, 64, stride=(4608, 64, 512, 1))) | PLAIN,
            False,
        ),
        ("sdpa-strided", {"query": HEADS, "key": HEADS, "value": HEADS, **PLAIN}, True),
        ("sdpa-strided", {"query": HEADS, "key": HEADS, "value": HEADS, **PLAIN, "is_causal": True}, False),
        (
            "sdpa-grouped-query",
            {"query": tensor(1, 32, 1, 128), "key": tensor(1, 2, 1024, 128)}
            | {"value": tensor(1, 2, 1024, 128), **PLAIN},
            True,
        ),
        (
            "sdpa-grouped-query",
            {"query": tensor(1, 32, 1, 128), "key": tensor(1, 32, 1024, 128)}
            | {"value": tensor(1, 32, 1024, 128), **PLAIN},
            False,
        ),
        ("sdpa-scale-of-an-earlier-call", {"query": HEADS, "scale": 1.0}, True),
        ("sdpa-scale-of-an-earlier-call", {"query": HEADS, "scale": 0.125}, False),
        ("sdpa-scale-of-an-earlier-call", {"query": HEADS, "scale": None}, False),
        ("scatter-add-offset-view", {"result": tensor(3, offset=3)}, True),
        ("scatter-add-offset-view", {"result": tensor(3)}, False),
        ("bool-add-unaligned-view", {"self": tensor(3, dtype="bool", offset=3)}, True),
        ("bool-add-unaligned-view", {"self": tensor(3, dtype="bool", offset=4)}, False),
        ("bool-index-put-unaligned-view", {"self": tensor(3, dtype="bool", offset=1), "accumulate": True}, True),
        ("bool-index-put-unaligned-view", {"self": tensor(3, dtype="bool", offset=1), "accumulate": False}, False),
        ("bitwise-scalar-view", {"self": FLAT, "other": tensor(dtype="int16", offset=1)}, True),
        ("bitwise-scalar-view", {"self": FLAT, "other": tensor(dtype="int16", offset=2)}, False),
        ("fill-bool-view", {"self": tensor(15, dtype="bool", offset=1)}, True),
        ("fill-bool-view", {"self": tensor(16, dtype="bool")}, False),
        ("cat-offset-views", {"tensors": (tensor(2), tensor(2, offset=2))}, True),
        ("cat-offset-views", {"tensors": (tensor(2), tensor(2))}, False),
        ("repeat-interleave-sliced-repeats", {"repeats": tensor(2, offset=1)}, True),
        ("repeat-interleave-sliced-repeats", {"repeats": tensor(2)}, False),
        ("setitem-int64-into-int32", {"self": tensor(dtype="int32", offset=10), "src": tensor(dtype="int64")}, True),
        ("setitem-int64-into-int32", {"self": tensor(4, dtype="int32"), "src": tensor(4, dtype="int64")}, False),
        ("linear-backward-vocabulary", {"weight": tensor(50257, 130)}, True),
        ("linear-backward-vocabulary", {"weight": tensor(3072, 768)}, False),
        ("linear-bias-m1", {"input": tensor(80, 1, 2), "bias": tensor(192)}, True),
        ("linear-bias-m1", {"input": tensor(1, 128, 768), "bias": tensor(768)}, False),
        ("boolean-mask-varying-size", {"indices": (tensor(2**21, dtype="bool"),)}, True),
        ("boolean-mask-varying-size", {"indices": (tensor(2**21, dtype="int64"),)}, False),
        ("boolean-mask-2-24", {"indices": (tensor(2**24 + 1, dtype="bool"),)}, True),
        ("boolean-mask-2-24", {"indices": (tensor(2**24, dtype="bool"),)}, False),
        ("masked-select-2-24", {"mask": tensor(2**24 + 1, dtype="bool")}, True),
        ("masked-select-2-24", {"mask": tensor(2**24, dtype="bool")}, False),
        ("copy-non-blocking", {"self": FLAT, "src": tensor(4, 6, device="cpu"), "non_blocking": True}, True),
        ("copy-non-blocking", {"self": FLAT, "src": FLAT, "non_blocking": True}, False),
        ("to-copy-non-blocking", {"self": tensor(4, device="cpu"), "result": tensor(4), "non_blocking": True}, True),
        ("to-copy-non-blocking", {"self": FLAT, "result": FLAT, "non_blocking": True}, False),
        ("gru-training-nan", {"train": True}, True),
        ("gru-training-nan", {"train": False}, False),
        ("irfft-odd-length", {"last_dim_size": 7}, True),
        ("irfft-odd-length", {"last_dim_size": 8}, False),
        ("fused-adam-grad-scaler", {"grad_scale": None, "found_inf": tensor(1)}, True),
        ("fused-adam-grad-scaler", {"grad_scale": None, "found_inf": None}, False),
        ("bmm-2-32", {"self": FLAT, "mat2": TURNED, "result": tensor(2**20, 2**12)}, False),
        ("bmm-2-32", {"self": FLAT, "mat2": TURNED, "result": tensor(2**20, 2**13)}, True),
        ("bmm-2-32", {"self": FLAT, "mat2": FLAT, "result": tensor(2**20, 2**13)}, False),
    ],
)
def test_the_conditions_hold_where_the_reports_saw_the_fault(
    name: str, values: dict[str, Any], holds: bool | None
) -> None:
    condition = ADVISORIES[name].parsed
    assert condition is not None
    assert condition.evaluate(values) is holds
