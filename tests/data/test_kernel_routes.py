"""What computes a call is what the sources of the release say, and a condition is taken from the call itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from opcheck.common.errors import OpListError
from opcheck.common.versions import Target, Version
from opcheck.data.kernel_routes import CHOICES, KINDS, TABLE, KernelRoutes, routes
from opcheck.data.registrations import data_directory, load
from opcheck.model.records import OpCall, TensorSpec

READINGS = Path(__file__).with_name("route_readings.json")
#: Pairs that the table has wrong; each has its explanation in the file of the readings.
MOST_WRONG = 3


def call(op: str, *shapes: tuple[int, ...], dtype: str = "float32", **arguments: object) -> OpCall:
    """Make a call on contiguous tensors, named as the schema of mm, bmm and linear names them."""
    names = {"aten::linear": ("input", "weight"), "aten::max_pool2d": ("self",)}.get(
        op, ("self", "mat2")
    )
    specs = tuple(
        TensorSpec(
            tensor=number,
            storage=number,
            argument=name,
            dtype=dtype,
            shape=shape,
            stride=strides(shape),
            device="mps",
        )
        for number, (name, shape) in enumerate(zip(names, shapes, strict=True))
    )
    return OpCall(op=op, inputs=specs, outputs=(), arguments=dict(arguments))  # type: ignore[arg-type]


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps = [1]
    for size in shape[:0:-1]:
        steps.insert(0, steps[0] * size)
    return tuple(steps)


def test_the_table_agrees_with_the_sources_of_three_releases() -> None:
    pairs = json.loads(READINGS.read_text())["pairs"]
    assert len(pairs) == 120
    wrong = []
    for op, line, ways, *why in pairs:
        route = routes(load()).of_operators((op,), line)
        if set(route.ways or (route.kind,)) != set(ways.split()):
            wrong.append((op, line, route, ways))
            assert why, (op, line)
    assert len(wrong) <= MOST_WRONG, wrong


#: Read in PyTorch's sources: aten/src/ATen/native/mps/operations.
SOURCES = {
    ("aten::native_layer_norm", "2.15"): "metal",  # Normalization.mm, layer_norm_mps
    ("aten::gelu", "2.15"): "metal",  # ActivationKernel.mm, gelu_kernel
    ("aten::exp", "2.15"): "metal",  # UnaryKernel.mm
    ("aten::native_batch_norm", "2.15"): "graph",  # Normalization.mm, batch_norm_mps_out
    ("aten::mm", "2.15"): "either",  # LinearAlgebra.mm, mm_out_mps_impl
    ("aten::as_strided", "2.15"): "view",  # View.mm
    ("aten::_softmax", "2.12"): "graph",  # SoftMax.mm, softmax_mps_out
    (
        "aten::triangular_solve.X",
        "2.6",
    ): "mps",  # LinearAlgebra.mm, linalg_solve_triangular_mps_impl
    (
        "aten::native_layer_norm",
        "2.6",
    ): "graph",  # Normalization.mm, layer_norm_mps calls native_batch_norm and mul
    ("aten::zero_", "2.15"): "metal",  # ConstantOps.mm, by fill_
}


@pytest.mark.parametrize(("op", "line"), SOURCES)
def test_routes_are_those_of_the_sources(op: str, line: str) -> None:
    assert routes(load()).of_operators((op,), line).kind == SOURCES[op, line]


#: LinearAlgebra.mm, Linear.mm and Pooling.mm of torch 2.6.0 and 2.9.1.
CONDITIONS = [
    (call("aten::mm", (4, 4), (4, 4)), "2.9", "15.0", "graph"),
    (call("aten::mm", (4, 4), (4, 4), dtype="int64"), "2.9", "15.0", "metal"),
    (call("aten::mm", (40000, 4), (4, 4)), "2.9", "15.0", "graph"),
    (call("aten::mm", (40000, 4), (4, 4)), "2.9", "14.0", "metal"),
    (call("aten::mm", (4, 4), (4, 4)), "2.9", "14.0", "graph"),
    (call("aten::bmm", (4, 4, 4), (4, 4, 4)), "2.9", "15.0", "graph"),
    (call("aten::bmm", (2, 65536, 64), (2, 64, 65536)), "2.9", "15.0", "mps"),
    (call("aten::linear", (4, 4), (4, 4)), "2.15", "15.0", "mps"),
    (call("aten::linear", (4, 4), (4, 4)), "2.15", "14.0", "graph"),
    (call("aten::max_pool2d", (1, 1, 8, 8), kernel_size=(2, 2), stride=(1, 1)), "2.9", "15.0", "graph"),
    (call("aten::max_pool2d", (1, 1, 8, 8), kernel_size=(2, 2), stride=(2, 2)), "2.9", "15.0", "metal"),
    (call("aten::mm", (4, 4), (4, 4)), "2.15", "15.0", "either"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "torch", "macos", "kind"), CONDITIONS)
def test_a_condition_of_the_sources_chooses_the_route_of_a_call(
    made: OpCall, torch: str, macos: str, kind: str
) -> None:
    target = Target(torch=Version.parse(torch), macos=Version.parse(macos))
    assert routes(load()).of_call(made, target).kind == kind


def test_each_choice_is_one_of_the_ways_that_the_kernels_have() -> None:
    lists = load()
    table = routes(lists)
    for choice in CHOICES.load().choices:
        for line in (each.line for each in lists.releases if each.version in choice.torch):
            for op in choice.ops:
                route = table.of_operators((op,), line)
                assert choice.route in route.ways, (op, line, route, choice.route)


def test_an_operator_without_data_is_unknown() -> None:
    assert routes(load()).of_operators(("aten::no_such_operator",), "2.15").kind == "unknown"
    assert (
        routes(load()).of_operators(("aten::mm", "aten::no_such_operator"), "2.15").kind
        == "unknown"
    )


def test_a_condition_that_is_no_expression_names_its_line(tmp_path: Path) -> None:
    shutil.copytree(data_directory(), tmp_path, dirs_exist_ok=True)
    file = tmp_path / "routes.yaml"
    file.write_text(file.read_text().replace("not self.is_floating and", "import os and", 1))
    with pytest.raises(OpListError, match="not an expression"):
        KernelRoutes(load(), tmp_path).of_call(
            call("aten::mm", (4, 4), (4, 4)), Target(torch=Version(2, 9), macos=Version(15, 0))
        )


def test_the_values_of_the_table_are_ways_of_a_kernel() -> None:
    words = {
        value.partition(":")[0]
        for row in TABLE.load().operators.values()
        for _, value in row
        if value
    }
    assert {way for word in words for way in word.split("+")} <= {
        *KINDS,
        "view",
        "calls",
        "unknown",
    }
