"""Calls the kernels that fill, pad, join and copy, and a few of several results an element: cross, frexp, glu."""

import math
from fractions import Fraction
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's own abbreviation)
from torch import Tensor

from opcheck.kernels import values
from opcheck.kernels.judging import EPS, half_steps, rounding
from opcheck.kernels.launch import KernelCall, Launch, Launches, family
from opcheck.kernels.pointwise import dtype_named
from opcheck.kernels.values import fill_untouched, random, widen


@family(r"masked_fill_scalar_(?P<how>dense|strided|broadcast)_(?P<a>\d+bit)")
def _masked_fill(call: KernelCall, dtype: torch.dtype) -> Launches:
    rows, columns = 5, 7
    operand, filler = random((rows, columns), dtype, 1), random((1,), dtype, 3)
    mask = random((rows, columns), torch.bool, 2)
    if call["how"] == "broadcast":
        mask = mask[:1]
    value = torch.where(mask, filler, operand)
    width = 1 if call["how"] == "broadcast" else columns
    yield Launch({
        "input": operand.clone(), "mask": mask.contiguous(), "val": filler, "mask_numel": mask.numel(),
        "sizes": (columns, rows), "input_strides": (1, columns), "mask_strides": (1, width), "ndim": 2
    }, operand.numel(), {"input": (operand, value)})  # fmt: skip


@family(r"flip_(?P<direct>direct_)?(?P<a>\d+bit)")
def _flip(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with a negative stride for the flipped dimension, as the host turns it (in bytes)."""
    rows, columns = 4, 6
    operand = random((rows, columns), dtype, 1)
    value = operand.flip(0, 1)
    size = operand.element_size()
    bound = {
        # The last element comes first: strides count down from it.
        "input": operand.flatten()[-1:], "ndim": 2,
        "sizes": (columns, rows), "output_strides": (size, columns * size, 0, 0),
        "input_strides": (-size, -columns * size, 0, 0),
    }  # fmt: skip
    grid = (columns, rows, 1) if call["direct"] else (operand.numel(),)
    yield Launch(bound, grid, {"output": (operand, value)}, group=(1, 1, 1) if call["direct"] else (1,))  # fmt: skip


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
        strides = (1, columns, rows * columns, 0)
        result = "self" if call["inplace"] else "out"
        yield Launch({
            "inp": operand, "self": operand.clone(), "out_strides": strides, "inp_strides": strides,
            "strides": strides, "sizes": (columns, rows, batch, 0),
            "k_ndim": torch.tensor([diagonal, 3], dtype=torch.int32)
        }, (columns, rows, batch), {result: (operand, value)})  # fmt: skip


@family(r"cat_(?P<i>int32_t|int64_t)_{any}_(?P<b>[a-z0-9]+)")
def _cat(call: KernelCall, first: torch.dtype, second: torch.dtype) -> Launches:
    """Call once: each input of a cat is a launch of its own, at an offset."""
    types = call.types
    source, target = (first, second) if types["input"] == call["a"] else (second, first)
    batch, before, rows, columns = 2, 3, 4, 5
    operand = random((batch, rows, columns), source, 1)
    if not target.is_signed and source.is_floating_point:
        operand = operand.abs()  # what a negative number becomes is not specified
    shape = (batch, before + rows + 1, columns)
    output = fill_untouched(shape, target)
    value = widen(output)
    moved = operand.to(target)
    value[:, before : before + rows] = widen(moved)
    shared = call.struct(
        "shared_params", ndim=3, cat_dim=1, output_strides=output.stride(), output_sizes=shape
    )  # fmt: skip
    own = call.struct("input_params", cat_dim_offset=before, input_element_offset=0,
        input_strides=operand.stride(), input_sizes=operand.shape)  # fmt: skip
    yield Launch({
        "input": operand, "output": output, "shared_params": shared, "input_params": own
    }, operand.numel(), {"output": (operand, value)}, group=32)  # fmt: skip


_PADDED = {"reflection": "reflect", "replication": "replicate"}


@family(
    r"(?P<mode>reflection|replication)_pad(?P<dims>[123])d_(?P<way>forward|backward)_{any}_(?P<i>i32|i64)"
)
def _pads(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with dimensions innermost first; strides 3 and 4 are those of channels and batch."""
    dims = int(call["dims"])
    for left, right in ((1, 2), (2, 0)):
        shape = (2, 3, 3, 5, 4)[:2] + (3, 5, 4)[3 - dims :]
        operand = random(shape, dtype, 1)
        wide = widen(operand)
        wide = wide if wide.is_floating_point() or wide.is_complex() else wide.double()
        wide.requires_grad_(call["way"] == "backward")
        padded = F.pad(wide, (left, right) * dims, mode=_PADDED[call["mode"]])
        output = fill_untouched(padded.shape, dtype)

        def strides(tensor: Tensor) -> tuple[int, ...]:
            spatial = tuple(reversed(tensor.stride()[2:]))
            return (*spatial, *(0,) * (3 - dims), tensor.stride(1), tensor.stride(0))

        params = call.struct("params", input_sizes=tuple(reversed(shape[2:])), left_pad=(left,) * dims,
            output_sizes=tuple(reversed(padded.shape[2:])), input_strides=strides(operand),
            output_strides=strides(output), channels=3)  # fmt: skip
        extent = padded.shape[2:] if call["way"] == "forward" else operand.shape[2:]
        grid = (extent[-1], extent[-2] if dims > 1 else 1, 6 * (extent[0] if dims == 3 else 1))
        if call["way"] == "forward":
            yield Launch({"input": operand, "params": params}, grid, {"output": (operand, padded)})
            continue
        upstream = random(padded.shape, dtype, 2)
        (gradient,) = torch.autograd.grad(padded, wide, widen(upstream))
        slack = float(upstream.abs().double().amax()) * 64 * (EPS + half_steps(dtype) / 8)
        yield Launch({
            "grad_output": upstream, "grad_input": torch.zeros(shape, dtype=dtype), "params": params
        }, grid, {"grad_input": (operand, gradient, slack)})  # fmt: skip


@family(r"constant_pad_nd_(?P<dense>dense_)?(?P<a>[a-z0-9]+?)(_u32|_u64)?")
def _constant_pad(call: KernelCall, dtype: torch.dtype) -> Launches:
    shape, left, right = (3, 4, 5), (1, 2, 0), (2, 0, 3)
    operand, filler = random(shape, dtype, 1), random((1,), dtype, 3)
    sides = [side for dimension in (2, 1, 0) for side in (left[dimension], right[dimension])]
    value = F.pad(widen(operand), sides, value=0)
    inside = F.pad(torch.ones(shape, dtype=torch.bool), sides, value=False)
    value = torch.where(inside, value, widen(filler))
    given_strides = {} if call["dense"] else {
        "input_strides": (1, 5, 20), "output_strides": tuple(reversed(value.stride())), "ndim": 3
    }  # fmt: skip
    params = call.struct("params", output_sizes=tuple(reversed(value.shape)), input_sizes=tuple(reversed(shape)),
        left_pad=tuple(reversed(left)), **given_strides)  # fmt: skip
    depth, height, width = value.shape
    grid = (width, height, depth) if call["dense"] else (width, height * depth)
    bound = {"input": operand, "params": params, "fill_value": filler}
    yield Launch(bound, grid, {"output": (operand, value)}, group=(1,) * len(grid))


_STEPS = 33


def _launch_range(
    call: KernelCall, value: Tensor, dtype: torch.dtype, slack: Tensor | float, **operand: Any
) -> Launch:
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


@family(
    r"(?P<op>arange|linspace|logspace)_(?:strided_)?(?P<a>(?!strided|integral)[a-z0-9]+?)(?:_i32|_i64)?"
)
def _ranges(call: KernelCall, dtype: torch.dtype) -> Launches:
    operation = call["op"]
    inexact = dtype.is_floating_point or dtype.is_complex
    start, step = 2.0, 0.25 if inexact else 1.0
    if operation == "logspace" and not inexact:
        start, step = 0.0, 0.1875  # a byte represents each of the powers
    last = start + step * (_STEPS - 1)
    value = torch.linspace(start, last, _STEPS, dtype=torch.float64)
    parameters = {
        "arange": (start, step), "linspace": (start, step, last), "logspace": (start, step, last, 2.0)
    }  # fmt: skip
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
    rows, columns = 5, 7
    filler, output = random((1,), dtype, 3), fill_untouched((rows, columns), dtype)
    size = output.element_size()
    grid = (output.numel(),) if call["how"] == "dense" else (columns, rows)
    value = widen(filler).expand(rows, columns)
    yield Launch({
        "out": output, "fill_val": filler, "numel": output.numel(), "sizes": (rows, columns),
        "strides": (columns * size, size), "ndim": 2
    }, grid, {"out": (value, value)}, group=(1,) * len(grid))  # fmt: skip


@family(r"where_strided_{any}_bool")
def _where(_call: KernelCall, dtype: torch.dtype) -> Launches:
    rows, columns = 5, 7
    condition = random((rows, columns), torch.bool, 0)
    first, second = random((rows, columns), dtype, 1), random((rows, 1), dtype, 2)
    size = first.element_size()
    value = widen(torch.where(condition, first, second))
    yield Launch({
        "input": condition, "other1": first, "other2": second, "sizes": (columns, rows),
        "output_strides": (size, columns * size), "input_strides": (1, columns),
        "other1_strides": (size, columns * size), "other2_strides": (0, size), "ndim": 2
    }, (columns, rows, 1), {"output": (first, value)})  # fmt: skip


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
    grid = {"strided_2d": (columns, rows), "strided_3d": (columns, rows, 1)}.get(
        call["how"], (start.numel(),)
    )
    yield Launch(
        bound, grid,
        {result: (start, value, size.double() * 4 * rounding(dtype))}, group=(1,) * len(grid)
    )  # fmt: skip


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
def _repeat_interleave(call: KernelCall) -> Launches:
    """Call with every second of the counts (operations/Repeat.mm)."""
    dtype = {"int32_t": torch.int32, "int64_t": torch.int64}[call["a"]]
    counts = torch.tensor([2, 0, 5, 1, 0, 3], dtype=dtype)
    value = torch.arange(len(counts)).repeat_interleave(counts)
    yield Launch({
        "repeat_ptr": counts.repeat_interleave(2), "cumsum_ptr": counts.cumsum(0), "repeat_stride": 2
    }, len(counts), {"result_ptr": (counts, value)})  # fmt: skip


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
    products = torch.linalg.cross(
        widen(first).abs().double(), -widen(second).abs().double(), dim=1
    ).abs()
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
    yield Launch(
        bound, operand.numel(), {"mantissa": (operand, mantissa), "exponent": (operand, exponent.long())}
    )  # fmt: skip


@family(r"glu_(?P<back>backward_)?(?:dense_)?{float}")
def _glu(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call for the last dimension, whose halves are the values and the gates (operations/GatedLinearUnit.mm)."""
    rows, half = 5, 7
    operand = random((rows, 2 * half), dtype, 1) * 4
    wide = operand.double().requires_grad_()
    value = F.glu(wide)
    upstream = random((rows, half), dtype, 2)
    out = fill_untouched((rows, half), dtype)
    result, name = value.detach(), "out"
    if call["back"]:
        (result,) = torch.autograd.grad(value, wide, upstream.double())
        out, name = fill_untouched(operand.shape, dtype), "grad_input"
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


@family(r"replication_pad1d_(?P<way>forward|backward)_{any}")
def _replication(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with padding that adds and takes away; the third number is what is added before."""
    forward = call["way"] == "forward"
    source, target = ("input", "output") if forward else ("grad_output", "grad_input")
    for before, after in ((3, 2), (-2, 4), (0, -3)):
        sizes = (9, 9 + before + after)
        operand = random((2, 3, sizes[0] if forward else sizes[1]), dtype, 1)
        wide = widen(operand).double() if dtype == torch.bool else widen(operand)
        if forward:
            value = F.pad(wide, (before, after), "replicate")
        else:
            start = wide.new_zeros((2, 3, 9)).requires_grad_()
            padded = F.pad(start, (before, after), "replicate")
            value = torch.autograd.grad(padded, start, wide)[0].resolve_conj()
        yield Launch({
            source: operand, "sizes_pad": (*sizes, before, after)
        }, (value.shape[-1], 3, 2), {target: (operand, value, value.abs().double() * 4 * rounding(dtype))})  # fmt: skip
