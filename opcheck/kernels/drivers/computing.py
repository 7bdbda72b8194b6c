"""Calls the kernels of softmax, norms, searching, attention, pooling, resampling and linear algebra."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's own abbreviation)
from torch import Tensor

from opcheck.kernels import values
from opcheck.kernels.launch import (
    EPS,
    LENGTHS,
    Launch,
    bound_to,
    dtype_named,
    family,
    random,
    struct,
    untouched,
    widened,
)
from opcheck.kernels.machine import Kernel
from opcheck.kernels.pointwise import Unfit, numbers

# Softmax and norms are called by SoftMax.mm, LayerNorm.mm and RMSNorm.mm there.


@family(r"(?P<log>log_)?softmax_row_(?P<a>[a-z0-9]+)_(?:u32|u64)")
def _softmax(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    for length in LENGTHS:
        given = random((4, length), dtype, length) * 3
        given[0, 0] = -100.0
        function = torch.log_softmax if match["log"] else torch.softmax
        value = function(given.double(), -1)
        params = struct(
            kernel, "params", dim_size=length, num_rows=4, inner_size=1, chunk_size=length,
            n_chunks=1, ndim=2, dim=1, sizes=(4, length), strides=(length, 1),
        )  # fmt: skip
        group = min(256, -(-length // 32) * 32)
        slack = (value.abs() + 1) * 8 * EPS if match["log"] else value * 8 * EPS
        yield Launch(
            {"input": given, "output": untouched((4, length), dtype), "params": params},
            (4 * group,), (group,), {"output": (given, value, slack)},
        )  # fmt: skip


def _softmax_params(kernel: Kernel, shape: tuple[int, int, int], chunk: int) -> Tensor:
    """Return the parameters of a softmax over the middle dimension."""
    outer, length, inner = shape
    return struct(
        kernel, "params", dim_size=length, num_rows=outer * inner, inner_size=inner, chunk_size=chunk,
        n_chunks=-(-length // chunk), ndim=3, dim=1, sizes=shape, strides=(length * inner, inner, 1),
    )  # fmt: skip


@family(r"(?P<log>log_)?softmax_(?P<a>float|half|bfloat)_(?:u32|u64)")
def _softmax_strided(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with 8 columns and 32 threads a column in a threadgroup."""
    dtype = dtype_named(match["a"])
    for length in LENGTHS:
        given = random((2, length, 8), dtype, length) * 3
        value = (torch.log_softmax if match["log"] else torch.softmax)(given.double(), 1)
        slack = (value.abs() + 1) * 8 * EPS if match["log"] else value * 8 * EPS
        params = _softmax_params(kernel, (2, length, 8), length)
        yield Launch(
            {"input": given, "output": untouched(given.shape, dtype), "params": params},
            (8, 64), (8, 32), {"output": (given, value, slack)},
        )  # fmt: skip


@family(
    r"(?P<log>log_)?softmax_(?P<strided>strided_)?(?P<step>partial|finalize)_(?P<a>float|half|bfloat)_(?:u32|u64)"
)
def _softmax_in_chunks(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call one of two steps: the largest value and the sum of each chunk, then the result of them.

    The strided form has 8 columns and 32 threads a column in a threadgroup, one of a chunk and a matrix.
    """
    dtype, chunk, rows = dtype_named(match["a"]), 32, 3
    inner = 8 if match["strided"] else 1
    for length in (32, 100, 1025):
        given = random((rows, length, inner), dtype, length) * 3
        chunks = [part.double() for part in torch.split(given, chunk, 1)]
        largest = torch.stack([part.amax(1) for part in chunks], -1)
        sums = torch.stack(
            [(part - part.amax(1, keepdim=True)).exp().sum(1) for part in chunks], -1
        )
        partials = torch.stack([largest, sums], -1)  # of a row, a column and a chunk
        bound = {
            "input": given,
            "output": untouched(given.shape, dtype),
            "partials": partials.float(),
            "params": _softmax_params(kernel, (rows, length, inner), chunk),
        }
        grid: tuple[int, ...] = (len(chunks) * 32, rows)
        group: tuple[int, ...] = (32, 1)
        if match["strided"]:
            grid, group = (inner, rows * 32, len(chunks)), (inner, 32, 1)
        if match["step"] == "partial":
            bound["partials"] = untouched(partials.shape, torch.float32)
            expected = {"partials": (given, partials, partials.abs() * 16 * EPS)}
        else:
            value = (torch.log_softmax if match["log"] else torch.softmax)(given.double(), 1)
            slack = (value.abs() + 1) * 16 * EPS if match["log"] else value * 16 * EPS
            expected = {"output": (given, value, slack)}
        yield Launch(bound_to(kernel, bound), grid, group, expected)


@family(r"layer_norm_(?P<how>single_row|looped)(_i32|_i64)?_(?P<a>[a-z0-9]+)")
def _layer_norm(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    flags = {a.name: a for a in kernel.buffers}
    # A small variance with the eps of vision transformers (pytorch/pytorch#190491), and rows about 1 (#186367).
    scales = ((1.0, 0.0, 1e-5), (9.9e-4, 0.0, 1e-12), (1e-3, 1.0, 1e-7))
    for length, (scale, shift, eps) in itertools.product((8, 33, 100, 1000), scales):
        given = (random((3, length), torch.float32, length) * scale + shift).to(dtype)
        weight, bias = random((length,), dtype, 1), random((length,), dtype, 2)
        wide = given.double()
        value = F.layer_norm(wide, (length,), weight.double(), bias.double(), eps)
        mean, rstd = wide.mean(-1), (wide.var(-1, correction=0) + eps).rsqrt()
        # The mean is off by a rounding, which a small variance magnifies.
        off = 64 * EPS * (1 + shift / scale)
        slack = off * (1 + weight.double().abs() * 4)
        bound = {
            "input": given, "output": untouched((3, length), dtype), "meanOut": untouched((3,), dtype),
            "rstdTensor": untouched((3,), dtype), "axis_size": numbers(length, size=flags["axis_size"].size),
            "epsilon": torch.tensor(eps), "weight": weight, "bias": bias,
        }  # fmt: skip
        for extra in flags.keys() - bound.keys():
            if flags[extra].type not in {"bool", "int", "uint"}:
                raise Unfit(f"nothing is known of the argument {extra}")
            bound[extra] = numbers(1, 1)
        # The looped form is called with 1,024 threads: it reads a sum of each of 32 simdgroups.
        group = 1024 if match["how"] == "looped" else min(1024, -(-length // (4 * 32)) * 32)
        yield Launch(
            bound, (3 * group,), (group,),
            {
                "output": (given, value, slack),
                "meanOut": (given, mean, 1e-6),
                "rstdTensor": (given, rstd, rstd * off),
            },
        )  # fmt: skip


@family(r"rms_norm(?P<how>_looped)?_(?P<a>float|half|bfloat)")
def _rms_norm(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    for length in (8, 33, 100, 1000):
        given, weight = random((3, length), dtype, length), random((length,), dtype, 1)
        wide = given.double()
        value = wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight.double()
        group = min(1024, -(-length // (4 * 32)) * 32)
        yield Launch(
            {
                "x": given, "w": weight, "out": untouched((3, length), dtype), "eps": torch.tensor(1e-5),
                "axis_size": numbers(length), "w_stride": numbers(1),
            },
            (3 * group,), (group,),
            {"out": (given, value, value.abs() * (_half_step(dtype) + 16 * EPS))},
        )  # fmt: skip


def _half_step(dtype: torch.dtype) -> float:
    """Return what rounding an intermediate value to the dtype may change."""
    return torch.finfo(dtype).eps


# Searching is called by Bucketization.mm.


@family(r"searchsorted_(?P<a>[a-z0-9]+)_(?P<b>int|long)(?P<sorter>_sorter)?")
def _search(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    dtype, target = dtype_named(match["a"]), dtype_named(match["b"])
    for right in (0, 1):
        bounds = torch.unique(random((40,), dtype, 1))
        given = torch.cat([random((61,), dtype, 2), bounds[:5]])
        bound = {
            "data_in": given, "data_bd": bounds, "data_out": untouched((len(given),), target),
            "idim_in": numbers(len(given), size=8), "idim_bd": numbers(len(bounds), size=8),
            "numel_in": numbers(len(given), size=8), "right": numbers(right, size=8),
            "is_1d_boundaries": numbers(1, size=8),
        }  # fmt: skip
        if match["sorter"]:
            order = torch.randperm(len(bounds), generator=values.generator(1))
            bound["data_sort"] = torch.argsort(order)
            bound["data_bd"] = bounds[order]
        value = torch.searchsorted(bounds.double(), given.double(), right=bool(right))
        yield Launch(bound, (len(given), 1), (32, 1), {"data_out": (given, value, 0.0)})


# Quantized products: Quantized.mm


@family(r"int8pack_mv_(?P<a>float|half|bfloat)")
def _int8(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    rows, depth, columns = 3, 64, 16
    given, scales = random((rows, depth), dtype, 1), random((columns,), dtype, 2)
    weight = torch.randint(-128, 128, (columns, depth), generator=values.generator(1)).to(
        torch.int8
    )
    value = given.double() @ weight.double().T * scales.double()
    size = given.double().abs() @ weight.double().abs().T * scales.double().abs()
    yield Launch(
        {
            "A": given, "B": weight, "scalesAndZeros": scales,
            "outputData": untouched((rows, columns), dtype), "sizes": numbers(rows, depth, columns, 0),
        },
        (columns // 8 * 64, rows, 1), (64, 1, 1),
        {"outputData": (given, value, size * 16 * EPS + value.abs() * _half_step(dtype))},
        {"shared_memory": 64},
    )  # fmt: skip


# Pooling and upsampling: Pooling.mm, UpSample.mm


@family(r"(?P<op>max|avg)_pool_(?P<a>[a-z0-9]+)")
def _pooling(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    for size, stride, padding in (((2, 2), (2, 2), (0, 0)), ((3, 2), (1, 2), (1, 1))):
        given = random((2, 3, 7, 8), dtype, 1)
        kinds = {"kernel_size": size, "stride": stride, "padding": padding}
        wide = given.double()
        if match["op"] == "max":
            value, places = F.max_pool2d(wide, size, stride, padding, return_indices=True)
            more = {
                "dilation": (1, 1), "return_indices": 1, "indices_sizes": value.shape,
                "indices_strides": value.stride(),
            }  # fmt: skip
        else:
            value, more = F.avg_pool2d(wide, size, stride, padding), {"count_include_pad": 1}
            if not dtype.is_floating_point:
                if dtype == torch.bool:
                    raise Unfit("no mean is defined for bool: the CPU refuses it")
                value = value.trunc()  # the CPU divides integers
        params = struct(
            kernel, "params", dims=4, pooling_dims=2, input_sizes=given.shape,
            input_strides=given.stride(), output_sizes=value.shape, output_strides=value.stride(),
            **kinds, **more,
        )  # fmt: skip
        bound = {"input": given, "output": untouched(value.shape, dtype), "params": params}
        expected: dict[str, Any] = {"output": (given, value, value.abs() * 4 * EPS)}
        if match["op"] == "max":
            bound["indices"] = untouched(value.shape, torch.int64)
            if dtype.is_floating_point:
                expected["indices"] = (given, places, 0.0)
        expected["output"] = (given, value, _terms(wide, 9))
        yield Launch(bound, (value.numel(),), (32,), expected)


def _terms(given: Tensor, count: int) -> float:
    """Return what summing so many of the values in another order may change."""
    return float(given.abs().amax()) * count * EPS


_MODES = {
    "nearest1d": ("nearest", 1), "nearest2d": ("nearest", 2), "nearest_3d": ("nearest", 3),
    "nearest_exact1d": ("nearest-exact", 1), "nearest_exact2d": ("nearest-exact", 2),
    "nearest_exact_3d": ("nearest-exact", 3), "linear1d": ("linear", 1),
    "bilinear2d": ("bilinear", 2), "bicubic2d": ("bicubic", 2), "trilinear": ("trilinear", 3),
    "bilinear2d_aa": ("bilinear", 2), "bicubic2d_aa": ("bicubic", 2),
}  # fmt: skip


@family(
    r"upsample_(?P<mode>(?!\w*backward)\w+?)_(?P<a>float|half|bfloat|uchar|char|int|short|long|bool)"
)
def _upsample(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    if match["mode"] not in _MODES:
        raise Unfit(f"the mode {match['mode']} is not driven")
    mode, dims = _MODES[match["mode"]]
    for shape, target, corners in (
        ((5, 4, 6)[:dims], (7, 9, 11)[:dims], False),
        ((6, 7, 5)[:dims], (3, 4, 9)[:dims], True),
    ):
        if corners and (mode.startswith("nearest") or "_aa" in match["mode"]):
            corners = False  # noqa: PLW2901  (those modes know none)
        given = random((2, 3, *shape), dtype, 1)
        flags = {} if mode.startswith("nearest") else {"align_corners": corners}
        if match["mode"].endswith("_aa"):
            flags["antialias"] = True
        value = F.interpolate(given.double(), target, mode=mode, **flags)
        # Integers are computed in fixed point, and rounded once a dimension: by how much is not agreed on.
        whole = not dtype.is_floating_point and not mode.startswith("nearest")
        made = {"outputData": lambda bound: bound["outputData"].float()} if whole else {}
        scales = [
            (s - 1) / (t - 1) if corners and t > 1 else s / t
            for s, t in zip(shape, target, strict=True)
        ]
        params = struct(
            kernel, "params", input_strides=given.stride(), input_sizes=given.shape,
            output_strides=value.stride(), output_sizes=value.shape,
            scales=list(reversed(scales)), align_corners=int(corners),
        )  # fmt: skip
        yield Launch(
            {"inputData": given, "outputData": untouched(value.shape, dtype), "params": params},
            (value[0, 0].numel(),), (32,), {"outputData": (given, value, dims / 2 if whole else 2e-5)}, made=made,
        )  # fmt: skip


# Linear algebra: LinearAlgebra.mm


@family(r"triangular_solve_(?P<a>float|float2)")
def _triangular(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    size, columns = 5, 3
    for upper in (0, 1):
        given = random((2, size, size), dtype, 1) / 4
        given = (given.triu(1) if upper else given.tril(-1)) + 2 * torch.eye(size, dtype=dtype)
        right = random((2, size, columns), dtype, 2)
        value = torch.linalg.solve_triangular(widened(given), widened(right), upper=bool(upper))
        params = struct(kernel, "p", nbatch=2, n=size, k=columns, upper=upper)
        group = 32
        yield Launch(
            {"A": given, "B": right, "X": untouched(right.shape, dtype), "p": params},
            (2 * columns * group,), (group,), {"X": (given, value, 1e-5)},
            {"xs": 4096, "red": 4096},
        )  # fmt: skip


@family(r"naive_bmm_(?P<a>[a-z0-9]+)")
def _bmm(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    batch, m, k, n = 2, 19, 33, 17
    left, right = random((batch, m, k), dtype, 1), random((batch, k, n), dtype, 2)
    value = widened(left) @ widened(right)
    size = widened(left).abs().double() @ widened(right).abs().double()
    strides = numbers(*(s for t in (left, right, value) for s in reversed(t.stride())), size=8)
    yield Launch(
        {
            "mat1Data": left, "mat2Data": right, "outputData": untouched(value.shape, dtype),
            "strides": strides, "sizes": numbers(m, k, n, batch),
        },
        (-(-n // 16) * 16, -(-m // 16) * 16, batch), (16, 16, 1),
        {"outputData": (left, value, size * 8 * EPS)},
    )  # fmt: skip


@family(
    r"gemv_nt_(?P<a>[a-z0-9]+)_(?P<simd>\d+)_(?P<vector>\d+)_(?P<end>ab|none)_(?P<x>xs|xc)(?P<strided>_strided)?(_i64)?"
)
def _matrix_times_vector(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with a simdgroup for each row of the matrix; the vector's stride is 1 in the forms `xc`."""
    dtype, simdgroups = dtype_named(match["a"]), int(match["simd"])
    rows = 11
    for depth in (1, 37, 300):
        step = 2 if match["x"] == "xs" else 1
        matrix, vector = random((rows, depth), dtype, 1), random((depth, step), dtype, 2)
        bias = random((rows,), dtype, 3)
        value = widened(matrix) @ widened(vector[:, 0])
        size = widened(matrix).abs().double() @ widened(vector[:, 0]).abs().double()
        if match["end"] == "ab":
            value, size = 2 * value + 0.5 * widened(bias), 2 * size + widened(bias).abs().double()
        dims = struct(kernel, "gP", n=rows, K=depth, ld=depth, ms=1, xs=step, bias_r=1, bias_c=1)
        yield Launch(
            {
                "A": matrix, "x": vector, "y": untouched((rows,), dtype), "gP": dims, "bias": bias,
                "alpha_beta": torch.tensor([2.0, 0.5]).to(_scale_dtype(kernel, dtype)),
            },
            (-(-rows // simdgroups) * simdgroups * 32, 1, 1), (simdgroups * 32, 1, 1),
            {"y": (matrix, value, size * 16 * EPS + value.abs().double() * _rounding(dtype))},
        )  # fmt: skip


def _scale_dtype(kernel: Kernel, dtype: torch.dtype) -> torch.dtype:
    """Return the type of alpha and beta, which is float32 for the half types."""
    argument = next(argument for argument in kernel.buffers if argument.name == "alpha_beta")
    return dtype_named(argument.fields[0].type) if argument.fields else dtype


def _rounding(dtype: torch.dtype) -> float:
    return _half_step(dtype) if dtype in {torch.float16, torch.bfloat16} else EPS


@family(
    r"group_norm_(?P<x>[a-z0-9]+)_(?P<stat>[a-z0-9]+)_(?P<gamma>[a-z0-9]+)_(?P<beta>[a-z0-9]+)_uint(?:32|64)_t"
)
def _group_norm(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, statistics = dtype_named(match["x"]), dtype_named(match["stat"])
    batch, groups, per_group, extent = 2, 3, 4, 15
    channels = groups * per_group
    given = random((batch, channels, extent), dtype, 1)
    affine = {
        name: None if match[name] == "void" else random((channels,), dtype_named(match[name]), salt)
        for salt, name in ((2, "gamma"), (3, "beta"))
    }
    wide = given.double()
    gamma, beta = (None if tensor is None else tensor.double() for tensor in affine.values())
    value = F.group_norm(wide, groups, gamma, beta, 1e-5)
    rows = wide.reshape(batch * groups, -1)
    mean, rstd = rows.mean(-1), (rows.var(-1, correction=0) + 1e-5).rsqrt()
    params = _group_params(kernel, batch, groups, per_group, extent)
    bound = {
        "Y": untouched(given.shape, dtype), "mean": untouched((batch * groups,), statistics),
        "rstd": untouched((batch * groups,), statistics), "X": given, "params": params,
    }  # fmt: skip
    for name, tensor in affine.items():
        bound[name] = torch.zeros(8) if tensor is None else tensor
    group = 64
    slack = 1e-5 + 4 * _rounding(dtype)
    yield Launch(
        bound, (batch * groups * group,), (group,),
        {
            "Y": (given, value, slack * 4),
            "mean": (given, mean, 1e-6 + _rounding(statistics)),
            "rstd": (given, rstd, rstd * (1e-5 + _rounding(statistics))),
        },
    )  # fmt: skip


def _group_params(kernel: Kernel, batch: int, groups: int, per_group: int, extent: int) -> Tensor:
    return struct(
        kernel, "params", HxW=extent, num_groups=groups, channels_per_group=per_group,
        elements_per_group=per_group * extent, C=groups * per_group, N_times_HxW=batch * extent, eps=1e-5,
    )  # fmt: skip


@family(
    r"group_norm_backward_(?P<of>x|affine)_(?P<x>[a-z0-9]+)_(?P<stat>[a-z0-9]+)_(?P<gamma>[a-z0-9]+)_uint(?:32|64)_t"
)
def _group_norm_backward(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, statistics = dtype_named(match["x"]), dtype_named(match["stat"])
    batch, groups, per_group, extent = 2, 3, 4, 15
    channels = groups * per_group
    given, upstream = (
        random((batch, channels, extent), dtype, 1),
        random((batch, channels, extent), dtype, 2),
    )
    kind = None if match["gamma"] == "void" else dtype_named(match["gamma"])
    gamma = torch.ones(channels, dtype=dtype) if kind is None else random((channels,), kind, 3)
    wide = given.double().requires_grad_()
    scale, shift = (
        gamma.double().requires_grad_(),
        torch.zeros(channels, dtype=torch.float64, requires_grad=True),
    )
    result = F.group_norm(wide, groups, scale, shift, 1e-5)
    gradients = torch.autograd.grad(result, (wide, scale, shift), upstream.double())
    rows = wide.detach().reshape(batch * groups, -1)
    mean, rstd = (
        rows.mean(-1).to(statistics),
        (rows.var(-1, correction=0) + 1e-5).rsqrt().to(statistics),
    )
    bound = {
        "dX": untouched(given.shape, dtype), "dY": upstream, "X": given, "mean": mean, "rstd": rstd,
        "gamma": gamma, "params": _group_params(kernel, batch, groups, per_group, extent),
        "dgamma": untouched((channels,), gamma.dtype), "dbeta": untouched((channels,), gamma.dtype),
    }  # fmt: skip
    wanted = {argument.name for argument in kernel.buffers}
    slack = 1e-4 + 64 * (_rounding(dtype) + _rounding(statistics) + _rounding(gamma.dtype))
    expected: dict[str, Any] = {"dX": (given, gradients[0], slack)}
    if match["of"] == "affine":
        expected = {"dgamma": (given, gradients[1], slack), "dbeta": (given, gradients[2], slack)}
    count = batch * groups if match["of"] == "x" else channels
    yield Launch(
        {name: tensor for name, tensor in bound.items() if name in wanted},
        (count * 64,), (64,), expected,
    )  # fmt: skip
