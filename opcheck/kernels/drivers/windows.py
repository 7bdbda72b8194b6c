"""Calls the kernels that slide a window: convolution, im2col and col2im, pooling's gradients, padding at the edge.

The host functions are in Convolution.mm, Im2Col.mm, Col2Im.mm, Pooling.mm and Pad.mm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's own abbreviation)
from torch import Tensor

from opcheck.kernels.drivers.products import rounding, slack, taken
from opcheck.kernels.launch import (
    Launch,
    dtype_named,
    family,
    random,
    struct,
    untouched,
    widened,
)
from opcheck.kernels.machine import Kernel
from opcheck.kernels.pointwise import numbers

_DTYPES = r"(?P<a>float|half|bfloat)"


def _group_of(given: Tensor, weight: Tensor) -> int:
    return given.shape[1] // weight.shape[1]


def _convolved(given: Tensor, weight: Tensor, bias: Tensor, **how: Any) -> tuple[Tensor, Tensor]:
    """Return a convolution in double, and the same of the absolute values."""
    function = (F.conv1d, F.conv2d, F.conv3d)[given.dim() - 3]
    groups = _group_of(given, weight)
    first, second = (
        function(a.double(), b.double(), c.double(), groups=groups, **how)
        for a, b, c in ((given, weight, bias), (given.abs(), weight.abs(), bias.abs()))
    )
    return first, second


def _geometry(given: Tensor, weight: Tensor, value: Tensor, **how: Any) -> dict[str, int]:
    """Return the fields of Conv2DParams (Convolution.h) for tensors of (batch, channels, height, width)."""
    groups = _group_of(given, weight)
    (height, width), (k_height, k_width) = given.shape[-2:], weight.shape[-2:]
    fields = {
        "N": given.shape[0], "C_in": given.shape[1], "C_out": weight.shape[0], "H": height, "W": width,
        "outH": value.shape[-2], "outW": value.shape[-1], "kH": k_height, "kW": k_width,
        "C_in_per_group": weight.shape[1], "C_out_per_group": weight.shape[0] // groups, "has_bias": 1,
    }  # fmt: skip
    for name, key in (("s", "stride"), ("pad", "padding"), ("d", "dilation")):
        fields[f"{name}H"], fields[f"{name}W"] = how[key][-2:]
    return fields


@family(rf"conv2d_r(?P<per>[14])_i(?:32|64)_{_DTYPES}")
def _conv2d(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call the kernels whose threads have one or four neighbours of a row each."""
    dtype, per = dtype_named(match["a"]), int(match["per"])
    for how, groups in (
        ({"stride": (1, 1), "padding": (1, 0), "dilation": (1, 1)}, 1),
        ({"stride": (2, 3), "padding": (2, 1), "dilation": (2, 1)}, 2),
    ):
        given, weight = random((2, 4, 9, 11), dtype, 1), random((6, 4 // groups, 3, 2), dtype, 2)
        bias = random((6,), dtype, 3)
        value, size = _convolved(given, weight, bias, **how)
        params = struct(kernel, "p", **_geometry(given, weight, value, **how))
        yield Launch(
            {
                "input": given, "weight": weight, "bias": bias,
                "output": untouched(value.shape, dtype), "p": params,
            },
            (value[..., 0].numel() * -(-value.shape[-1] // per),), (32,),
            {"output": (given, value, slack(size, value, dtype))},
        )  # fmt: skip


@family(rf"conv1d_depthwise_(?P<layout>ncl|nlc)_{_DTYPES}")
def _conv1d(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with two outputs a channel; each thread has eight neighbours, which `nlc` writes channels last."""
    dtype = dtype_named(match["a"])
    for stride, padding, dilation in ((1, 2, 1), (2, 1, 3)):
        given, weight = random((2, 3, 45), dtype, 1), random((6, 1, 4), dtype, 2)
        bias = random((6,), dtype, 3)
        value, size = _convolved(
            given, weight, bias, stride=stride, padding=padding, dilation=dilation
        )
        flat = (given[:, :, None], weight[:, :, None], value[:, :, None])
        params = struct(
            kernel, "p",
            **_geometry(*flat, stride=(1, stride), padding=(0, padding), dilation=(1, dilation)),
        )  # fmt: skip
        grid = (-(-value.shape[-1] // 8), 6, 2)
        if match["layout"] == "nlc":
            value, size = value.transpose(1, 2).contiguous(), size.transpose(1, 2).contiguous()
        yield Launch(
            {
                "input": given, "weight": weight, "bias": bias,
                "output": untouched(value.shape, dtype), "p": params,
            },
            grid, (1, 1, 1), {"output": (given, value, slack(size, value, dtype))},
        )  # fmt: skip


@family(
    r"conv3d_simd(?P<long>_long)?_(?P<a>float|half|bfloat)_(?P<bm>\d+)_(?P<bn>\d+)_(?P<wm>\d+)_(?P<wn>\d+)"
)
def _conv3d(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with the channels last in the input and first in the output or not; the weight is DHWIO."""
    dtype, rows, columns = dtype_named(match["a"]), int(match["bm"]), int(match["bn"])
    threads = int(match["wm"]) * int(match["wn"]) * 32
    for groups, first in ((1, 0), (2, 1)):
        how = {"stride": (1, 2, 1), "padding": (1, 0, 2), "dilation": (1, 1, 2)}
        given, weight = (
            random((2, 6, 4, 11, 10), dtype, 1),
            random((10, 6 // groups, 2, 3, 2), dtype, 2),
        )
        bias = random((10,), dtype, 3)
        value, size = _convolved(given, weight, bias, **how)
        params = struct(
            kernel, "gP", D=given.shape[2], outD=value.shape[2], kD=2, sD=1, padD=1, dD=1, out_ncdhw=first,
            **_geometry(given, weight, value, **how),
        )  # fmt: skip
        grid = (
            groups * -(-10 // groups // columns) * threads,
            -(-value[0, 0, 0].numel() // rows),
            2 * value.shape[2],
        )
        if not first:
            value, size = (t.permute(0, 2, 3, 4, 1).contiguous() for t in (value, size))
        yield Launch(
            {
                "act": given.permute(0, 2, 3, 4, 1).contiguous(),
                "wts": weight.permute(2, 3, 4, 1, 0).contiguous(),
                "dst": untouched(value.shape, dtype), "gP": params, "bias": bias,
            },
            grid, (threads, 1, 1), {"dst": (given, value, slack(size, value, dtype))},
        )  # fmt: skip


@family(rf"conv_weight_to_dhwio_{_DTYPES}")
def _weight_layout(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    weight = random((5, 3, 2, 4, 3), dtype_named(match["a"]), 1)
    names = ("output_channel", "input_channel", "depth", "height", "width")
    strides = dict(zip((f"{name}_stride" for name in names), weight.stride(), strict=True))
    params = struct(
        kernel, "params", output_channels=5, input_channels_per_group=3, kernel_height=4, kernel_width=3, **strides
    )  # fmt: skip
    value = weight.permute(2, 3, 4, 1, 0).contiguous()
    bound = {
        "source": weight,
        "destination": untouched(value.shape, weight.dtype),
        "params": params,
    }
    # A thread copies a row of the window.
    yield Launch(bound, (5, 3, 8), (1, 1, 1), {"destination": (weight, value, 0.0)})


@family(
    rf"nchw_to_nhwc_{_DTYPES}_(?P<tc>\d+)_(?P<tx>\d+)_(?P<read>true|false)_(?P<write>true|false)"
)
def _channels_last(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    """Call with extents that are even where two elements move at once."""
    dtype, tile = dtype_named(match["a"]), (int(match["tc"]), int(match["tx"]))
    channels = 34 if match["write"] == "true" else 35
    extent = 150 if match["read"] == "true" else 151
    given = random((2, channels, extent), dtype, 1)
    value = given.transpose(1, 2).contiguous()
    grid = (-(-extent // tile[1]) * 256, -(-channels // tile[0]), 2)
    bound = {
        "src": given,
        "dst": untouched(value.shape, dtype),
        "dims": numbers(channels, extent),
    }
    yield Launch(bound, grid, (256, 1, 1), {"dst": (given, value, 0.0)})


# Columns of windows

#: Kernel, dilation, padding and stride, each as (height, width).
_WINDOWS = (((3, 2), (1, 1), (0, 0), (1, 1)), ((2, 3), (2, 1), (1, 2), (2, 1)))


@family(r"im2col_(?P<a>[a-z0-9]+)_u(?P<bits>32|64)")
def _im2col(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    dtype, width = dtype_named(match["a"]), int(match["bits"]) // 8
    for window, dilation, padding, stride in _WINDOWS:
        given = random((2, 3, 7, 8), dtype, 1)
        wide = given.double() if dtype == torch.bool else widened(given)
        value = F.unfold(wide, window, dilation, padding, stride)
        columns = (8 + 2 * padding[1] - dilation[1] * (window[1] - 1) - 1) // stride[1] + 1
        bound = {
            "inputData": given, "outputData": untouched(value.shape, dtype),
            "kernel_dilation": numbers(*reversed(window), *reversed(dilation)),
            "padding_stride": numbers(*reversed(padding), *reversed(stride)),
            "input_strides": numbers(*reversed(given.stride()), size=width),
            "output_strides": numbers(*reversed(value.stride()), columns, size=width),
            "input_sizes": numbers(*reversed(given.shape), size=width),
        }  # fmt: skip
        yield Launch(bound, (value.shape[2], 3, 2), (64, 1, 1), {"outputData": (given, value, 0.0)})


@family(r"col2im_kernel_(?P<a>[a-z0-9]+)_u(?P<bits>32|64)")
def _col2im(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    dtype, width = dtype_named(match["a"]), int(match["bits"]) // 8
    for window, dilation, padding, stride in _WINDOWS:
        shape = [
            (extent + 2 * pad - step * (size - 1) - 1) // by + 1
            for extent, size, step, pad, by in zip(
                (7, 8), window, dilation, padding, stride, strict=True
            )
        ]
        given = random((2, 3 * window[0] * window[1], shape[0] * shape[1]), dtype, 1)
        wide = given.double() if dtype == torch.bool else widened(given)
        value = F.fold(wide, (7, 8), window, dilation, padding, stride)
        size = F.fold(wide.abs(), (7, 8), window, dilation, padding, stride)
        bound = {
            "data_col": given, "data_im": untouched(value.shape, dtype),
            "col_batch_stride": numbers(given.stride(0), 0, size=width), "channels": numbers(3),
            "im_hw": numbers(7, 8), "kernel_hw": numbers(*window), "pad_hw": numbers(*padding),
            "stride_hw": numbers(*stride), "dilation_hw": numbers(*dilation), "col_hw": numbers(*shape),
            "im_batch_stride": numbers(value.stride(0), 0, size=width),
            "col_inner_strides": numbers(given.stride(1), given.stride(2), size=width),
        }  # fmt: skip
        partly = size.abs().double() * 6 * rounding(dtype)  # each addition is rounded
        yield Launch(bound, (8, 7, 6), (8, 7, 1), {"data_im": (given, value, partly)})


@family(r"unfold_backward_(?P<a>float|half|bfloat|float2|half2)")
def _unfold_backward(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    for window, step in ((3, 2), (2, 3)):
        upstream = random((4, len(range(0, 11 - window, step)), 5, window), dtype, 1)
        value = torch.ops.aten.unfold_backward(widened(upstream), (4, 10, 5), 1, window, step)
        # Innermost first; the window's own dimension is the last.
        strides = [upstream.stride(place) for place in (2, 1, 0, 3)]
        bound = {
            "grad_in": upstream, "grad_out": untouched(value.shape, dtype),
            "input_strides": numbers(*strides, size=8), "output_sizes": numbers(5, 10, 4, size=8),
            "output_strides": numbers(1, 5, 50, size=8), "dim_size_step_ndim": numbers(1, window, step, 3),
        }  # fmt: skip
        yield Launch(
            bound, (value.numel(),), (32,),
            {"grad_out": (upstream, value, value.abs().double() * 4 * rounding(dtype))},
        )  # fmt: skip


# Pooling's gradients: zeros come first, and each window adds to them.


def _atomics(dtype: torch.dtype, shape: torch.Size) -> Tensor:
    """Return zeros; atomics of small dtypes take whole words, beyond the end of an odd tensor."""
    return torch.zeros(shape.numel() + 8, dtype=dtype)


def _padded(value: Tensor) -> Tensor:
    return torch.cat([value.flatten(), torch.zeros(8, dtype=value.dtype)])


@family(rf"(?P<op>max|avg)_pool_backward_{_DTYPES}")
def _pooling_backward(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, largest = dtype_named(match["a"]), match["op"] == "max"
    for size, stride, padding in (
        ((1, 2, 2), (1, 2, 2), (0, 0, 0)),
        ((2, 3, 2), (1, 1, 2), (1, 1, 0)),
    ):
        given = random((2, 3, 4, 7, 8), torch.float32, 1).double().requires_grad_()
        if largest:
            result, places = F.max_pool3d(given, size, stride, padding, return_indices=True)
            fields = {
                "grad_input_sizes": given.shape, "grad_input_strides": given.stride(),
                "grad_output_sizes": result.shape, "grad_output_strides": result.stride(),
                "indices_strides": places.stride(),
            }  # fmt: skip
        else:
            result, places = F.avg_pool3d(given, size, stride, padding), torch.zeros(1)
            fields = {
                "input_sizes": given.shape, "input_strides": given.stride(), "output_sizes": result.shape,
                "output_strides": result.stride(), "kernel_size": size, "stride": stride, "padding": padding,
                "count_include_pad": (1,),
            }  # fmt: skip
        upstream = random(result.shape, dtype, 2)
        value, bound_by = (
            _padded(torch.autograd.grad(result, given, gradient.double(), retain_graph=True)[0])
            for gradient in (upstream, upstream.abs())
        )
        bound = {
            "grad_input": _atomics(dtype, given.shape), "grad_output": upstream, "indices": places,
            "params": struct(kernel, "params", dims=5, pooling_dims=3, **fields),
        }  # fmt: skip
        yield Launch(
            taken(kernel, bound), (upstream.numel(),), (32,),
            {"grad_input": (upstream, value, 8 * rounding(dtype) * bound_by)},
        )  # fmt: skip


@family(r"max_unpool_(?P<a>[a-z0-9]+)")
def _unpooling(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    given = random((2, 3, 4, 5), dtype, 1)
    order = torch.rand((2, 3, 56), generator=torch.Generator().manual_seed(1)).argsort(-1)
    places = order[..., :20].reshape(2, 3, 4, 5).contiguous()
    value = widened(given).new_zeros((2, 3, 56))
    value = value.scatter(2, places.flatten(2), widened(given).flatten(2)).reshape(2, 3, 7, 8)
    params = struct(
        kernel, "params", dims=4, pooling_dims=2, input_sizes=given.shape, input_strides=given.stride(),
        output_sizes=value.shape, output_strides=value.stride(), indices_strides=places.stride(),
    )  # fmt: skip
    yield Launch(
        {"output": torch.zeros(value.shape, dtype=dtype), "input": given, "indices": places, "params": params},
        (given.numel(),), (32,), {"output": (given, value, 0.0)},
    )  # fmt: skip


@family(r"replication_pad1d_(?P<way>forward|backward)_(?P<a>[a-z0-9]+)")
def _replication(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    """Call with padding that adds and takes away; the third number is what is added before."""
    dtype, shape = dtype_named(match["a"]), (2, 3, 9)
    for before, after in ((3, 2), (-2, 4), (0, -3)):
        if match["way"] == "forward":
            given = random(shape, dtype, 1)
            value = F.pad(
                widened(given).double() if dtype == torch.bool else widened(given),
                (before, after),
                "replicate",
            )
            names, sizes = ("input", "output"), (9, 9 + before + after)
        else:
            given = random((2, 3, 9 + before + after), dtype, 1)
            wide = widened(given).new_zeros(shape).requires_grad_()
            result = F.pad(wide, (before, after), "replicate")
            value = torch.autograd.grad(result, wide, widened(given))[0].resolve_conj()
            names, sizes = ("grad_output", "grad_input"), (9, 9 + before + after)
        bound = {
            names[0]: given, names[1]: untouched(value.shape, dtype),
            "sizes_pad": numbers(*sizes, before, after),
        }  # fmt: skip
        yield Launch(
            bound, (value.shape[-1], 3, 2), (1, 1, 1),
            {names[1]: (given, value, value.abs().double() * 4 * rounding(dtype))},
        )  # fmt: skip
