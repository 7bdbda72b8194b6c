"""Calls the kernels that slide a window or sample a grid, and their gradients.

The host functions are in Convolution.mm, Im2Col.mm, Col2Im.mm, Pooling.mm, GridSampler.mm and UpSample.mm.
"""

import itertools
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.nn import functional

from opcheck.kernels.drivers.operator_calls import call_operator
from opcheck.kernels.host.layer_calls import UPSAMPLING
from opcheck.kernels.judging import EPS, rounding, summed_slack
from opcheck.kernels.launch import KernelCall, Launch, Launches, describe, family
from opcheck.kernels.pointwise import Unfit, dtype_named
from opcheck.kernels.values import fill_untouched, pad_words, random, widen

aten = torch.ops.aten

# Pooling and upsampling: Pooling.mm, UpSample.mm


@family(r"(?P<op>max|avg)_pool_{any}")
def _pooling(call: KernelCall, dtype: torch.dtype) -> Launches:
    largest = call["op"] == "max"
    if dtype == torch.bool and not largest:
        raise Unfit("no mean is defined for bool: the CPU refuses it")
    for size, stride, padding in (((2, 2), (2, 2), (0, 0)), ((3, 2), (1, 2), (1, 1))):
        operand = random((2, 3, 7, 8), dtype, 1)
        wide = operand.double()
        value, places = functional.max_pool2d(wide, size, stride, padding, return_indices=True)
        if not largest:
            value = functional.avg_pool2d(wide, size, stride, padding)
            value = value if dtype.is_floating_point else value.trunc()  # the CPU divides integers
        params = call.fit("params", dims=4, pooling_dims=2, kernel_size=size, stride=stride, padding=padding,
            dilation=(1, 1), return_indices=1, count_include_pad=1,
            **describe(input=operand, output=value, indices=value))  # fmt: skip
        # Another order of summation of at most nine values may change the result.
        expected: dict[str, Any] = {"output": (operand, value, float(wide.abs().amax()) * 9 * EPS)}
        if largest and dtype.is_floating_point:
            expected["indices"] = (operand, places, 0.0)
        bound = {"input": operand, "params": params, "indices": fill_untouched(value.shape, torch.int64)}
        yield Launch(bound, value.numel(), expected, group=32)


#: The operators by their modes.
_RESIZED = {mode: name for name, mode in UPSAMPLING.items()}


def _resized(mode: str) -> tuple[str, int]:
    """Return the operator of a mode, and its dimensions."""
    name = _RESIZED[mode]
    return name, int(name[name.rindex("d") - 1] if name.endswith("d") else 2)


@family(r"upsample_(?P<mode>(?!\w*backward)\w+?)_(?P<a>float|half|bfloat|uchar|char|int|short|long|bool)")
def _upsample(call: KernelCall, dtype: torch.dtype) -> Launches:
    if call["mode"] not in _RESIZED:
        raise Unfit(f"the mode {call['mode']} is not driven")
    name, dims = _resized(call["mode"])
    nearest = "nearest" in name
    for shape, target, corners in (
        ((5, 4, 6)[:dims], (7, 9, 11)[:dims], False),
        ((6, 7, 5)[:dims], (3, 4, 9)[:dims], not nearest and "_aa" not in name),
    ):
        operand = random((2, 3, *shape), dtype, 1)
        value = getattr(aten, name)(operand.double(), target, *(() if nearest else (corners,)))
        # Integers are computed in fixed point, and rounded once a dimension: by how much is not agreed on.
        whole = not dtype.is_floating_point and not nearest
        result = operand, value, dims / 2 if whole else 2e-5
        launch = call_operator(call, name, result, self=operand, align_corners=corners)
        if whole:
            (key, read), *_ = launch.derived.items()
            launch = msgspec.structs.replace(launch, derived={key: lambda bound, read=read: read(bound).float()})
        yield launch


def _convolve(operand: Tensor, weight: Tensor, bias: Tensor, **how: Any) -> tuple[Tensor, Tensor]:
    """Return a convolution in double, and the same of the absolute values."""
    function: Any = (functional.conv1d, functional.conv2d, functional.conv3d)[operand.dim() - 3]
    wide, groups = [each.double() for each in (operand, weight, bias)], operand.shape[1] // weight.shape[1]
    return function(*wide, groups=groups, **how), function(*(each.abs() for each in wide), groups=groups, **how)


def _geometry(operand: Tensor, weight: Tensor, value: Tensor, **how: Any) -> dict[str, int]:
    """Return the fields of Conv2DParams (Convolution.h) for tensors of (batch, channels, height, width)."""
    groups = operand.shape[1] // weight.shape[1]
    (height, width), (k_height, k_width) = operand.shape[-2:], weight.shape[-2:]
    fields = {
        "N": operand.shape[0], "C_in": operand.shape[1], "C_out": weight.shape[0], "H": height, "W": width,
        "outH": value.shape[-2], "outW": value.shape[-1], "kH": k_height, "kW": k_width,
        "C_in_per_group": weight.shape[1], "C_out_per_group": weight.shape[0] // groups, "has_bias": 1,
    }  # fmt: skip
    for name, key in (("s", "stride"), ("pad", "padding"), ("d", "dilation")):
        fields[f"{name}H"], fields[f"{name}W"] = how[key][-2:]
    return fields


@family(r"conv2d_r(?P<per>[14])_i(?:32|64)_{float}")
def _conv2d(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call the kernels whose threads have one or four neighbours of a row each."""
    per = int(call["per"])
    for how, groups in (
        ({"stride": (1, 1), "padding": (1, 0), "dilation": (1, 1)}, 1),
        ({"stride": (2, 3), "padding": (2, 1), "dilation": (2, 1)}, 2),
    ):
        operand, weight = random((2, 4, 9, 11), dtype, 1), random((6, 4 // groups, 3, 2), dtype, 2)
        bias = random((6,), dtype, 3)
        value, size = _convolve(operand, weight, bias, **how)
        params = call.struct("p", **_geometry(operand, weight, value, **how))
        bound = {"input": operand, "weight": weight, "bias": bias, "p": params}
        expected = {"output": (operand, value, summed_slack(size, value, dtype))}
        yield Launch(bound, value[..., 0].numel() * -(-value.shape[-1] // per), expected, group=32)


@family(r"conv1d_depthwise_(?P<layout>ncl|nlc)_{float}")
def _conv1d(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with two outputs a channel; each thread has eight neighbours, which `nlc` writes channels last."""
    for stride, padding, dilation in ((1, 2, 1), (2, 1, 3)):
        operand, weight = random((2, 3, 45), dtype, 1), random((6, 1, 4), dtype, 2)
        bias = random((6,), dtype, 3)
        value, size = _convolve(operand, weight, bias, stride=stride, padding=padding, dilation=dilation)
        flat = (operand[:, :, None], weight[:, :, None], value[:, :, None])
        params = call.struct("p", **_geometry(*flat, stride=(1, stride), padding=(0, padding), dilation=(1, dilation)))
        grid = (-(-value.shape[-1] // 8), 6, 2)
        if call["layout"] == "nlc":
            value, size = value.transpose(1, 2).contiguous(), size.transpose(1, 2).contiguous()
        expected = {"output": (operand, value, summed_slack(size, value, dtype))}
        yield Launch({"input": operand, "weight": weight, "bias": bias, "p": params}, grid, expected)


@family(r"conv3d_simd(?P<long>_long)?_{float}_(?P<bm>\d+)_(?P<bn>\d+)_(?P<wm>\d+)_(?P<wn>\d+)")
def _conv3d(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with the channels last in the input and first in the output or not; the weight is DHWIO."""
    rows, columns = int(call["bm"]), int(call["bn"])
    threads = int(call["wm"]) * int(call["wn"]) * 32
    for groups, first in ((1, 0), (2, 1)):
        how = {"stride": (1, 2, 1), "padding": (1, 0, 2), "dilation": (1, 1, 2)}
        operand, weight = random((2, 6, 4, 11, 10), dtype, 1), random((10, 6 // groups, 2, 3, 2), dtype, 2)
        bias = random((10,), dtype, 3)
        value, size = _convolve(operand, weight, bias, **how)
        params = call.struct("gP", D=operand.shape[2], outD=value.shape[2], kD=2, sD=1, padD=1, dD=1, out_ncdhw=first,
            **_geometry(operand, weight, value, **how))  # fmt: skip
        grid = (groups * -(-10 // groups // columns) * threads, -(-value[0, 0, 0].numel() // rows), 2 * value.shape[2])
        if not first:
            value, size = (t.permute(0, 2, 3, 4, 1).contiguous() for t in (value, size))
        yield Launch({
            "act": operand.permute(0, 2, 3, 4, 1).contiguous(), "wts": weight.permute(2, 3, 4, 1, 0).contiguous(),
            "gP": params, "bias": bias
        }, grid, {"dst": (operand, value, summed_slack(size, value, dtype))}, group=(threads, 1, 1))  # fmt: skip


@family(r"conv_weight_to_dhwio_{float}")
def _weight_layout(call: KernelCall) -> Launches:
    weight = random((5, 3, 2, 4, 3), dtype_named(call["a"]), 1)
    names = ("output_channel", "input_channel", "depth", "height", "width")
    strides = dict(zip((f"{name}_stride" for name in names), weight.stride(), strict=True))
    params = call.struct(
        "params", output_channels=5, input_channels_per_group=3, kernel_height=4, kernel_width=3, **strides
    )
    value = weight.permute(2, 3, 4, 1, 0).contiguous()
    # A thread copies a row of the window.
    yield Launch({"source": weight, "params": params}, (5, 3, 8), {"destination": (weight, value)})


@family(r"nchw_to_nhwc_{float}_(?P<tc>\d+)_(?P<tx>\d+)_(?P<read>true|false)_(?P<write>true|false)")
def _channels_last(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with extents that are even where two elements move at once."""
    tile = (int(call["tc"]), int(call["tx"]))
    channels = 34 if call["write"] == "true" else 35
    extent = 150 if call["read"] == "true" else 151
    operand = random((2, channels, extent), dtype, 1)
    value = operand.transpose(1, 2).contiguous()
    grid = (-(-extent // tile[1]) * 256, -(-channels // tile[0]), 2)
    bound = {"src": operand, "dims": (channels, extent)}
    yield Launch(bound, grid, {"dst": (operand, value)}, group=(256, 1, 1))


# Columns of windows

#: Kernel, dilation, padding and stride, each as (height, width).
_WINDOWS = (((3, 2), (1, 1), (0, 0), (1, 1)), ((2, 3), (2, 1), (1, 2), (2, 1)))


@family(r"im2col_{any}(?:_u32|_u64)?")
def _im2col(_call: KernelCall, dtype: torch.dtype) -> Launches:
    for window, dilation, padding, stride in _WINDOWS:
        operand = random((2, 3, 7, 8), dtype, 1)
        wide = operand.double() if dtype == torch.bool else widen(operand)
        value = functional.unfold(wide, window, dilation, padding, stride)
        columns = (8 + 2 * padding[1] - dilation[1] * (window[1] - 1) - 1) // stride[1] + 1
        yield Launch({
            "inputData": operand, "kernel_dilation": (*reversed(window), *reversed(dilation)),
            "padding_stride": (*reversed(padding), *reversed(stride)), "input_strides": (*reversed(operand.stride()),),
            "output_strides": (*reversed(value.stride()), columns), "input_sizes": (*reversed(operand.shape),)
        }, (value.shape[2], 3, 2), {"outputData": (operand, value)}, group=(64, 1, 1))  # fmt: skip


@family(r"col2im_kernel_{any}(?:_u32|_u64)?")
def _col2im(_call: KernelCall, dtype: torch.dtype) -> Launches:
    for window, dilation, padding, stride in _WINDOWS:
        shape = [
            (extent + 2 * pad - step * (size - 1) - 1) // by + 1
            for extent, size, step, pad, by in zip((7, 8), window, dilation, padding, stride, strict=True)
        ]
        operand = random((2, 3 * window[0] * window[1], shape[0] * shape[1]), dtype, 1)
        wide = operand.double() if dtype == torch.bool else widen(operand)
        value = functional.fold(wide, (7, 8), window, dilation, padding, stride)
        size = functional.fold(wide.abs(), (7, 8), window, dilation, padding, stride)
        partly = size.abs().double() * 6 * rounding(dtype)  # each addition is rounded
        yield Launch({
            "data_col": operand, "col_batch_stride": (operand.stride(0), 0), "channels": 3, "im_hw": (7, 8),
            "kernel_hw": window, "pad_hw": padding, "stride_hw": stride, "dilation_hw": dilation, "col_hw": shape,
            "im_batch_stride": (value.stride(0), 0), "col_inner_strides": (operand.stride(1), operand.stride(2))
        }, (8, 7, 6), {"data_im": (operand, value, partly)}, group=(8, 7, 1))  # fmt: skip


@family(r"unfold_backward_(?P<a>float|half|bfloat|float2|half2)")
def _unfold_backward(_call: KernelCall, dtype: torch.dtype) -> Launches:
    for window, step in ((3, 2), (2, 3)):
        upstream = random((4, len(range(0, 11 - window, step)), 5, window), dtype, 1)
        value = aten.unfold_backward(widen(upstream), (4, 10, 5), 1, window, step)
        # Innermost first; the window's own dimension is the last.
        strides = [upstream.stride(place) for place in (2, 1, 0, 3)]
        yield Launch({
            "grad_in": upstream, "input_strides": strides, "output_sizes": (5, 10, 4), "output_strides": (1, 5, 50),
            "dim_size_step_ndim": (1, window, step, 3)
        }, value.numel(), {"grad_out": (upstream, value, value.abs().double() * 4 * rounding(dtype))}, group=32
        )  # fmt: skip


# Pooling's gradients: zeros come first, and each window adds to them.


@family(r"(?P<op>max|avg)_pool_backward_{float}")
def _pooling_backward(call: KernelCall, dtype: torch.dtype) -> Launches:
    largest = call["op"] == "max"
    for size, stride, padding in (((1, 2, 2), (1, 2, 2), (0, 0, 0)), ((2, 3, 2), (1, 1, 2), (1, 1, 0))):
        operand = random((2, 3, 4, 7, 8), torch.float32, 1).double().requires_grad_()
        result, places = functional.max_pool3d(operand, size, stride, padding, return_indices=True)
        if not largest:
            result = functional.avg_pool3d(operand, size, stride, padding)
        tensors = {"grad_input": operand, "input": operand, "grad_output": result, "output": result, "indices": places}
        params = call.fit("params", dims=5, pooling_dims=3, kernel_size=size, stride=stride, padding=padding,
            count_include_pad=1, **describe(**tensors))  # fmt: skip
        upstream = random(result.shape, dtype, 2)
        value, bound_by = (
            pad_words(torch.autograd.grad(result, operand, gradient.double(), retain_graph=True)[0])
            for gradient in (upstream, upstream.abs())
        )
        yield Launch({
            "grad_input": pad_words(torch.zeros(operand.shape, dtype=dtype)), "grad_output": upstream,
            "indices": places, "params": params
        }, upstream.numel(), {"grad_input": (upstream, value, 8 * rounding(dtype) * bound_by)}, group=32)  # fmt: skip


@family(r"max_unpool_{any}")
def _unpooling(call: KernelCall, dtype: torch.dtype) -> Launches:
    operand = random((2, 3, 4, 5), dtype, 1)
    order = torch.rand((2, 3, 56), generator=torch.Generator().manual_seed(1)).argsort(-1)
    places = order[..., :20].reshape(2, 3, 4, 5).contiguous()
    value = widen(operand).new_zeros((2, 3, 56))
    value = value.scatter(2, places.flatten(2), widen(operand).flatten(2)).reshape(2, 3, 7, 8)
    params = call.struct("params", dims=4, pooling_dims=2, input_sizes=operand.shape, input_strides=operand.stride(),
        output_sizes=value.shape, output_strides=value.stride(), indices_strides=places.stride())  # fmt: skip
    bound = {"output": torch.zeros(value.shape, dtype=dtype), "input": operand, "indices": places, "params": params}
    yield Launch(bound, operand.numel(), {"output": (operand, value)}, group=32)


#: Images and grids, without batch and channels, by the number of dimensions.
_SHAPES = {2: ((5, 6), (4, 7)), 3: ((5, 6, 4), (3, 2, 7))}
#: As GridSamplerUtils.h numbers them.
_PADDINGS = ("zeros", "border", "reflection")
_INTERPOLATIONS = ("bilinear", "nearest", "bicubic")


def _image_and_grid(dims: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return an image, and a grid with some places outside of it."""
    image, places = _SHAPES[dims]
    return random((2, 3, *image), dtype, 1), random((2, *places, dims), dtype, 2)


def _params(operand: Tensor, grid: Tensor, value: Tensor, *, corners: bool) -> dict[str, Any]:
    """Return the fields of GridSamplerParams (GridSampler.h)."""
    described = describe(output=value, input=operand, grid=grid)
    return {"sampler_dims": grid.shape[-1], "align_corners": int(corners), **described}


def _slack(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what coordinates in float32 may change, and rounding each of a few terms to the dtype."""
    return value.abs().amax() * (1e-4 if dtype == torch.float32 else 64 * rounding(dtype))


@family(
    r"grid_sampler_(?P<dims>[23])d_(?:(?P<mode>bilinear|nearest|bicubic)_)?(?P<pad>zeros|border|reflection)"
    r"(?:_i32|_i64)?_{float}"
)
def _grid_sampler(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with the mode of the name; up to 2.12 those of three dimensions have the bilinear one alone."""
    dims, mode = int(call["dims"]), call["mode"] or "bilinear"
    for corners in (False, True):
        operand, grid = _image_and_grid(dims, dtype)
        value = functional.grid_sample(operand.double(), grid.double(), mode, call["pad"], align_corners=corners)
        params = call.struct("params", **_params(operand, grid, value, corners=corners))
        threads = value.numel() // (value.shape[1] if dims == 2 else 1)
        expected = {"output": (operand, value, _slack(value, dtype))}
        yield Launch({"input": operand, "grid": grid, "params": params}, threads, expected, group=32)


@family(
    r"grid_sampler_(?P<dims>[23])d_backward(?:_(?P<mode>bilinear|nearest|bicubic)_(?P<of>input|grid))?"
    r"(?:_(?P<pad>zeros|border|reflection))?(?:_i32|_i64)?_{float}"
)
def _grid_sampler_backward(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with the modes that the name leaves open; what the nearest place does not change stays zero."""
    dims = int(call["dims"])
    modes = [call["mode"]] if call["mode"] else _INTERPOLATIONS[:2]
    paddings = [call["pad"]] if call["pad"] else _PADDINGS
    for mode, padding, corners in itertools.product(modes, paddings, (False, True)):
        operand, grid = _image_and_grid(dims, dtype)
        wide, places = operand.double().requires_grad_(), grid.double().requires_grad_()
        result = functional.grid_sample(wide, places, mode, padding, align_corners=corners)
        upstream = random(result.shape, dtype, 3)
        image, moved = torch.autograd.grad(result, (wide, places), upstream.double())
        params = call.struct("params", **_params(operand, grid, result, corners=corners),
            grad_output_strides=upstream.stride(), grad_input_strides=operand.stride(),
            grad_grid_strides=grid.stride(), padding_mode=_PADDINGS.index(padding),
            interpolation_mode=_INTERPOLATIONS.index(mode), compute_grad_input=1, compute_grad_grid=1)  # fmt: skip
        bound = {
            "grad_input": pad_words(torch.zeros(operand.shape, dtype=dtype)), "grad_output": upstream, "params": params,
            "grad_grid": torch.zeros(grid.shape, dtype=dtype), "input": operand, "grid": grid,
        }  # fmt: skip
        expected: dict[str, Any] = {}
        if "grad_input" in call.types:
            image = pad_words(image)
            expected["grad_input"] = (upstream, image, _slack(image, dtype))
        if "grad_grid" in call.types:
            expected["grad_grid"] = (upstream, moved, _slack(moved, dtype))
        depth, rows, columns = (1, *grid.shape[1:-1])[-3:]
        threads = (2 * rows * columns,) if dims == 2 else (columns, rows * depth, 2)
        yield Launch(bound, threads, expected)


# Upsampling's gradients.  Gathered: a thread for each place of the image, and a few for its channels.
# Scattered: a thread for each place of the result, which adds to zeros.


@family(rf"upsample_(?P<mode>{'|'.join(_RESIZED)})_backward_(?P<a>float|half|bfloat)(?P<gathered>_u(?:32|64))?")
def _upsampling_backward(call: KernelCall, dtype: torch.dtype) -> Launches:
    name, dims = _resized(call["mode"])
    nearest = "nearest" in name
    for shape, target, corners in (
        ((5, 4, 3)[:dims], (7, 9, 5)[:dims], False),
        ((6, 7, 4)[:dims], (3, 12, 4)[:dims], not nearest),
    ):
        upstream, sizes = random((2, 3, *target), dtype, 1), (target, (2, 3, *shape))
        value = getattr(aten, f"{name}_backward")(upstream.double(), *sizes, *(() if nearest else (corners,)))
        result = upstream, value, 1e-5 + 32 * rounding(dtype)
        yield call_operator(call, f"{name}_backward", result, grad_output=upstream, align_corners=corners)
