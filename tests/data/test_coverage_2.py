"""The limitations of rows C176 to C349: every row is answered for, and each speaks when it should."""

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
    "embedding_and_matrix_functions",
    "gather_scatter",
    "matrix_products",
    "random_fills",
    "recurrent",
    "reductions_and_scans",
    "resampling",
    "softmax_and_dropout",
    "sorting",
    "unary_graph",
    "views_and_scalars",
)
WRITTEN, PROBLEMS = read_written(data_directory())
MINE: dict[str, Statement] = {
    entry.statement.id: entry.statement
    for entry in WRITTEN
    if entry.place.file in {f"limitations/{name}.yaml" for name in FILES}
}
LISTS = load()


def coverage(part: str = "rows") -> dict[str, Any]:
    document = read(Path(__file__).with_name("coverage-2.yaml"), "coverage-2.yaml")
    assert not document.problems
    rows = document.value[part]
    assert isinstance(rows, dict)
    return rows


def tensor(argument: str, shape: tuple[int, ...], dtype: str, stride: tuple[int, ...] | None = None) -> TensorSpec:
    """One input; contiguous where no strides are given."""
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
    rows = coverage()
    assert list(rows) == [f"C{number}" for number in range(176, 350)]
    for row, answer in rows.items():
        if isinstance(answer, dict):
            assert list(answer) == ["left_out"], row
            assert len(answer["left_out"]) > 15, row
        else:
            assert answer, row
            assert set(answer) <= set(MINE), row


def test_every_statement_stands_for_a_row_or_says_why_it_is_there() -> None:
    named = [name for answer in coverage().values() if isinstance(answer, list) for name in answer]
    beside = coverage("beside")
    assert not set(named) & set(beside)
    document = read(data_directory() / "reports.yaml", "reports.yaml")
    assert not document.problems
    reported = {name for report in document.value["reports"] for name in report.get("statements", ())}
    sourced = set(named) | set(beside) | (reported & set(MINE))
    assert sourced == set(MINE), "name it in op_lists/reports.yaml, or give the reason under beside of coverage-2.yaml"
    assert all(len(reason) > 15 for reason in beside.values())


@pytest.mark.parametrize("name", sorted(MINE))
def test_each_operator_has_a_kernel_in_each_release(name: str) -> None:
    statement = MINE[name]
    for release in LISTS.releases:
        if not statement.spans(release.line):
            continue
        for op in statement.ops:
            assert LISTS.registration(op, release.line) == "kernel", (op, release.line)


FLOAT = "float32"
LONG = "int64"

COMPLEX_MATRICES = tuple(tensor(name, (4, 4), "complex64") for name in ("self", "mat1", "mat2"))

# fmt: off
CASES: list[tuple[str, str, str, tuple[TensorSpec, ...], dict[str, Any], bool | None]] = [
    # the statement, torch, macOS, the inputs, the other arguments, whether it holds: None where
    # words decide that code cannot evaluate
    ("topk-16", "1.13", "13.0", (tensor("self", (50,), FLOAT),), {"k": 17}, True),
    ("topk-16", "1.13", "13.0", (tensor("self", (50,), FLOAT),), {"k": 16}, False),
    ("topk-16", "2.0", "13.0", (tensor("self", (50,), FLOAT),), {"k": 17}, False),
    ("topk-far-dimension", "2.12", "15.0",
     (tensor("self", (2,) * 5, FLOAT),),
     {"k": 1, "dim": 0}, True),
    ("topk-far-dimension", "2.12", "15.0",
     (tensor("self", (2,) * 5, FLOAT),),
     {"k": 1, "dim": 1}, False),
    ("topk-far-dimension", "2.12", "15.0",
     (tensor("self", (2,) * 5, FLOAT),),
     {"k": 1, "dim": -5}, True),
    ("topk-far-dimension", "2.12", "15.0",
     (tensor("self", (2,) * 5, FLOAT),),
     {"k": 1, "dim": -4}, False),
    ("scan-int64-macos-13-3", "2.4", "13.1",
     (tensor("self", (4,), LONG),),
     {"dim": 0, "dtype": None}, True),
    ("scan-int64-macos-13-3", "2.4", "13.1",
     (tensor("self", (4,), LONG),),
     {"dim": 0, "dtype": FLOAT}, False),
    ("scan-int64-macos-13-3", "2.4", "13.1",
     (tensor("self", (4,), "bool"),),
     {"dim": 0, "dtype": LONG}, True),
    ("scan-int64-macos-13-3", "2.4", "13.3",
     (tensor("self", (4,), LONG),),
     {"dim": 0, "dtype": None}, False),
    ("scan-macos-12", "2.4", "12.6", (tensor("self", (4,), FLOAT),), {"dim": 0}, True),
    ("gather-sparse-grad", "2.12", "15.0",
     (tensor("self", (4,), FLOAT), tensor("index", (4,), LONG)),
     {"dim": 0, "sparse_grad": True}, True),
    ("gather-sparse-grad", "2.12", "15.0",
     (tensor("self", (4,), FLOAT), tensor("index", (4,), LONG)),
     {"dim": 0, "sparse_grad": False}, False),
    ("lstm-projection", "2.13", "15.0",
     (tensor("hx", (1, 2, 3), FLOAT), tensor("hx", (1, 2, 8), FLOAT)),
     {}, True),
    ("lstm-projection", "2.13", "15.0",
     (tensor("hx", (1, 2, 8), FLOAT), tensor("hx", (1, 2, 8), FLOAT)),
     {}, False),
    ("embedding-gradient-int32", "2.13", "15.0",
     (tensor("grad_output", (2, 9, 8192), FLOAT), tensor("indices", (2, 9), LONG)),
     {"num_weights": 262144}, True),
    ("embedding-gradient-int32", "2.13", "15.0",
     (tensor("grad_output", (2, 9, 8192), FLOAT), tensor("indices", (2, 9), LONG)),
     {"num_weights": 262143}, False),
    ("isin-integers-macos-14", "2.4", "13.6",
     (tensor("elements", (3,), LONG), tensor("test_elements", (2,), LONG)),
     {}, True),
    ("isin-integers-macos-14", "2.4", "13.6",
     (tensor("elements", (3,), LONG), tensor("test_elements", (2,), FLOAT)),
     {}, False),
    ("normal-broadcast", "2.12", "15.0",
     (tensor("mean", (3, 1), FLOAT), tensor("std", (4,), FLOAT)),
     {}, True),
    ("bernoulli-broadcast", "2.13", "15.0",
     (tensor("self", (3, 4), FLOAT), tensor("p", (4,), FLOAT)),
     {}, True),
    ("bernoulli-broadcast", "2.13", "15.0",
     (tensor("self", (3, 4), FLOAT), tensor("p", (), FLOAT)),
     {}, False),
    ("upsample-bicubic-aa-uint8", "2.13", "15.0",
     (tensor("self", (1, 3, 4, 4), "uint8"),),
     {}, True),
    ("unfold-backward-rank", "2.13", "15.0", (tensor("grad_in", (1,) * 16, FLOAT),), {}, True),
    ("unfold-backward-rank", "2.13", "15.0", (tensor("grad_in", (1,) * 15, FLOAT),), {}, False),
    ("scatter-reduce-extremes-int64", "2.12", "26.0",
     (tensor("self", (3,), LONG), tensor("index", (3,), LONG), tensor("src", (3,), LONG)),
     {"reduce": "amax"}, True),
    ("scatter-reduce-extremes-int64", "2.12", "26.0",
     (tensor("self", (3,), FLOAT), tensor("index", (3,), LONG), tensor("src", (3,), FLOAT)),
     {"reduce": "amax"}, False),
    ("scatter-reduce-extremes-int64", "2.12", "26.0",
     (tensor("self", (3,), LONG), tensor("index", (3,), LONG), tensor("src", (3,), LONG)),
     {"reduce": "sum"}, False),
    ("scatter-reduce-extremes-int64-strided", "2.15", "26.0",
     (tensor("self", (2, 3), LONG, (1, 2)), tensor("index", (2, 3), LONG),
      tensor("src", (2, 3), LONG)),
     {"reduce": "amin"}, True),
    ("scatter-reduce-extremes-int64-strided", "2.15", "26.0",
     (tensor("self", (2, 3), LONG), tensor("index", (2, 3), LONG), tensor("src", (2, 3), LONG)),
     {"reduce": "amin"}, False),
    ("reduction-64-bit-indexing", "2.14", "26.0",
     (tensor("self", (65536, 32768), FLOAT),), {}, None),
    ("reduction-64-bit-indexing", "2.14", "26.0",
     (tensor("self", (65536, 32767), FLOAT),), {}, False),
    ("random-full-range", "2.12", "26.0", (tensor("self", (3,), LONG),), {"from": 0, "to": 9}, False),
    ("random-full-range", "2.12", "26.0",
     (tensor("self", (3,), LONG),), {"from": 0, "to": None}, None),
    ("allocation-rank-16", "2.13", "15.0", (), {"size": (1,) * 17}, True),
    ("allocation-rank-16", "2.13", "15.0", (), {"size": (1,) * 16}, False),
    ("softmax-half-to-float", "2.13", "15.0",
     (tensor("self", (4,), "float16"),),
     {"half_to_float": True}, True),
    ("mm-float16-padded-slice", "2.13", "15.0",
     (tensor("self", (8, 64), "float16", (96, 1)), tensor("mat2", (64, 64), "float16", (1, 64))),
     {}, None),
    ("mm-float16-padded-slice", "2.13", "15.0",
     (tensor("self", (8, 64), "float16"), tensor("mat2", (64, 64), "float16", (1, 64))),
     {}, False),
    ("addmm-complex-scalars", "2.14", "15.0", COMPLEX_MATRICES, {"alpha": "(2+1j)"}, True),
    ("addmm-complex-scalars", "2.14", "15.0", COMPLEX_MATRICES, {"beta": "1j"}, True),
    ("addmm-complex-scalars", "2.14", "15.0", COMPLEX_MATRICES, {"alpha": 2.0, "beta": -1}, False),
    ("addmm-complex-scalars", "2.15", "15.0", COMPLEX_MATRICES, {"alpha": "(2+1j)"}, False),
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
    ("recipe_a", "recipe_b", "expected"),
    [((0,), (0,), False), ((1,), (1,), False), ((1,), (0,), True), ((2, 3), (2, 3), True)],
)
def test_a_scaled_product_takes_two_recipes(
    recipe_a: tuple[int, ...], recipe_b: tuple[int, ...], expected: bool
) -> None:
    statement = MINE["scaled-mm-recipe"]
    call = OpCall(op=statement.ops[0], arguments={"recipe_a": recipe_a, "recipe_b": recipe_b})
    assert holds(statement, call, target("2.15", "26.0")) is expected
