"""Calls the kernels that fill, pad, join and copy, and a few of several results an element: cross, frexp, glu."""

import math
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from opcheck.kernels import values
from opcheck.kernels.drivers.operator_calls import call_operator
from opcheck.kernels.judging import EPS, half_steps, rounding
from opcheck.kernels.launch import KernelCall, Launch, Launches, family
from opcheck.kernels.pointwise import dtype_named
from opcheck.kernels.values import fill_untouched, random, widen

aten = torch.ops.aten


@family(r"masked_fill_scalar_(?P<how>dense|strided|broadcast)_(?P<a>\d+bit)")
def _masked_fill(call: KernelCall, dtype: torch.dtype) -> Launches:
    operand, filler = random((5, 7), dtype, 1), random((1,), dtype, 3)
    mask = random((5, 7), torch.bool, 2)
    if call["how"] == "broadcast":
        mask = mask[:1]
    value = torch.where(mask, filler, operand)
    if call["how"] == "strided":
        mask = mask.T.contiguous().T
    yield call_operator(call, "masked_fill", (operand, value), self=operand, mask=mask, value=filler[0])


@family(r"flip_(?P<direct>direct_)?(?P<a>\d+bit)")
def _flip(call: KernelCall, dtype: torch.dtype) -> Launches:
    operand = random((4, 6) if call["direct"] else (2, 4, 3, 6), dtype, 1)
    yield call_operator(call, "flip", (operand, operand.flip(0, 1)), self=operand, dims=(0, 1))


@family(r"eye_(?:diag_)?{any}")
def _eye(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call for every element, or for the diagonal of memory that the host has filled with zeros."""
    value, diagonal = widen(torch.eye(4, 6).to(dtype)), "diag_stride" in call.types
    yield Launch({
        "stride0": 6, "stride1": 1, "diag_stride": 7,
        "output": torch.zeros((4, 6), dtype=dtype) if diagonal else fill_untouched((4, 6), dtype)
    }, 4 if diagonal else (6, 4), {"output": (value, value)})  # fmt: skip


@family(r"(?P<op>tril|triu)_(?P<inplace>inplace_)?{index}_{any}")
def _triangle(call: KernelCall, dtype: torch.dtype) -> Launches:
    batch, rows, columns = 2, 5, 7
    for diagonal in (0, 2, -1):
        operand = random((batch, rows, columns), dtype, 1)
        value = getattr(torch, call["op"])(widen(operand), diagonal)
        if not call["inplace"]:
            yield call_operator(call, call["op"], (operand, value), self=operand, diagonal=diagonal)
            continue
        yield Launch({
            "self": operand.clone(), "strides": (1, columns, rows * columns, 0), "sizes": (columns, rows, batch, 0),
            "k_ndim": torch.tensor([diagonal, 3], dtype=torch.int32)
        }, (columns, rows, batch), {"self": (operand, value)})  # fmt: skip


@family(r"cat_(?P<i>int32_t|int64_t)_{any}_(?P<b>[a-z0-9]+)")
def _cat(call: KernelCall, first: torch.dtype, second: torch.dtype) -> Launches:
    """Call for each of three operands, at an offset of its own."""
    source, target = (first, second) if call.types["input"] == call["a"] else (second, first)
    joined = [random((2, rows, 5), source, rows) for rows in (3, 1, 4)]
    if not target.is_signed and source.is_floating_point:
        joined = [operand.abs() for operand in joined]  # what a negative number becomes is not specified
    value = widen(torch.cat([operand.to(target) for operand in joined], 1))
    result = joined[0], value
    yield call_operator(call, "cat", result, dtypes=(target,), tensors=joined, dim=1)


@family(r"(?P<mode>reflection|replication)_pad(?P<dims>[123])d_(?P<way>forward|backward)_{any}(?:_(?P<i>i32|i64))?")
def _pads(call: KernelCall, dtype: torch.dtype) -> Launches:
    dims, name = int(call["dims"]), f"{call['mode']}_pad{call['dims']}d"
    # The kernels without a type of their offsets take padding away, too.
    for left, right in ((1, 2), (2, 0)) if call["i"] else ((3, 2), (-2, 4), (0, -3)):
        operand = random((2, 3, *(3, 5, 4 if call["i"] else 9)[3 - dims :]), dtype, 1)
        wide = widen(operand)
        wide = wide if wide.is_floating_point() or wide.is_complex() else wide.double()
        padding = (left, right) * dims
        padded = getattr(aten, name)(wide, padding)
        if call["way"] == "forward":
            yield call_operator(call, name, (operand, padded), self=operand, padding=padding)
            continue
        upstream = random(padded.shape, dtype, 2)
        gradient = getattr(aten, f"{name}_backward")(widen(upstream).to(wide.dtype), wide, padding)
        slack = float(upstream.abs().double().amax()) * 64 * (EPS + half_steps(dtype) / 8)
        result = operand, gradient, slack
        yield call_operator(call, f"{name}_backward", result, grad_output=upstream, padding=padding)


@family(r"constant_pad_nd_(?P<dense>dense_)?(?P<a>[a-z0-9]+?)(_u32|_u64)?")
def _constant_pad(call: KernelCall, dtype: torch.dtype) -> Launches:
    sides = (0, 3, 2, 0, 1, 2)
    operand, filler = random((3, 4, 5), dtype, 1), random((1,), dtype, 3)
    inside = functional.pad(torch.ones(operand.shape, dtype=torch.bool), sides, value=False)
    value = torch.where(inside, functional.pad(widen(operand), sides, value=0), widen(filler))
    if not call["dense"]:
        operand = operand.transpose(0, 2).contiguous().transpose(0, 2)
    result = operand, value
    yield call_operator(call, "constant_pad_nd", result, self=operand, pad=sides, value=filler.item())


_STEPS = 33


def _launch_range(call: KernelCall, value: Tensor, dtype: torch.dtype, slack: Tensor | float, **operand: Any) -> Launch:
    """Return the launch of a range, dense or with every second place of rows of 24; ``given`` are its limits."""
    strided = "ndim" in call.types
    output = fill_untouched((3, 24) if strided else (_STEPS,), dtype)
    wanted, off = widen(output), torch.zeros(output.shape, dtype=torch.float64)
    for whole, part in ((wanted, value), (off, torch.as_tensor(slack, dtype=torch.float64))):
        target = whole[:, :22:2] if strided else whole
        target.copy_(part.expand(_STEPS).view(target.shape))
    steps = () if "se" in operand else (_STEPS,)
    return Launch({
        "out": output, "p": (*steps, 1, 0, 0), "sp": (_STEPS, 0), "base": 0, "ndim": 2, "sizes": (11, 3),
        "strides": (2, 24), "steps": (_STEPS, 0), "stride": 1, **operand
    }, _STEPS, {"out": (value, wanted, off)})  # fmt: skip


@family(r"(?P<op>arange|linspace|logspace)_(?:strided_)?(?P<a>(?!strided|integral)[a-z0-9]+?)(?:_i32|_i64)?")
def _ranges(call: KernelCall, dtype: torch.dtype) -> Launches:
    operation = call["op"]
    inexact = dtype.is_floating_point or dtype.is_complex
    start, step = 2.0, 0.25 if inexact else 1.0
    if operation == "logspace" and not inexact:
        start, step = 0.0, 0.1875  # a byte represents each of the powers
    last = start + step * (_STEPS - 1)
    value = torch.linspace(start, last, _STEPS, dtype=torch.float64)
    parameters = {"arange": (start, step), "linspace": (start, step, last), "logspace": (start, step, last, 2.0)}
    value = 2**value if operation == "logspace" else value
    slack = value.abs() * (8 if operation == "linspace" else 32) * EPS
    value = value.to(torch.complex128) if dtype.is_complex else value
    name = "se" if operation == "arange" else "v"
    argument = next(argument for argument in call.buffers if argument.name == name)
    numeric = dtype_named(argument.fields[0].type)
    limits = torch.tensor(parameters[operation]).to(numeric)
    yield _launch_range(call, value, dtype, slack, **{name: limits})


@family(r"linspace_integral_(?:strided_)?{whole}(?:_i32|_i64)?")
def _whole_ranges(call: KernelCall) -> Launches:
    """Call with the quotient and the remainder of the distance and the number of steps."""
    limit = 2**31 - 1 if call["a"] == "int" else 2**62
    for start, last in ((-7, 100), (100, -7), (-limit, limit)):
        parts = _STEPS - 1
        exact = [Fraction(start * (parts - i) + last * i, parts) for i in range(_STEPS)]
        value = torch.tensor([math.trunc(number) for number in exact])
        params = (start, last, *divmod(abs(last - start), parts))
        yield _launch_range(call, value, dtype_named(call["a"]), 0.0, params=params)


@family(r"fill_scalar_(?P<how>dense|strided)_{any}")
def _fill(call: KernelCall, dtype: torch.dtype) -> Launches:
    filler, output = random((1,), dtype, 3), fill_untouched((5, 7), dtype)
    grid, value = (35,) if call["how"] == "dense" else (7, 5), widen(filler).expand(5, 7)
    sizes = {"numel": 35, "sizes": (5, 7), "strides": (7 * dtype.itemsize, dtype.itemsize), "ndim": 2}
    bound = {"out": output, "fill_val": filler, **sizes}
    yield Launch(bound, grid, {"out": (value, value)}, group=(1,) * len(grid))


@family(r"lerp_tensor_(?P<how>dense|scalar_weight|strided_2d|strided_3d|strided)_{any}")
def _lerp(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with a weight for each place or a single weight; later releases have a pointwise kernel."""
    rows, columns = 5, 7
    start, end = random((rows, columns), dtype, 1), random((rows, columns), dtype, 2)
    weight = random((1,) if call["how"] == "scalar_weight" else (rows, columns), dtype, 3)
    first, last, share = widen(start), widen(end), widen(weight)
    value = first + (last - first) * share
    size = first.abs() + (last.abs() + first.abs()) * (1 + share.abs())
    tensors = {"self": start, "end": end, "weight": weight}
    strides = tuple(start.element_size() * step for step in (1, columns, rows * columns))
    bound: dict[str, Any] = {"ndim": 2, "sizes": (columns, rows), "out_strides": strides, **tensors}
    for name, tensor in tensors.items():
        bound |= {f"{name}_ptr": tensor, f"{name}_strides": strides}
    result = "out_ptr" if "out_ptr" in call.types else "out"
    grid = {"strided_2d": (columns, rows), "strided_3d": (columns, rows, 1)}.get(call["how"], (start.numel(),))
    yield Launch(bound, grid, {result: (start, value, size.double() * 4 * rounding(dtype))}, group=(1,) * len(grid))


# Copies of bytes, sixteen a thread: operations/Copy.mm, operations/Shape.mm

_EACH = 16


@family(r"contiguous_byte_copy")
def _byte_copy(_call: KernelCall) -> Launches:
    for count, base in ((64, 0), (37, 16), (50, 3)):
        operand = random((count + base,), torch.uint8, count)
        value = torch.cat([fill_untouched((base,), torch.uint8), operand[base:]])
        bound = {"in": operand, "chunk_bytes": count, "base": base}
        yield Launch(bound, -(-count // _EACH), {"out": (operand, value)})


@family(r"inner_contiguous_copy")
def _rows_copy(_call: KernelCall) -> Launches:
    """Call with rows that lie apart in memory, by other strides on each side."""
    for width, stride in ((48, 64), (37, 41), (18, 22)):
        operand = random((2, 3, stride), torch.uint8, width)
        output = fill_untouched((3, 2, stride + 2), torch.uint8)
        value = output.clone()
        value[..., :width] = operand[..., :width].transpose(0, 1)
        grid = (-(-width // _EACH), 6)
        yield Launch({
            "input": operand, "output": output, "outer_sizes": (3, 2), "input_outer_strides": (stride, 3 * stride),
            "output_outer_strides": (2 * (stride + 2), stride + 2), "ndim_outer_inner_bytes": (2, width)
        }, grid, {"output": (operand, value)})  # fmt: skip


@family(r"inner_contiguous_scatter_u(?:32|64)")
def _blocks_copy(call: KernelCall) -> Launches:
    """Call as a cat does: each slice goes to its offset in a longer slice."""
    for width, stride, offset in ((48, 64, 16), (37, 50, 5), (18, 22, 2)):
        operand = random((5, width), torch.uint8, width)
        output = fill_untouched((5, stride), torch.uint8)
        value = output.clone()
        value[:, offset : offset + width] = operand
        params = call.struct("params", chunk_base=0, slice_bytes=width, out_stride_bytes=stride, off_bytes=offset,
            nbytes=operand.numel())  # fmt: skip
        bound = {"input": operand, "output": output, "params": params}
        yield Launch(bound, -(-operand.numel() // _EACH), {"output": (operand, value)})


@family(r"repeat_interleave_(?P<a>int32_t|int64_t)")
def _repeat_interleave(_call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with every second of the counts (operations/Repeat.mm)."""
    counts = torch.tensor([2, 0, 5, 1, 0, 3], dtype=dtype)
    value = torch.arange(len(counts)).repeat_interleave(counts)
    bound = {"repeat_ptr": counts.repeat_interleave(2), "cumsum_ptr": counts.cumsum(0), "repeat_stride": 2}
    yield Launch(bound, len(counts), {"result_ptr": (counts, value)})


# tril_indices, triu_indices: aten/src/ATen/native/mps/operations/TriangularOps.mm.  What the host passes is what
# aten/src/ATen/native/cuda/TensorFactories.cu passes: a trapezoid or triangle, and a rectangle.


@family(r"(?P<op>tril|triu)_indices_{whole}")
def _triangle_indices(call: KernelCall) -> Launches:
    for rows, columns, offset in ((5, 7, 0), (7, 5, -1), (6, 6, 2), (2000, 1500, 3)):
        function = torch.tril_indices if call["op"] == "tril" else torch.triu_indices
        value = function(rows, columns, offset)
        if call["op"] == "tril":
            first = min(columns, 1 + offset) if offset > 0 else int(rows + offset > 0)
            last = max(0, min(columns, rows + offset))
            height = min(last - first + 1, rows)
            trapezoid = (first + last) * height >> 1
            names = {
                "row_offset": max(0, -offset), "m_first_row": first, "col": columns,
                "trapezoid_size": trapezoid, "tril_size": value.shape[1],
            }  # fmt: skip
        else:
            first = max(columns - offset, 0) if offset > 0 else columns
            rectangle = max(min(rows, -offset + 1), 0) * columns if offset <= 0 else 0
            names = {
                "col_offset": max(0, offset), "m_first_row": first, "col": first,
                "rectangle_size": max(0, min(rows, -offset)) * columns if offset <= 0 else rectangle,
                "triu_size": value.shape[1],
            }  # fmt: skip
        yield Launch(names, value.shape[1], {"tensor": (value, value)})


@family(r"cross_(?:dense|strided)_{any}")
def _cross(_call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call for the middle dimension of three (operations/CrossKernel.mm): a thread computes all three results."""
    shape = (5, 3, 7)
    first, second = random(shape, dtype, 1), random(shape, dtype, 2)
    value = torch.linalg.cross(widen(first), widen(second), dim=1)
    products = torch.linalg.cross(widen(first).abs().double(), -widen(second).abs().double(), dim=1).abs()
    rolled = widen(first).abs().roll(1, 1) * widen(second).abs().roll(-1, 1)
    slack = (products + rolled * 2).double() * 4 * rounding(dtype)
    strides = first.stride()
    yield Launch({
        "input": first, "other": second, "dim_stride": 7, "squashed_sizes": (5, 7), "out_strides": strides,
        "input_strides": strides, "other_strides": strides, "ndim": 3, "dim": 1
    }, 35, {"out": (first, value, slack)})  # fmt: skip


def _byte_strides(*tensors: Tensor) -> list[list[int]]:
    """Return the strides of matrices in bytes, innermost first."""
    return [[s * t.element_size() for s in reversed(t.stride())] for t in tensors]


@family(r"frexp_(?P<how>dense|strided)_{float}")
def _frexp(_call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call over all delicate values; of infinities and NaN the exponent is not defined."""
    operand = values.single(dtype)
    operand = operand[operand.isfinite()]
    operand = operand[: len(operand) // 8 * 8].view(8, -1)
    mantissa, exponent = torch.frexp(operand.double())
    out = fill_untouched(operand.shape, dtype), fill_untouched(operand.shape, torch.int32)
    strides = _byte_strides(operand, *out)
    bound = {
        "mantissa": out[0], "exponent": out[1], "input": operand, "ndim": 2, "sizes": (*reversed(operand.shape),),
        "input_strides": strides[0], "mantissa_strides": strides[1], "exponent_strides": strides[2]
    }  # fmt: skip
    # A denormal may be flushed, and then is zero.
    flushed = operand.abs() < torch.finfo(dtype).smallest_normal
    for tensor in (mantissa, exponent):
        tensor[flushed] = 0
    operand[flushed] = 0
    yield Launch(bound, operand.numel(), {"mantissa": (operand, mantissa), "exponent": (operand, exponent.long())})


@family(r"glu_(?P<back>backward_)?(?:dense_)?{float}")
def _glu(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call for the last dimension, whose halves are the values and the gates (operations/GatedLinearUnit.mm)."""
    rows, half = 5, 7
    operand = random((rows, 2 * half), dtype, 1) * 4
    upstream, wide = random((rows, half), dtype, 2), operand.double()
    result, name = (
        (aten.glu_backward(upstream.double(), wide, -1), "grad_input") if call["back"] else (aten.glu(wide), "out")
    )
    out = fill_untouched(result.shape, dtype)
    strides = _byte_strides(out, operand, upstream)
    offset = half * operand.element_size()
    dense = "inner_half" in call.types
    # Each step is rounded to the dtype.
    slack = (result.abs() + 1) * 4 * torch.finfo(dtype).eps + EPS
    yield Launch({
        name: out, "input": operand, "grad_output": upstream, "inner_half": half, "sizes": (half, rows),
        f"{name}_strides": strides[0], "input_strides": strides[1], "grad_output_strides": strides[2],
        "grad_input_byte_offset": offset, "input_byte_offset": offset, "ndim": 2
    }, (half, rows) if dense else (half * rows,), {name: (operand, result, slack)}, group=(1, 1) if dense else (1,)
    )  # fmt: skip
