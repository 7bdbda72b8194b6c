"""What computes a call is what the sources of the release say, and a condition is taken from the call itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from opcheck.common.errors import OpListError
from opcheck.common.versions import Target, Version
from opcheck.data.kernel_routes import CHOICES, KINDS, TABLE, KernelRoutes, routes
from opcheck.data.registrations import data_directory, load
from opcheck.model.records import OpCall, TensorSpec

READINGS = Path(__file__).with_name("route_readings.json")


def tensor(*shape: int, dtype: str = "float32", stride: tuple[int, ...] = (), offset: int = 0) -> TensorSpec:
    """Make a tensor on MPS, contiguous if no strides are named."""
    steps = [1]
    for size in shape[:0:-1]:
        steps.insert(0, steps[0] * size)
    return TensorSpec(
        tensor=0, storage=0, dtype=dtype, shape=shape, stride=stride or tuple(steps), offset=offset, device="mps"
    )


def call(op: str, **arguments: object) -> OpCall:
    """Make a call whose arguments are named as in the schema; ``result`` is what it returns."""
    specs = {name: each for name, each in arguments.items() if isinstance(each, TensorSpec)}
    result = specs.pop("result", next(iter(specs.values())))
    inputs = tuple(
        msgspec.structs.replace(spec, tensor=number, storage=number, argument=name)
        for number, (name, spec) in enumerate(specs.items())
    )
    others = {name: each for name, each in arguments.items() if name not in {*specs, "result"}}
    return OpCall(op=op, inputs=inputs, outputs=(result,), arguments=others)  # type: ignore[arg-type]


@pytest.mark.parametrize(("key", "number", "most"), [("pairs", 120, 3), ("later", 57, 4)])
def test_the_table_agrees_with_the_sources(key: str, number: int, most: int) -> None:
    pairs = json.loads(READINGS.read_text())[key]
    assert len(pairs) == number
    wrong = []
    for op, line, ways, _, *why in pairs:
        route = routes(load()).of_operators((op,), line)
        if set(route.ways or (route.kind,)) != set(ways.split()):
            wrong.append((op, line, route, ways))
            assert why, (op, line)
    assert len(wrong) <= most, wrong


def test_what_the_notes_of_a_release_moved_to_metal_has_a_metal_kernel_there() -> None:
    moved = json.loads(READINGS.with_name("route_notes.json").read_text())["moved"]
    assert len(moved) > 90
    for op, line, _, *why in moved:
        route = routes(load()).of_operators((op,), line)
        assert ("metal" in (route.ways or (route.kind,))) is not bool(why), (op, line, route)


#: Read in PyTorch's sources: aten/src/ATen/native/mps/operations.
SOURCES = {
    ("aten::native_layer_norm", "2.15"): "metal",  # Normalization.mm, layer_norm_mps
    ("aten::gelu", "2.15"): "metal",  # ActivationKernel.mm, gelu_kernel
    ("aten::exp", "2.15"): "metal",  # UnaryKernel.mm
    ("aten::native_batch_norm", "2.15"): "graph",  # Normalization.mm, batch_norm_mps_out
    ("aten::mm", "2.15"): "either",  # LinearAlgebra.mm, mm_out_mps_impl
    ("aten::as_strided", "2.15"): "view",  # View.mm
    ("aten::_softmax", "2.12"): "graph",  # SoftMax.mm, softmax_mps_out
    ("aten::triangular_solve.X", "2.6"): "mps",  # LinearAlgebra.mm, linalg_solve_triangular_mps_impl
    ("aten::native_layer_norm", "2.6"): "graph",  # Normalization.mm, layer_norm_mps calls native_batch_norm and mul
    ("aten::zero_", "2.15"): "metal",  # ConstantOps.mm, by fill_
}


@pytest.mark.parametrize(("op", "line"), SOURCES)
def test_routes_are_those_of_the_sources(op: str, line: str) -> None:
    assert routes(load()).of_operators((op,), line).kind == SOURCES[op, line]


SMALL, WHOLE, WAVES = tensor(4, 4), tensor(4, 4, dtype="int64"), tensor(4, 4, dtype="complex64")
GAPS, SHIFTED = tensor(4, 4, stride=(8, 1)), tensor(4, 4, offset=4)
ROW, COLUMN = tensor(1, 4), tensor(4, 1)
TALL, WIDE = tensor(40000, 4), tensor(16, 40000)
HALF, PADDED = (tensor(4, 4, dtype="float16", stride=(20, 1)), tensor(4, 4, dtype="float16", stride=(1, 24)))
ALIGNED = tensor(4, 4, dtype="float16", stride=(1, 8))
MANY, MANY_LARGE, MANY_WHOLE = (tensor(4, 4, 4), tensor(2, 65536, 65536), tensor(4, 4, 4, dtype="int64"))
IMAGE, FILTER, LONG_FILTER = tensor(1, 4, 8, 8), tensor(4, 4, 3, 3), tensor(4, 4, 1, 256)
VOLUME, CUBE, VOXEL = tensor(1, 4, 8, 8, 8), tensor(4, 4, 3, 3, 3), tensor(4, 4, 1, 1, 1)
PATCH, CLIP = tensor(768, 3, 2, 16, 16), tensor(1, 3, 4, 224, 224)
PATCHES = {"stride": (2, 16, 16), "result": tensor(1, 768, 2, 14, 14)}
LINE = tensor(1, 4, 8)
POOL = {"kernel_size": (2, 2), "stride": (2, 2), "ceil_mode": False, "divisor_override": None}


def mm(first: TensorSpec, second: TensorSpec, result: TensorSpec = SMALL) -> OpCall:
    return call("aten::mm", self=first, mat2=second, result=result)


def addmm(first: TensorSpec, second: TensorSpec, result: TensorSpec = SMALL) -> OpCall:
    return call("aten::addmm", self=SMALL, mat1=first, mat2=second, result=result)


def bmm(first: TensorSpec, second: TensorSpec, result: TensorSpec = MANY) -> OpCall:
    return call("aten::bmm", self=first, mat2=second, result=result)


def linear(rows: TensorSpec, weight: TensorSpec = SMALL, bias: TensorSpec | None = None) -> OpCall:
    return call("aten::linear", input=rows, weight=weight, bias=bias)


def backward(rows: TensorSpec, upper: TensorSpec) -> OpCall:
    return call("aten::linear_backward", self=rows, grad_output=upper, weight=SMALL)


def convolve(op: str, image: TensorSpec, weight: TensorSpec, **others: object) -> OpCall:
    first = {"aten::convolution": "input", "aten::_mps_convolution": "self"}.get(op, "grad_output")
    rank = len(image.shape) - 2
    ones = (1,) * rank
    own = {"padding": (0,) * rank, "dilation": ones, "stride": ones, "groups": 1} | others
    if "backward" not in op and "result" not in own:
        outer, taps = image.shape[2:], weight.shape[2:]
        sizes = (size - taken + 1 for size, taken in zip(outer, taps, strict=True))
        own["result"] = tensor(image.shape[0], weight.shape[0], *(max(1, size) for size in sizes))
    inner = "aten::mps_convolution_transpose_backward" if "backward" in op else "aten::_mps_convolution"
    outer_call = call(op, **{first: image}, weight=weight, **own)
    return msgspec.structs.replace(outer_call, inner=(inner,)) if "mps" not in op else outer_call


def pool(op: str, image: TensorSpec = IMAGE, **others: object) -> OpCall:
    return call(f"aten::{op}", self=image, **POOL | others)


def attend(queries: int, size: int, dtype: str = "float32", values: int = 0, **others: object) -> OpCall:
    query, key = tensor(1, 2, queries, size, dtype=dtype), tensor(1, 2, 16, size, dtype=dtype)
    value = tensor(1, 2, 16, values or size, dtype=dtype)
    arguments = {"attn_mask": None, "is_causal": False, **others}
    return call("aten::_scaled_dot_product_attention_math_for_mps", query=query, key=key, value=value, **arguments)


def routed(op_call: OpCall, *ways: str) -> list[tuple[OpCall, str, str, str]]:
    """The rows of a call: each way is a release, with ``@`` a macOS other than 15.0, and a route."""
    rows = []
    for way in ways:
        release, route = way.split()
        torch, _, macos = release.partition("@")
        rows.append((op_call, torch, macos or "15.0", route))
    return rows


#: Calls on both sides of each condition of the file.
CONDITIONS = [
    # LinearAlgebra.mm, use_metal_mm
    *routed(mm(SMALL, SMALL), "2.9 graph", "2.9@14.0 graph", "2.13 graph", "2.14 graph", "2.15 graph"),
    *routed(mm(WHOLE, WHOLE), "2.9 metal"),
    *routed(mm(TALL, SMALL), "2.9 graph", "2.9@14.0 metal"),
    *routed(mm(tensor(4, 4096, dtype="complex64"), tensor(4096, 4, dtype="complex64")), "2.9 graph", "2.10 metal"),
    *routed(mm(WAVES, WAVES), "2.10 graph"),
    *routed(mm(HALF, PADDED), "2.11 graph", "2.12 metal", "2.15@26.0 metal"),
    *routed(mm(ALIGNED, ALIGNED), "2.12 graph"),
    *routed(mm(ROW, SMALL, ROW), "2.13 graph", "2.14 metal"),
    *routed(mm(SMALL, COLUMN, COLUMN), "2.15 metal"),
    *routed(mm(SMALL, COLUMN, tensor(4, 1, stride=(2, 1))), "2.15@26.0 graph"),
    *routed(mm(SMALL, SMALL, GAPS), "2.15 metal", "2.15@26.0 graph"),
    *routed(mm(SMALL, SMALL, SHIFTED), "2.14@14.5 metal", "2.14 graph"),
    *routed(mm(WIDE, TALL), "2.13 graph", "2.15 graph"),
    *routed(mm(WIDE, tensor(40000, 16)), "2.15 either", "2.14 either"),
    *routed(addmm(SMALL, SMALL), "2.9@14.0 graph", "2.12 graph", "2.15 graph", "2.11 graph"),
    *routed(addmm(TALL, SMALL), "2.9@14.0 metal"),
    *routed(addmm(WHOLE, WHOLE), "2.11 metal"),
    *routed(addmm(HALF, PADDED), "2.13 metal"),
    *routed(addmm(ROW, SMALL, ROW), "2.14 metal"),
    *routed(addmm(WAVES, WAVES, WAVES), "2.14 graph", "2.15 metal"),
    *routed(addmm(WIDE, tensor(40000, 16)), "2.14 either", "2.15 either"),
    # bmm_out_mps_impl and addbmm_or_baddbmm_out_mps_impl
    *routed(bmm(MANY, MANY), "2.9 graph", "2.15 graph"),
    *routed(bmm(MANY_WHOLE, MANY_WHOLE), "2.6 graph", "2.12 metal", "2.15 metal"),
    *routed(bmm(MANY_LARGE, MANY_LARGE), "2.9 mps", "2.15 mps", "2.6 mps", "2.14 mps"),
    *routed(bmm(MANY, MANY, tensor(4, 4, 4, stride=(32, 8, 1))), "2.14 metal", "2.14@26.0 graph"),
    *routed(call("aten::baddbmm", self=MANY, batch1=MANY, batch2=MANY), "2.11 graph", "2.15 graph"),
    *routed(call("aten::baddbmm", self=MANY, batch1=MANY_WHOLE, batch2=MANY), "2.15 metal"),
    # BinaryOps.mm, mul_out_mps
    *routed(call("aten::mul.Tensor", self=WAVES, other=SMALL), "2.6@13.0 metal", "2.6 graph"),
    *routed(call("aten::mul.Tensor", self=SMALL, other=SMALL), "2.4 graph"),
    *routed(call("aten::mul.Tensor", self=SMALL, other=WAVES), "2.4 either"),
    # Linear.mm, _mps_linear and mps_linear_backward
    *routed(linear(SMALL), "2.9 mps", "2.9@14.0 graph", "2.15 mps", "2.15@14.0 graph"),
    *routed(linear(WAVES), "2.11 either", "2.12 graph"),
    *routed(linear(GAPS), "2.13 graph", "2.14 graph"),
    *routed(linear(SMALL, bias=tensor(4, stride=(2,))), "2.15 graph"),
    *routed(linear(ROW), "2.14 mps", "2.15 metal"),
    *routed(linear(tensor(4)), "2.15 metal"),
    *routed(linear(WIDE, tensor(16, 40000)), "2.13 mps", "2.14 either", "2.15 either"),
    *routed(linear(WIDE, tensor(8, 40000)), "2.14 mps"),
    *routed(backward(SMALL, SMALL), "2.13 graph", "2.15 graph"),
    *routed(backward(ROW, ROW), "2.15 either"),
    *routed(backward(TALL, TALL), "2.15 either"),
    # Convolution.mm, _mps_convolution_impl
    *routed(convolve("aten::_mps_convolution", IMAGE, FILTER), "2.13 graph", "2.14 graph", "2.15 graph"),
    *routed(convolve("aten::_mps_convolution", IMAGE, LONG_FILTER), "2.14 metal", "2.15 metal"),
    *routed(convolve("aten::_mps_convolution", tensor(1, 4, 1, 8), tensor(4, 4, 1, 3)), "2.14 graph", "2.15 metal"),
    *routed(convolve("aten::_mps_convolution", tensor(1, 9000, 1, 8), tensor(16, 9000, 1, 4)), "2.15 either"),
    *routed(convolve("aten::_mps_convolution", VOLUME, CUBE), "2.14 metal"),
    *routed(convolve("aten::_mps_convolution", VOLUME, VOXEL, groups=2), "2.15 metal"),
    # ConvolutionHeuristics.cpp, conv3d_prefer_im2col, and Convolution.mm, conv3d_is_pointwise
    *routed(convolve("aten::convolution", VOLUME, CUBE), "2.14 metal", "2.15 metal"),
    *routed(convolve("aten::convolution", VOLUME, CUBE, groups=4), "2.15 metal"),
    *routed(convolve("aten::convolution", VOLUME, CUBE, dilation=(1, 2, 1)), "2.14 metal"),
    *routed(convolve("aten::convolution", VOLUME, VOXEL), "2.14 graph", "2.15 graph"),
    *routed(convolve("aten::convolution", VOLUME, VOXEL, stride=(2, 2, 2)), "2.15 metal"),
    *routed(convolve("aten::convolution", VOLUME, tensor(1, 4, 1, 1, 1)), "2.15 metal"),
    *routed(convolve("aten::convolution", CLIP, PATCH, **PATCHES), "2.14 graph", "2.15 graph"),
    *routed(convolve("aten::convolution", CLIP, PATCH, **PATCHES | {"stride": (1, 16, 16)}), "2.15 metal"),
    *routed(convolve("aten::convolution", tensor(1, 512, 4, 4, 4), tensor(8, 512, 3, 3, 3)), "2.15 graph"),
    *routed(
        convolve("aten::convolution", tensor(1, 512, 4, 4, 4), tensor(16, 2048, 3, 3, 3)),
        "2.15 either", "2.14 either",
    ),
    *routed(convolve("aten::convolution", tensor(2, 512, 4, 4, 4), tensor(8, 512, 3, 3, 3)), "2.15 metal"),
    *routed(convolve("aten::convolution", IMAGE, LONG_FILTER), "2.14 metal"),
    *routed(convolve("aten::convolution", IMAGE, FILTER), "2.15 graph"),
    # Convolution.mm, conv1d_metal_forward
    *routed(convolve("aten::convolution", LINE, tensor(4, 4, 3)), "2.14 graph", "2.15 metal"),
    *routed(convolve("aten::convolution", LINE, tensor(4, 1, 3), groups=4), "2.15 metal"),
    *routed(convolve("aten::convolution", LINE, tensor(4, 4, 256)), "2.15 metal"),
    *routed(convolve("aten::convolution", tensor(2, 4, 8), tensor(4, 4, 8)), "2.15 graph"),
    *routed(convolve("aten::convolution", LINE, tensor(4, 4, 8)), "2.15 metal"),
    *routed(convolve("aten::convolution", tensor(1, 2048, 8), tensor(4, 2048, 5)), "2.15 graph"),
    *routed(convolve("aten::convolution", tensor(9, 2048, 8), tensor(4, 2048, 5)), "2.15 metal"),
    *routed(convolve("aten::convolution", tensor(2, 9000, 4), tensor(16, 9000, 4)), "2.15 either"),
    *routed(convolve("aten::convolution_backward", IMAGE, FILTER), "2.14 graph", "2.15 graph"),
    *routed(convolve("aten::convolution_backward", IMAGE, LONG_FILTER), "2.15 either"),
    *routed(convolve("aten::convolution_backward", VOLUME, CUBE), "2.14 either"),
    # Pooling.mm and AdaptivePooling.mm
    *routed(pool("max_pool2d", stride=(1, 1)), "2.9 graph", "2.15 graph"),
    *routed(pool("max_pool2d"), "2.9 metal", "2.15 metal"),
    *routed(pool("max_pool2d", stride=(), kernel_size=(1,)), "2.15 graph"),
    *routed(pool("avg_pool2d"), "2.15 graph"),
    *routed(pool("avg_pool2d", ceil_mode=True), "2.8 graph", "2.9 metal", "2.15 metal"),
    *routed(pool("avg_pool2d_backward"), "2.15 graph"),
    *routed(call("aten::_adaptive_avg_pool2d", self=IMAGE, output_size=(4, 8)), "2.15 graph"),
    *routed(call("aten::_adaptive_avg_pool2d", self=IMAGE, output_size=(16, 16)), "2.15 either"),
    *routed(call("aten::_adaptive_avg_pool2d_backward", grad_output=FILTER, self=IMAGE), "2.15 graph"),
    *routed(call("aten::_adaptive_avg_pool2d_backward", grad_output=IMAGE, self=FILTER), "2.15 either"),
    *routed(call("aten::adaptive_max_pool2d", self=IMAGE, output_size=(8, 7)), "2.9 graph", "2.12 graph"),
    *routed(call("aten::adaptive_max_pool2d", self=IMAGE, output_size=(4, 8)), "2.12 metal"),
    # UnaryOps.mm, cumulative_op_impl
    *routed(call("aten::cumsum", self=SMALL, dim=0, dtype=None), "2.12 graph"),
    *routed(call("aten::cumsum", self=WAVES, dim=0, dtype=None), "2.12 metal"),
    *routed(call("aten::cumsum", self=SMALL, dim=0, dtype="complex64"), "2.12 either"),
    # Unique.mm, _unique_impl_mps
    *routed(call("aten::_unique2", self=SMALL), "2.15 metal"),
    *routed(call("aten::unique_consecutive", self=SMALL, dim=None), "2.15 metal"),
    *routed(call("aten::unique_consecutive", self=SMALL, dim=0), "2.15 graph"),
    *routed(call("aten::unique_dim_consecutive", self=SMALL, dim=0), "2.15 graph"),
    # ReduceOps.mm, std_mean_mps: both ways in each call
    *routed(call("aten::std_mean.correction", self=SMALL), "2.15 either"),
    # Distance.cpp, cdist_impl
    *routed(call("aten::_cdist_forward", x1=SMALL, x2=SMALL, p=2.0, compute_mode=None), "2.15 metal"),
    *routed(call("aten::_cdist_forward", x1=SMALL, x2=TALL, p=2.0, compute_mode=None), "2.15 either"),
    *routed(call("aten::_cdist_forward", x1=SMALL, x2=TALL, p=1.0, compute_mode=None), "2.13 metal"),
    # Attention.mm, _scaled_dot_product_attention_math_mps
    *routed(attend(4, 64), "2.12 metal"),
    *routed(attend(4, 256), "2.12 graph", "2.15 metal"),
    *routed(attend(4, 64, is_causal=True), "2.12 graph"),
    *routed(attend(16, 64), "2.12 graph", "2.13 metal"),
    *routed(attend(4, 64, attn_mask=tensor(4, 16)), "2.12 graph"),
    *routed(attend(16, 80, dtype="bfloat16"), "2.15 metal"),
    *routed(attend(4, 80), "2.15 graph"),
    *routed(attend(16, 40), "2.15 graph"),
    *routed(attend(16, 64, values=128), "2.15 graph"),
    *routed(attend(16, 64, attn_mask=tensor(16, 16, dtype="float16")), "2.15 graph"),
    *routed(attend(16, 64, attn_mask=tensor(16, 16, dtype="bool")), "2.15 metal"),
    *routed(attend(4, 64, is_causal=True, attn_mask=tensor(4, 16)), "2.15 graph"),
]  # fmt: skip


@pytest.mark.parametrize(("op_call", "torch", "macos", "kind"), CONDITIONS)
def test_a_condition_of_the_sources_chooses_the_route_of_a_call(
    op_call: OpCall, torch: str, macos: str, kind: str
) -> None:
    target = Target(torch=Version.parse(torch), macos=Version.parse(macos))
    assert routes(load()).of_call(op_call, target) == kind


def test_each_entry_has_calls_that_go_each_of_its_ways() -> None:
    tried = {(op_call.op, Version.parse(torch), kind) for op_call, torch, _, kind in CONDITIONS}
    # A statement takes the calls that the CPU computes.
    untried = [
        (choice.ops[0], str(choice.torch), way.route)
        for choice in CHOICES.load().choices
        for way in choice.ways
        if way.route != "cpu"
        and not any(op in choice.ops and torch in choice.torch and kind == way.route for op, torch, kind in tried)
    ]
    assert untried == []


def test_two_entries_never_share_an_overload_and_a_release() -> None:
    for release in load().releases:
        here = [each for each in CHOICES.load().choices if release.version in each.torch]
        names = [op for each in here for op in each.ops]
        assert len(names) == len(set(names)), release.line


def test_each_choice_is_one_of_the_ways_that_the_kernels_have() -> None:
    lists = load()
    table = routes(lists)
    for choice in CHOICES.load().choices:
        for line in (each.line for each in lists.releases if each.version in choice.torch):
            for op in choice.ops:
                route = table.of_operators((op,), line)
                wrong = {way.route for way in choice.ways} - {route.kind, *route.ways, "either"}
                assert not wrong, (op, line, route, wrong)


def test_a_way_that_an_overload_never_takes_is_none_of_its_own() -> None:
    table = routes(load())
    assert table.of_operators(("aten::_unique2",), "2.15").kind == "metal"
    assert table.of_operators(("aten::unique_dim_consecutive",), "2.15").kind == "graph"
    assert table.of_operators(("aten::unique_consecutive",), "2.15").ways == ("graph", "metal")


def test_an_operator_without_data_is_unknown() -> None:
    assert routes(load()).of_operators(("aten::no_such_operator",), "2.15").kind == "unknown"
    assert routes(load()).of_operators(("aten::mm", "aten::no_such_operator"), "2.15").kind == "unknown"


def test_a_condition_that_is_no_expression_names_its_line(tmp_path: Path) -> None:
    shutil.copytree(data_directory(), tmp_path, dirs_exist_ok=True)
    file = tmp_path / "routes.yaml"
    file.write_text(file.read_text().replace("not self.is_floating and", "import os and", 1))
    with pytest.raises(OpListError, match="not an expression"):
        KernelRoutes(load(), tmp_path).of_call(mm(SMALL, SMALL), Target(torch=Version(2, 9), macos=Version(15, 0)))


def test_the_values_of_the_table_are_ways_of_a_kernel() -> None:
    words = {value.partition(":")[0] for row in TABLE.load().operators.values() for _, value in row if value}
    assert {way for word in words for way in word.split("+")} <= {*KINDS, "view", "calls", "unknown"}
