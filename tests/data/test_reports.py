"""Public reports: the file that lists them, and the statements that the newest of them led to."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opcheck.common.versions import Target, Version
from opcheck.data.lint import lint_reports
from opcheck.data.registrations import load
from opcheck.judge.judge import judge
from opcheck.model.records import OpCall, TensorSpec

_LISTS = load()


def tensor(argument: str, *shape: int, dtype: str = "float32") -> TensorSpec:
    stride = tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))
    return TensorSpec(tensor=1, storage=1, dtype=dtype, shape=shape, stride=stride, argument=argument)


def statements(torch: str, op: str, *inputs: TensorSpec, **arguments: Any) -> set[str]:
    call = OpCall(op=op, inputs=inputs, outputs=inputs[:1], arguments=arguments, inner=())
    target = Target(torch=Version.parse(torch), macos=Version.parse("15.0"))
    verdict = judge(call, target, _LISTS)
    return {*verdict.limitations, *verdict.advisories}


@pytest.mark.parametrize(
    ("name", "torch", "op", "inputs", "arguments", "holds"),
    [
        ("scan-far-dimension-abort", "2.12", "cumsum", [(1, 2, 3, 4, 5)], {"dim": 0}, True),
        ("scan-far-dimension-abort", "2.12", "cumsum", [(1, 2, 3, 4, 5)], {"dim": 1}, False),
        ("scan-far-dimension-abort", "2.13", "cumsum", [(1, 2, 3, 4, 5)], {"dim": 0}, False),
        ("topk-far-dimension-abort", "2.7", "topk", [(1, 2, 3, 4, 5)], {"k": 1, "dim": 0}, True),
        ("topk-far-dimension-abort", "2.7", "topk", [(1, 2, 3, 4, 5)], {"k": 1, "dim": -1}, False),
        ("sort-far-dimension-abort", "2.12", "sort.stable", [(1, 2, 3, 4, 5)], {"dim": -5}, True),
        ("sort-far-dimension-abort", "2.12", "sort.stable", [(1, 2, 3, 4, 5)], {"dim": 4}, False),
        ("all-any-rank-5-abort", "2.4", "any", [(1, 2, 3, 4, 5)], {}, True),
        ("all-any-rank-5-abort", "2.4", "any", [(2, 3, 4, 5)], {}, False),
        ("all-any-far-dimension-abort", "2.4", "all.dim", [(1, 2, 3, 4, 5)], {"dim": 0}, True),
        ("all-any-far-dimension-abort", "2.4", "all.dim", [(1, 2, 3, 4, 5)], {"dim": 1}, False),
        ("sort-empty", "2.2", "sort.stable", [(0,)], {"dim": -1}, True),
        ("sort-empty", "2.2", "sort.stable", [(1,)], {"dim": -1}, False),
        ("relu-empty", "2.2", "relu", [(0, 4)], {}, True),
        ("relu-empty", "2.3", "relu", [(0, 4)], {}, False),
        ("leaky-relu-empty", "2.3", "leaky_relu", [(0, 4)], {}, True),
        ("leaky-relu-empty", "2.3", "leaky_relu", [(1, 4)], {}, False),
        ("threshold-empty", "2.11", "threshold", [(0,)], {"threshold": 0, "value": 0}, True),
        ("threshold-empty", "2.11", "threshold", [(1,)], {"threshold": 0, "value": 0}, False),
        ("threshold-empty", "2.13", "threshold", [(0,)], {"threshold": 0, "value": 0}, True),
        ("threshold-empty", "2.14", "threshold", [(0,)], {"threshold": 0, "value": 0}, False),
        ("bitwise-not-floats", "2.5", "bitwise_not", [(4,)], {}, True),
        ("bitwise-not-floats", "2.5", "bitwise_not", [()], {}, False),
        ("bitwise-not-floats-2-6", "2.7", "bitwise_not", [(4,)], {}, True),
        ("bitwise-not-floats-2-6", "2.7", "bitwise_not", [(0,)], {}, False),
        ("dot-empty", "2.9", "dot", [(0,)], {}, True),
        ("dot-empty", "2.9", "dot", [(1,)], {}, False),
        ("dot-empty", "2.10", "dot", [(0,)], {}, False),
        ("fft-empty", "2.14", "_fft_c2c", [(0, 4)], {}, True),
        ("fft-empty", "2.15", "_fft_c2c", [(0, 4)], {}, False),
        ("constant-pad-no-sizes", "2.8", "constant_pad_nd", [(2, 3)], {"pad": []}, True),
        ("constant-pad-no-sizes", "2.8", "constant_pad_nd", [(2, 3)], {"pad": [0, 0]}, False),
        ("constant-pad-beyond-input-1-13", "1.13", "constant_pad_nd", [(1, 1)], {"pad": [7, 0]}, True),
        ("constant-pad-beyond-input-1-13", "1.13", "constant_pad_nd", [(1, 8)], {"pad": [7, 0]}, False),
        ("constant-pad-whole-rank-1-13", "1.13", "constant_pad_nd", [(3, 4, 5)], {"pad": [0, 0, 0, 1, 0, 0]}, True),
        ("constant-pad-whole-rank-1-13", "1.13", "constant_pad_nd", [(3, 4, 5)], {"pad": [0, 0, 0, 1]}, False),
        (
            "replication-pad3d-beyond-input",
            "2.0",
            "replication_pad3d",
            [(1, 1, 3, 8, 8)],
            {"padding": [0, 0, 0, 0, 3, 0]},
            True,
        ),
        (
            "replication-pad3d-beyond-input",
            "2.0",
            "replication_pad3d",
            [(1, 1, 3, 8, 8)],
            {"padding": [0, 0, 0, 0, 2, 0]},
            False,
        ),
        ("sum-negative-dimension-rank-5", "2.4", "sum.dim_IntList", [(1, 2, 1, 1, 1)], {"dim": [-3]}, True),
        ("sum-negative-dimension-rank-5", "2.4", "sum.dim_IntList", [(1, 2, 1, 1, 1)], {"dim": [2]}, False),
    ],
)
def test_a_statement_holds_for_the_reported_call_and_not_for_the_nearest_other(
    *, name: str, torch: str, op: str, inputs: list[tuple[int, ...]], arguments: dict[str, Any], holds: bool
) -> None:
    tensors = [tensor("self", *shape) for shape in inputs]
    assert (name in statements(torch, f"aten::{op}", *tensors, **arguments)) == holds


@pytest.mark.parametrize(("shape", "holds"), [((8, 32, 48), True), ((8, 48, 32), False)])
def test_lstsq_is_wrong_for_more_unknowns_than_equations(shape: tuple[int, ...], *, holds: bool) -> None:
    inputs = (tensor("self", *shape, dtype="complex64"), tensor("b", 8, shape[1], 3))
    result = statements("2.14", "aten::linalg_lstsq.out", *inputs)
    assert ("lstsq-complex-underdetermined" in result) == holds


@pytest.mark.parametrize(("size", "holds"), [(24, True), (32, False)])
def test_attention_is_wrong_where_the_value_has_another_last_dimension(size: int, *, holds: bool) -> None:
    shapes = {"query": (1, 1, 16, 32), "key": (1, 1, 16, 32), "value": (1, 1, 16, size)}
    inputs = [tensor(name, *shape) for name, shape in shapes.items()]
    result = statements("2.10", "aten::_scaled_dot_product_attention_math_for_mps", *inputs)
    assert ("sdpa-value-dimension" in result) == holds


@pytest.mark.parametrize(
    ("name", "torch", "op", "inputs", "holds"),
    [
        ("matrix-vector-empty", "2.9", "addmv", {"self": (0,), "mat": (0, 4), "vec": (4,)}, True),
        ("matrix-vector-empty", "2.9", "addmv", {"self": (4,), "mat": (4, 0), "vec": (0,)}, False),
        ("matrix-vector-empty", "2.10", "addmv", {"self": (0,), "mat": (0, 4), "vec": (4,)}, False),
        ("batch-norm-empty", "2.4", "batch_norm", {"input": (0, 3, 2, 2)}, True),
        ("batch-norm-empty", "2.4", "batch_norm", {"input": (1, 3, 2, 2)}, False),
        ("batch-norm-empty", "2.5", "batch_norm", {"input": (0, 3, 2, 2)}, False),
        ("grid-sampler-2d-empty", "2.1", "grid_sampler_2d", {"input": (1, 3, 6, 8), "grid": (1, 1, 0, 2)}, True),
        ("grid-sampler-2d-empty", "2.1", "grid_sampler_2d", {"input": (1, 3, 6, 8), "grid": (1, 1, 1, 2)}, False),
        (
            "attention-graph-empty",
            "2.9",
            "_scaled_dot_product_attention_math_for_mps",
            {"query": (0, 2, 4, 32), "key": (0, 2, 4, 32), "value": (0, 2, 4, 32)},
            True,
        ),
        (
            "attention-graph-empty",
            "2.9",
            "_scaled_dot_product_attention_math_for_mps",
            {"query": (1, 2, 4, 32), "key": (1, 2, 4, 32), "value": (1, 2, 4, 32)},
            False,
        ),
    ],
)
def test_an_empty_tensor_among_several_is_refused(
    name: str, torch: str, op: str, inputs: dict[str, tuple[int, ...]], *, holds: bool
) -> None:
    tensors = [tensor(argument, *shape) for argument, shape in inputs.items()]
    assert (name in statements(torch, f"aten::{op}", *tensors)) is holds


@pytest.mark.parametrize(
    ("torch", "macos", "stride", "expected"),
    [
        ("2.5", "15.0", (12, 1, 12, 4), {"conv-backward-strided-gradient-view"}),
        ("2.5", "14.0", (12, 1, 12, 4), {"conv-backward-strided-gradient-2-5"}),
        ("2.4", "15.0", (12, 1, 12, 4), {"conv-backward-strided-gradient"}),
        ("2.6", "15.0", (12, 1, 12, 4), set()),
        ("2.5", "15.0", (12, 3, 3, 1), set()),
    ],
)
def test_the_backward_of_a_convolution_misreads_a_channels_last_gradient(
    torch: str, macos: str, stride: tuple[int, ...], expected: set[str]
) -> None:
    gradient = msgspec.structs.replace(tensor("grad_output", 1, 4, 1, 3), stride=stride)
    inputs = (tensor("self", 1, 2, 1, 3), gradient, tensor("weight", 4, 2, 1, 3))
    call = OpCall(op="aten::mps_convolution_backward", inputs=inputs, outputs=(), arguments={}, inner=())
    target = Target(torch=Version.parse(torch), macos=Version.parse(macos))
    verdict = judge(call, target, _LISTS)
    names = {*verdict.limitations, *verdict.advisories}
    assert {each for each in names if "strided-gradient" in each} == expected


@pytest.mark.parametrize(
    ("torch", "weight", "expected"),
    [
        ("2.13", (4,), {"linear-backward-one-dimensional-weight-aborts"}),
        ("2.14", (4,), {"linear-backward-one-dimensional-weight"}),
        ("2.14", (3, 4), set()),
        ("2.15", (4,), set()),
    ],
)
def test_the_backward_of_linear_takes_no_weight_of_one_dimension(
    torch: str, weight: tuple[int, ...], expected: set[str]
) -> None:
    inputs = (tensor("self", 2, 4), tensor("grad_output", 2, *weight[:-1]), tensor("weight", *weight))
    names = statements(torch, "aten::linear_backward", *inputs, output_mask=[True, True, False])
    assert {each for each in names if "one-dimensional" in each} == expected


@pytest.mark.parametrize(
    ("torch", "dtype", "wants_input", "refused"),
    [
        ("1.13", "float16", True, True),
        ("1.13", "float16", False, False),
        ("1.13", "float32", True, False),
        ("2.0", "float16", True, False),
    ],
)
def test_the_backward_of_linear_takes_a_half_weight_from_2_0_on(
    torch: str, dtype: str, wants_input: bool, refused: bool
) -> None:
    inputs = [tensor(name, 4, 4, dtype=dtype) for name in ("self", "grad_output", "weight")]
    names = statements(torch, "aten::linear_backward", *inputs, output_mask=[wants_input, True, False])
    assert ("linear-backward-float16" in names) is refused


@pytest.mark.parametrize(
    ("macos", "dtype", "wrong"), [("12.3", "uint8", True), ("12.3", "int32", False), ("13.0", "uint8", False)]
)
def test_rows_of_bytes_are_gathered_wrongly_before_macos_13(macos: str, dtype: str, wrong: bool) -> None:
    inputs = (tensor("self", 3, 2, dtype=dtype), tensor("index", 2, dtype="int64"))
    call = OpCall(op="aten::index_select", inputs=inputs, outputs=inputs[:1], arguments={"dim": 0}, inner=())
    verdict = judge(call, Target(torch=Version.parse("1.13"), macos=Version.parse(macos)), _LISTS)
    assert ("index-select-uint8-macos-12" in verdict.advisories) is wrong


@pytest.mark.parametrize(("dtype", "holds"), [("bfloat16", True), ("float16", False)])
def test_nextafter_of_bfloat16_is_wrong(dtype: str, *, holds: bool) -> None:
    inputs = (tensor("self", 2, dtype=dtype), tensor("other", 2, dtype=dtype))
    assert ("nextafter-bfloat16" in statements("2.13", "aten::nextafter", *inputs)) == holds


@pytest.mark.parametrize(
    ("torch", "dtype", "expected"),
    [
        ("2.3", "complex64", {"conj-physical-in-place-2-3"}),
        ("2.13", "complex64", {"conj-physical-in-place"}),
        ("2.13", "float32", set()),
        ("2.14", "complex64", set()),
    ],
)
def test_no_complex_tensor_is_conjugated_in_place(torch: str, dtype: str, expected: set[str]) -> None:
    result = statements(torch, "aten::conj_physical_", tensor("self", 4, dtype=dtype))
    assert {name for name in result if name.startswith("conj-")} == expected


@pytest.mark.parametrize(
    ("torch", "op", "shape", "mode", "holds"),
    [
        ("2.14", "linalg_qr", (65536, 8), "reduced", True),
        ("2.14", "linalg_qr", (2, 16385, 8), "reduced", True),
        ("2.14", "linalg_qr", (16385, 8), "reduced", False),
        ("2.14", "linalg_qr", (65536, 8), "r", False),
        ("2.15", "linalg_qr", (65536, 8), "reduced", False),
        ("2.14", "linalg_householder_product", (65536, 8), "", True),
        ("2.14", "linalg_householder_product", (8192, 8), "", False),
    ],
)
def test_a_tall_matrix_may_take_more_than_a_buffer(
    torch: str, op: str, shape: tuple[int, ...], mode: str, *, holds: bool
) -> None:
    inputs = tensor("A" if mode else "input", *shape)
    result = statements(torch, f"aten::{op}", inputs, **({"mode": mode} if mode else {}))
    assert any(name.endswith("square-workspace") for name in result) is holds


@pytest.mark.parametrize(
    ("shape", "holds"), [((512, 4, 4), True), ((511, 4, 4), False), ((128, 128), False), ((64, 128), True)]
)
def test_a_decomposition_fails_by_its_elements_unless_a_matrix_is_left_to_the_cpu(
    shape: tuple[int, ...], *, holds: bool
) -> None:
    assert ("svd-8192-elements" in statements("2.14", "aten::_linalg_svd", tensor("A", *shape))) is holds


def test_each_problem_of_the_file_is_named(tmp_path: Path) -> None:
    entry = "  - {{address: {}, says: x, {}}}\n"
    rows = [
        entry.format("https://x.org/1", "statements: [known]"),
        entry.format("https://x.org/1", "why_none: because"),
        entry.format("https://x.org/2", "statements: [unknown]"),
        entry.format("https://x.org/3", "why_none: ''"),
    ]
    (tmp_path / "reports.yaml").write_text("schema: 1\nreports:\n" + "".join(rows))
    messages = [problem.message for problem in lint_reports({"known"}, tmp_path)]
    assert messages == [
        "no address, or one twice: https://x.org/1",
        "no statement has the id unknown",
        "either statements or why_none",
    ]


@pytest.mark.parametrize(
    ("torch", "other", "alpha", "holds"),
    [
        ("2.9", "float32", 0.33, True),
        ("2.9", "float16", 0.33, False),
        ("2.9", "float32", 1, False),
        ("2.8", "float32", 0.33, False),
        ("2.12", "float32", 0.33, False),
    ],
)
def test_a_half_tensor_takes_no_scaled_float32_in_place(torch: str, other: str, alpha: float, *, holds: bool) -> None:
    inputs = (tensor("self", 16, dtype="float16"), tensor("other", 16, dtype=other))
    result = statements(torch, "aten::add_.Tensor", *inputs, alpha=alpha)
    assert ("add-alpha-in-place-narrower" in result) is holds


@pytest.mark.parametrize(("size", "bounds", "holds"), [(2**29, 2, True), (2**29, 1, False), (2**29 - 1, 2, False)])
def test_clamp_between_two_large_tensors_finds_no_kernel(size: int, bounds: int, *, holds: bool) -> None:
    inputs = [tensor(argument, size) for argument in ("self", "min", "max")[: 1 + bounds]]
    assert ("clamp-two-bounds-2-31" in statements("2.13", "aten::clamp.Tensor", *inputs)) is holds
    assert "clamp-two-bounds-2-31" not in statements("2.14", "aten::clamp.Tensor", *inputs)


@pytest.mark.parametrize(("dtype", "holds"), [("float16", True), ("float32", False)])
def test_clamp_between_two_tensors_keeps_their_dtype(dtype: str, *, holds: bool) -> None:
    inputs = [tensor(argument, 4) for argument in ("self", "min", "max")]
    found = statements("2.13", "aten::clamp.Tensor_out", *inputs, tensor("out", 4, dtype=dtype))
    assert ("clamp-two-bounds-out-dtype" in found) is holds
