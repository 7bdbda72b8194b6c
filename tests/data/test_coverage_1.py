"""The limitations of rows C001 to C175: every row is answered for, and each speaks when it should."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from opcheck.common.versions import Target, Version
from opcheck.data.registrations import data_directory, load
from opcheck.data.statement_files import read_written
from opcheck.data.statement_model import Statement
from opcheck.data.strict_yaml import read
from opcheck.model.records import OpCall, TensorSpec
from tests.made import holds

FILES = (
    "attention",
    "binary",
    "convolution",
    "distributions",
    "fft",
    "grid_sampler",
    "histogram",
    "indexing",
    "linear",
    "linear_algebra",
    "normalization",
    "optimizers",
    "padding",
    "pooling",
    "ranges",
    "reduce",
)
WRITTEN, PROBLEMS = read_written(data_directory())
MINE: dict[str, Statement] = {
    entry.statement.id: entry.statement
    for entry in WRITTEN
    if entry.place.file in {f"limitations/{name}.yaml" for name in FILES}
}
LISTS = load()


def coverage(key: str) -> dict[str, Any]:
    document = read(Path(__file__).with_name("coverage-1.yaml"), "coverage-1.yaml")
    assert not document.problems
    answers = document.value[key]
    assert isinstance(answers, dict)
    return answers


def tensor(
    argument: str, shape: tuple[int, ...], dtype: str = "float32", stride: tuple[int, ...] | None = None
) -> TensorSpec:
    """One tensor; contiguous where no strides are given."""
    if stride is None:
        stride = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return TensorSpec(tensor=0, storage=0, dtype=dtype, shape=shape, stride=stride, argument=argument)


def target(torch: str, macos: str) -> Target:
    return Target(torch=Version.parse(torch), macos=Version.parse(macos))


def test_the_files_hold_no_problem() -> None:
    mine = {f"limitations/{name}.yaml" for name in FILES}
    assert [problem for problem in PROBLEMS if problem.file in mine] == []
    assert {entry.place.file for entry in WRITTEN} >= mine


def test_every_row_has_statements_or_a_reason() -> None:
    rows = coverage("rows")
    assert list(rows) == [f"C{number:03}" for number in range(1, 176)]
    for row, answer in rows.items():
        if isinstance(answer, dict):
            assert list(answer) == ["left_out"], row
            assert len(answer["left_out"]) > 15, row
        else:
            assert answer, row
            assert set(answer) <= set(MINE), row


def test_every_statement_stands_for_a_row_or_says_why_it_is_there() -> None:
    rows = coverage("rows").values()
    named = {name for answer in rows if isinstance(answer, list) for name in answer}
    beside = coverage("beside")
    assert not named & set(beside)
    document = read(data_directory() / "reports.yaml", "reports.yaml")
    assert not document.problems
    reported = {name for report in document.value["reports"] for name in report.get("statements", ())}
    sourced = named | set(beside) | (reported & set(MINE))
    assert sourced == set(MINE), "name it in op_lists/reports.yaml, or give the reason under beside of coverage-1.yaml"
    assert all(len(reason) > 15 for reason in beside.values())


@pytest.mark.parametrize("name", sorted(MINE))
def test_each_operator_reaches_a_kernel_in_each_release(name: str) -> None:
    statement = MINE[name]
    spanned = [release.line for release in LISTS.releases if statement.spans(release.line)]
    assert spanned
    for line in spanned:
        for op in statement.ops:
            assert LISTS.resolve(op, line).status in {"native", "composite"}, (op, line)


@pytest.mark.parametrize("name", sorted(MINE))
def test_the_conditions_ask_for_arguments_that_the_operators_have(name: str) -> None:
    torch = pytest.importorskip("torch")
    statement = MINE[name]
    asked = set(statement.dtypes_of) | (statement.parsed.names if statement.parsed else set())
    for op in statement.ops:
        base, _, overload = op.partition(".")
        try:
            schema = torch._C._get_schema(base, overload)
        except RuntimeError:
            # An overload that the installed torch no longer has.
            assert LISTS.resolve(op, LISTS.releases[-1].line).status == "unknown", op
            continue
        assert asked <= {argument.name for argument in schema.arguments} | {"result"}, op


HALF, LONG, COMPLEX = "float16", "int64", "complex64"
IMAGE = tensor("self", (2, 3, 7, 7))
SIGNAL = tensor("self", (1, 2, 1, 70000))
LONG_OUTPUT = tensor("", (1, 2, 1, 65537))
KERNEL = tensor("weight", (2, 2, 1, 3))
VOLUME, CUBE = tensor("self", (1, 2, 4, 4, 4)), tensor("weight", (2, 2, 3, 3, 3))
SPECTRUM = tensor("self", (2, 1, 1, 1, 2, 2), COMPLEX)

# fmt: off
CASES: list[tuple[str, str, str, tuple[TensorSpec, ...], dict[str, Any], bool | None]] = [
    # the statement, torch, macOS, the inputs, the other arguments, whether it holds: None where
    # words decide that code cannot evaluate
    ("adaptive-avg-pool-input-multiple", "2.15", "26.0", (IMAGE,), {"output_size": (2, 2)}, True),
    ("adaptive-avg-pool-input-multiple", "2.15", "26.0", (IMAGE,), {"output_size": (1, 1)}, False),
    ("adaptive-avg-pool-input-multiple", "2.15", "26.0", (IMAGE,), {"output_size": (7, 7)}, False),
    ("adaptive-avg-pool-input-multiple", "2.15", "26.0", (IMAGE,), {"output_size": (14, 14)}, False),
    ("adaptive-avg-pool-input-multiple", "2.15", "26.0", (IMAGE,), {"output_size": (7, 14)}, True),
    ("adaptive-avg-pool-input-multiple", "2.15", "26.0", (IMAGE,), {}, None),
    ("adaptive-avg-pool-input-multiple", "2.3", "14.0", (IMAGE,), {"output_size": (2, 2)}, False),
    ("adaptive-avg-pool-input-multiple-2-0", "2.3", "14.0", (IMAGE,), {"output_size": (2, 2)}, True),
    ("adaptive-avg-pool-output-multiple", "2.15", "26.0", (IMAGE,), {"output_size": (10, 14)}, True),
    ("adaptive-avg-pool-output-multiple", "2.15", "26.0", (IMAGE,), {"output_size": (14, 7)}, False),
    ("adaptive-avg-pool-mixed", "2.15", "26.0", (IMAGE,), {"output_size": (1, 14)}, True),
    ("adaptive-avg-pool-mixed", "2.15", "26.0", (IMAGE,), {"output_size": (7, 14)}, False),
    ("adaptive-avg-pool-input-multiple-backward", "2.13", "26.0",
     (tensor("grad_output", (2, 3, 2, 2)), IMAGE), {}, True),
    ("adaptive-avg-pool-input-multiple-backward", "2.13", "26.0",
     (tensor("grad_output", (2, 3, 7, 1)), IMAGE), {}, False),
    ("adaptive-max-pool-mixed", "2.13", "26.0", (IMAGE,), {"output_size": (1, 14)}, True),
    ("adaptive-max-pool-mixed", "2.14", "26.0", (IMAGE,), {"output_size": (1, 14)}, False),
    ("adaptive-max-pool-windows", "2.13", "26.0", (IMAGE,), {"output_size": (2, 2)}, True),
    ("adaptive-max-pool-windows", "2.13", "26.0", (IMAGE,), {"output_size": (7, 1)}, False),
    ("adaptive-max-pool-windows", "2.13", "26.0", (IMAGE,), {"output_size": (14, 14)}, True),
    ("avg-pool2d-int64-divisor", "2.15", "26.0",
     (tensor("self", (1, 1, 4, 4), LONG),), {"divisor_override": 3}, True),
    ("avg-pool2d-int64-divisor", "2.15", "26.0",
     (tensor("self", (1, 1, 4, 4), LONG),), {"divisor_override": None}, False),
    ("avg-pool2d-int64-divisor", "2.15", "26.0", (IMAGE,), {"divisor_override": 3}, False),
    ("pool2d-int64-macos-12", "2.4", "12.6", (tensor("self", (1, 1, 4, 4), LONG),), {}, True),
    ("pool2d-int64-macos-12", "2.4", "13.0", (tensor("self", (1, 1, 4, 4), LONG),), {}, False),
    ("pool2d-int64-macos-12", "2.4", "12.6",
     (IMAGE, tensor("indices", (2, 3, 3, 3), LONG)), {}, False),
    ("sdpa-dropout", "2.13", "26.0", (tensor("query", (1, 2, 4, 64)),), {"dropout_p": 0.1}, True),
    ("sdpa-dropout", "2.13", "26.0", (tensor("query", (1, 2, 4, 64)),), {"dropout_p": 0.0}, False),
    ("sdpa-dropout-without-grad", "2.13", "26.0", (tensor("query", (1, 2, 4, 64)),),
     {"dropout_p": 0.1}, None),
    ("pow-int64-macos-13-2", "2.8", "13.1",
     (tensor("self", (2,)), tensor("exponent", (2,), LONG)), {}, False),
    ("pow-int64-macos-13-2", "2.8", "13.1",
     (tensor("self", (2,), "int32"), tensor("exponent", (2,), LONG)), {}, True),
    ("pow-int64-macos-13-2", "2.8", "13.2",
     (tensor("self", (2,), LONG), tensor("exponent", (2,), LONG)), {}, False),
    ("div-trunc-float16", "2.7", "15.0",
     (tensor("self", (2,), HALF), tensor("other", (2,), HALF)), {"rounding_mode": "trunc"}, True),
    ("div-trunc-float16", "2.7", "15.0",
     (tensor("self", (2,), HALF), tensor("other", (2,), HALF)), {"rounding_mode": "floor"}, False),
    ("conv3d-macos-13-2", "2.8", "13.1", (VOLUME, CUBE), {}, True),
    ("conv3d-macos-13-2", "2.8", "13.1", (SIGNAL, KERNEL), {}, False),
    ("conv-transpose3d-half", "2.15", "26.0",
     (tensor("self", (1, 2, 4, 4, 4), HALF), tensor("weight", (2, 2, 3, 3, 3), HALF)), {}, True),
    ("conv-transpose3d-half", "2.15", "26.0", (VOLUME, CUBE), {}, False),
    ("conv-integers", "2.15", "26.0", (tensor("self", (1, 1, 4, 4), LONG),), {}, True),
    ("conv-integers", "2.15", "26.0", (tensor("self", (1, 1, 4, 4), HALF),), {}, False),
    ("grid-sampler-2d-border", "2.10", "15.0",
     (tensor("input", (1, 1, 4, 4)), tensor("grid", (1, 2, 2, 2))), {"padding_mode": 1}, True),
    ("grid-sampler-2d-border", "2.10", "15.0",
     (tensor("input", (1, 1, 4, 4)), tensor("grid", (1, 2, 2, 2))), {"padding_mode": 2}, False),
    ("grid-sampler-2d-border", "2.8", "13.1",
     (tensor("input", (1, 1, 4, 4)), tensor("grid", (1, 2, 2, 2))), {"padding_mode": 1}, False),
    ("grid-sampler-3d-nearest", "2.12", "26.0", (), {"interpolation_mode": 1}, True),
    ("grid-sampler-3d-nearest", "2.13", "26.0", (), {"interpolation_mode": 1}, False),
    ("fft-dimensions", "2.14", "26.0", (SPECTRUM,), {"dim": (0, 1, 2, 3, 4)}, True),
    ("fft-dimensions", "2.14", "26.0", (SPECTRUM,), {"dim": (1, 2)}, False),
    ("fft-far-dimension", "2.13", "26.0", (SPECTRUM,), {"dim": (1, 2)}, True),
    ("fft-far-dimension", "2.13", "26.0", (SPECTRUM,), {"dim": (4, 5)}, False),
    ("fft-far-dimension", "2.13", "26.0", (SPECTRUM,), {"dim": (-5,)}, True),
    ("fft-macos-14", "2.8", "13.7", (SPECTRUM,), {}, True),
    ("fft-macos-14", "2.8", "14.0", (SPECTRUM,), {}, False),
    ("index-put-accumulate-dtype", "2.2", "14.0",
     (tensor("self", (4,), HALF),), {"accumulate": True}, True),
    ("index-put-accumulate-dtype", "2.2", "14.0",
     (tensor("self", (4,), HALF),), {"accumulate": False}, False),
    ("index-put-accumulate-dtype-2-8", "2.8", "15.0",
     (tensor("self", (4,), HALF),), {"accumulate": True}, False),
    ("index-put-accumulate-dtype-2-8", "2.8", "15.0",
     (tensor("self", (4,), LONG),), {"accumulate": True}, True),
    ("nonzero-2-24-macos-14", "2.11", "14.5", (tensor("self", (2**24,)),), {}, True),
    ("nonzero-2-24-macos-14", "2.11", "14.5", (tensor("self", (2**24 - 1,)),), {}, False),
    ("nonzero-2-24-macos-14", "2.11", "15.0", (tensor("self", (2**24,)),), {}, False),
    ("nonzero-int-max", "2.11", "15.0", (tensor("self", (2**31 - 1,), "bool"),), {}, True),
    ("nonzero-int-max", "2.11", "15.0", (tensor("self", (2**31 - 2,), "bool"),), {}, False),
    ("index-add-int64", "2.8", "15.0",
     (tensor("self", (4,), LONG), tensor("index", (2,), LONG), tensor("source", (2,), LONG)), {},
     True),
    ("index-add-int64", "2.8", "15.0",
     (tensor("self", (4,)), tensor("index", (2,), LONG), tensor("source", (2,))), {}, False),
    ("masked-fill-2-32", "2.15", "26.0", (tensor("self", (2**32,), "bool"),), {}, True),
    ("masked-fill-2-32", "2.15", "26.0", (tensor("self", (2**32 - 1,), "bool"),), {}, False),
    ("allocation-rank-16-2-1", "2.7", "15.0", (), {"size": (1,) * 17}, True),
    ("allocation-rank-16-2-1", "2.7", "15.0", (), {"size": (1,) * 16}, False),
    ("linear-integers-weight", "2.15", "26.0",
     (tensor("input", (2, 4), "bfloat16"), tensor("weight", (3, 4), "float8_e4m3fn")), {}, True),
    ("linear-integers-weight", "2.15", "26.0",
     (tensor("input", (2, 4), LONG), tensor("weight", (3, 4))), {}, False),
    ("mm-integers", "2.6", "15.0", (tensor("self", (2, 2), LONG),), {}, True),
    ("mm-integers", "2.7", "15.0", (tensor("self", (2, 2), LONG),), {}, False),
    ("bmm-2-32-macos-14", "2.14", "14.5",
     (tensor("self", (272, 4096, 40)), tensor("mat2", (272, 40, 4096))), {}, True),
    ("bmm-2-32-macos-14", "2.14", "14.5",
     (tensor("self", (256, 4096, 40)), tensor("mat2", (256, 40, 4096))), {}, False),
    ("bmm-2-32-macos-14", "2.14", "15.0",
     (tensor("self", (272, 4096, 40)), tensor("mat2", (272, 40, 4096))), {}, False),
    ("svd-large-falls-back", "2.14", "26.0", (tensor("A", (294912 // 4, 1)),), {}, True),
    ("svd-large-falls-back", "2.14", "26.0", (tensor("A", (64, 128)),), {}, False),
    ("svd-large-falls-back", "2.14", "26.0", (tensor("A", (64, 128), COMPLEX),), {}, True),
    ("eigh-large-falls-back", "2.15", "26.0", (tensor("A", (64, 64)),), {}, False),
    ("eigh-large-falls-back", "2.15", "26.0", (tensor("A", (65, 65)),), {}, True),
    ("eigh-small-falls-back", "2.15", "26.0", (tensor("A", (3, 64, 64)),), {}, False),
    ("eigh-small-falls-back", "2.15", "26.0", (tensor("A", (2, 64, 64)),), {}, True),
    ("qr-large-falls-back", "2.13", "26.0", (tensor("A", (600, 513)),), {"mode": "reduced"}, True),
    ("qr-large-falls-back", "2.13", "26.0", (tensor("A", (600, 512)),), {"mode": "reduced"}, False),
    ("qr-complex", "2.13", "26.0", (tensor("A", (2, 2), COMPLEX),), {}, True),
    ("qr-complex", "2.13", "26.0", (tensor("A", (2, 2)),), {}, False),
    ("fused-sgd-grad-scaler", "2.7", "15.0", (), {"grad_scale": None, "found_inf": None}, False),
    ("fused-sgd-grad-scaler", "2.7", "15.0", (tensor("grad_scale", ()),), {}, True),
    ("histogram-strided-weight", "2.11", "15.0",
     (tensor("weight", (8,), stride=(2,)),), {}, True),
    ("histogram-strided-weight", "2.11", "15.0", (tensor("weight", (8,)),), {}, False),
    ("histogram-strided-weight", "2.11", "15.0", (), {"weight": None}, False),
    ("constant-pad-four-dimensions", "2.14", "26.0", (IMAGE,), {"pad": (0, 1) * 4}, True),
    ("constant-pad-four-dimensions", "2.14", "26.0", (IMAGE,), {"pad": (0, 1) * 3}, False),
    ("int64-downcast", "2.8", "13.2", (tensor("self", (4,), LONG),), {}, True),
    ("int64-downcast", "2.8", "13.3", (tensor("self", (4,), LONG),), {}, False),
    ("int64-downcast", "2.8", "13.2", (tensor("self", (4,)),), {}, False),
    ("argmax-2-31", "2.14", "26.0", (tensor("self", (2**31 - 1,), "uint8"),), {}, True),
    ("argmax-2-31", "2.14", "26.0", (tensor("self", (2**31 - 2,), "uint8"),), {}, False),
    ("median-int64", "2.0", "13.0", (tensor("self", (4,), LONG),), {}, True),
    ("median-int64", "2.0", "12.6", (tensor("self", (4,), LONG),), {}, False),
    ("logspace-integers", "2.15", "26.0", (), {}, None),
]
# fmt: on


@pytest.mark.parametrize(("name", "torch", "macos", "inputs", "arguments", "expected"), CASES)
def test_a_statement_speaks_when_it_should(
    name: str, torch: str, macos: str, inputs: tuple[TensorSpec, ...], arguments: dict[str, Any], expected: bool | None
) -> None:
    statement = MINE[name]
    call = OpCall(op=statement.ops[0], inputs=inputs, arguments=arguments)
    assert holds(statement, call, target(torch, macos)) is expected


@pytest.mark.parametrize(
    ("name", "torch", "macos", "result", "expected"),
    [
        ("conv-output-size", "2.13", "15.0", LONG_OUTPUT, True),
        ("conv-output-size", "2.13", "15.1", LONG_OUTPUT, False),
        ("conv-output-size", "2.13", "15.0", tensor("", (1, 2, 1, 65536)), False),
        ("conv-output-size-2-5", "2.5", "15.2", LONG_OUTPUT, True),
        ("conv-output-size", "2.5", "15.0", LONG_OUTPUT, False),
        ("conv-output-size-2-14", "2.15", "15.0", LONG_OUTPUT, True),
    ],
)
def test_a_long_output_of_a_convolution_is_refused(
    name: str, torch: str, macos: str, result: TensorSpec, expected: bool
) -> None:
    statement = MINE[name]
    call = OpCall(op=statement.ops[0], inputs=(SIGNAL, KERNEL), outputs=(result,))
    assert holds(statement, call, target(torch, macos)) is expected


def test_from_2_14_on_a_volume_may_be_long() -> None:
    call = OpCall(
        op="aten::_mps_convolution",
        inputs=(tensor("self", (1, 1, 65540, 3, 3)), CUBE),
        outputs=(tensor("", (1, 2, 65538, 1, 1)),),
    )
    assert holds(MINE["conv-output-size"], call, target("2.13", "15.0")) is True
    assert holds(MINE["conv-output-size-2-14"], call, target("2.14", "15.0")) is False
