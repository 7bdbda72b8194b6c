"""Calls the kernels that move values: gather, scatter, index, pad, cat."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fractions import Fraction

import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's own abbreviation)
from torch import Tensor

from opcheck.kernels import values
from opcheck.kernels.launch import (
    EPS,
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

# Gather, scatter, indexing: ScatterGather.mm, Indexing.mm


#: The sign bit of int64.
_SIGN = -(2**63)


def _scattered(operation: str, given: Tensor, index: Tensor, source: Tensor) -> Tensor:
    """Return what scattering along the last dimension gives.

    Raises:
        Unfit: nothing to compare with.
    """
    wide, reduce = widened(given), operation.removeprefix("scatter_")
    if reduce == "set":
        return wide.scatter(1, index, widened(source))
    if given.dtype.is_complex and reduce == "add":
        return wide.scatter_add(1, index, widened(source))
    if given.dtype.is_complex:
        raise Unfit("no reference for reductions of the dtype")
    return wide.scatter_reduce(1, index, widened(source), "sum" if reduce == "add" else reduce)


def _held(operation: str, value: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
    """Return the result and the memory before it as the kernel holds them.

    The largest and smallest int64 are found by atomics of uint64: the host flips the sign bits of the
    result's memory before and after (``scatter_signbit_xor``), the kernel those of the source.
    """
    if given.dtype == torch.int64 and operation in {"scatter_amax", "scatter_amin"}:
        return value ^ _SIGN, given ^ _SIGN
    return value, given.clone()


@family(r"scatter_signbit_xor_long")
def _flipped_signs(_match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    given = random((45,), torch.int64, 1)
    bound = {"data": given.clone(), "tid_offset": numbers(0, size=8)}
    yield Launch(bound, (45,), (32,), {"data": (given, given ^ _SIGN, 0.0)})


@family(
    r"(?P<op>gather|scatter_(?:set|add|amax|amin|prod))_strided_(?P<a>[a-z0-9]+)_(?P<b>int|long)"
)
def _gather(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    operation, dtype, index_dtype = match["op"], dtype_named(match["a"]), dtype_named(match["b"])
    rows, columns, picked = 5, 9, 6
    order = torch.rand(rows, columns, generator=values.generator(0))
    index = order.argsort(1)[:, :picked].contiguous()
    given, source = random((rows, columns), dtype, 1), random((rows, picked), dtype, 2)
    # Innermost first, as TensorIterator has dimensions.
    bound = {
        "index": index.to(index_dtype), "ndim_dim": numbers(2, 0, 0, 0),
        "tid_offset": numbers(0, size=8), "sizes": numbers(picked, rows, size=8),
        "index_sizes": numbers(picked, rows, size=8), "input": given, "src": source,
        "dim_size": numbers(columns, size=8), "input_dim_size": numbers(columns, size=8),
    }  # fmt: skip
    if operation == "gather":
        value, width = widened(given).gather(1, index), picked
        bound["output"] = untouched((rows, picked), dtype)
    else:
        value, bound["output"] = _held(
            operation, _scattered(operation, given, index, source), given
        )
        width = columns
    for name, extent in {"output": width, "input": columns, "src": picked, "index": picked}.items():
        bound[f"{name}_strides"] = numbers(1, extent, size=8)
    wanted = {argument.name for argument in kernel.buffers}
    yield Launch(
        {name: tensor for name, tensor in bound.items() if name in wanted},
        (rows * picked,), (32,), {"output": (given, value, value.abs().double() * 4 * EPS)},
    )  # fmt: skip


#: Kernels that only move elements are keyed by their width.
_WIDTHS = {"8bit": torch.int8, "16bit": torch.int16, "32bit": torch.int32, "64bit": torch.int64}


def _element(word: str) -> torch.dtype:
    return _WIDTHS.get(word) or dtype_named(word)


def _picked(rows: int, columns: int, picked: int) -> Tensor:
    """Return places without duplicates along the middle dimension, shaped (rows, picked)."""
    order = torch.rand(rows, columns, generator=values.generator(rows))
    return order.argsort(1)[:, :picked].contiguous()


@family(
    r"(?P<op>gather|scatter_(?:set|add|amax|amin|prod))_dense_(?P<value>value_)?(?P<a>[a-z0-9]+)_(?P<b>int|long)"
)
def _gather_dense(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call the kernels for contiguous tensors, seen as (outer, dimension, inner)."""
    operation, dtype, index_dtype = match["op"], dtype_named(match["a"]), dtype_named(match["b"])
    outer, columns, picked, inner = 3, 9, 6, 5
    index = _picked(outer, columns, picked)[..., None].expand(outer, picked, inner).contiguous()
    given, source = (
        random((outer, columns, inner), dtype, 1),
        random((outer, picked, inner), dtype, 2),
    )
    if match["value"]:
        source = source[:1, :1, :1].expand(source.shape).contiguous()
    if operation == "gather":
        value, output = widened(given).gather(1, index), untouched(index.shape, dtype)
    else:
        value, output = _held(operation, _scattered(operation, given, index, source), given)
    bound = {
        "output": output, "input": given, "src": source, "value": source.flatten()[:1],
        "index": index.to(index_dtype), "inner_size": numbers(inner, size=8),
        "input_dim_size": numbers(columns, size=8), "index_dim_size": numbers(picked, size=8),
        "output_dim_size": numbers(picked if operation == "gather" else columns, size=8),
        "tid_offset": numbers(0, size=8),
    }  # fmt: skip
    yield Launch(
        bound_to(kernel, bound), (index.numel(),), (32,),
        {"output": (given, value, value.abs().double() * 4 * EPS)},
    )  # fmt: skip


@family(r"scatter_set_(?P<a>(?!dense)[a-z0-9]+)_(?P<b>int|long)")
def _scatter_set(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, index_dtype = dtype_named(match["a"]), dtype_named(match["b"])
    rows, columns, picked = 5, 9, 6
    index = _picked(rows, columns, picked)
    given, source = random((rows, columns), dtype, 1), random((rows, picked), dtype, 2)
    bound = {
        "output": given.clone(), "src": source, "index": index.to(index_dtype),
        "index_sizes": numbers(picked, rows, size=8), "output_strides": numbers(1, columns, size=8),
        "src_strides": numbers(1, picked, size=8), "index_strides": numbers(1, picked, size=8),
        "ndim_dim": numbers(2, 0, 0, 0), "dim_size": numbers(columns, size=8), "tid_offset": numbers(0, size=8),
    }  # fmt: skip
    value = widened(given).scatter(1, index, widened(source))
    yield Launch(bound_to(kernel, bound), (index.numel(),), (32,), {"output": (given, value, 0.0)})


@family(r"index_copy_(?P<how>dense|strided)_(?P<a>[a-z0-9]+)_(?P<b>int|long)(_(32|64))?")
def _index_copy(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, index_dtype = dtype_named(match["a"]), dtype_named(match["b"])
    outer, columns, picked, inner = 3, 9, 4, 5
    index = _picked(1, columns, picked)[0]
    given, source = (
        random((outer, columns, inner), dtype, 1),
        random((outer, picked, inner), dtype, 2),
    )
    value = widened(given).index_copy(1, index, widened(source))
    bound = {
        "output": given.clone(), "source": source, "indices": index.to(index_dtype),
        "dim_size": numbers(columns, size=8), "inner": numbers(inner, size=8),
        "indices_numel": numbers(picked, size=8), "dim_out_stride": numbers(inner, size=8),
        "dim_source_stride": numbers(inner, size=8), "slice_sizes": numbers(outer, inner, size=8),
        "slice_out_strides": numbers(columns * inner, 1, size=8),
        "slice_source_strides": numbers(picked * inner, 1, size=8), "slice_ndim": numbers(2),
        "slice_numel": numbers(outer * inner, size=8), "indices_stride": numbers(1, size=8),
    }  # fmt: skip
    grid = (inner, picked, outer) if match["how"] == "dense" else (source.numel(),)
    group = (1, 1, 1) if match["how"] == "dense" else (32,)
    yield Launch(bound_to(kernel, bound), grid, group, {"output": (given, value, 0.0)})


@family(
    r"index_(?P<op>add|reduce_amax|reduce_amin|reduce_prod|reduce_mean)_(?P<a>[a-z0-9]+)_(?P<b>int|long)"
)
def _index_reduce(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, index_dtype = dtype_named(match["a"]), dtype_named(match["b"])
    operation = match["op"].removeprefix("reduce_")
    rows, columns, picked = 5, 9, 6
    index = torch.tensor([3, 0, 3, 8, 0, 1])
    given, source = random((rows, columns), dtype, 1), random((rows, picked), dtype, 2)
    wide = widened(given)
    if operation in {"add", "mean"}:  # of a mean the host divides the sums
        factor = 2 if operation == "add" else 1
        value = wide.index_add(1, index, widened(source), alpha=factor)
        if dtype == torch.bool:
            value = wide.bool().long().index_add(1, index, source.long()).bool().long()
    elif dtype.is_complex or dtype == torch.bool:
        raise Unfit("no reference for reductions of the dtype")
    else:
        value = wide.index_reduce(1, index, widened(source), operation)
    params = struct(
        kernel, "params", ndim=2, reduce_dim=1, self_strides=(columns, 1), self_sizes=(rows, columns),
        source_strides=(picked, 1), source_sizes=(rows, picked), index_stride=1,
    )  # fmt: skip
    alpha = torch.tensor([2]).to(dtype)
    # Atomics on small dtypes work on whole words: the memory behind the tensor is the allocator's padding.
    memory = torch.cat([given.flatten(), torch.zeros(8, dtype=dtype)])
    bound = {
        "self": memory,
        "index": index.to(index_dtype),
        "source": source,
        "params": params,
        "alpha": alpha,
    }
    padded = torch.cat([value.flatten(), torch.zeros(8, dtype=value.dtype)])
    yield Launch(
        bound_to(kernel, bound), (source.numel(),), (32,),
        {"self": (given, padded, padded.abs().double() * 8 * EPS + _half_steps(dtype) * padded.abs().double())},
    )  # fmt: skip


def _half_steps(dtype: torch.dtype) -> float:
    """Return what rounding each of a few steps to the dtype may change."""
    return 4 * torch.finfo(dtype).eps if dtype in {torch.float16, torch.bfloat16} else 0.0


@family(r"index_fill_(?P<how>dense|strided)_(?P<a>(?!from)[a-z0-9]+)")
def _index_fill(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    outer, columns, inner = 3, 9, 5
    index = torch.tensor([3, -1, 0])
    given = random((outer, columns, inner), dtype, 1)
    filler = random((1,), dtype, 3)
    value = widened(given).index_fill(1, index % columns, widened(filler)[0])
    bound = {
        "output": given.clone(), "indices": index, "fill_val": filler, "dim_size": numbers(columns, size=8),
        "dim_stride": numbers(inner, size=8), "slice_numel": numbers(outer * inner, size=8),
        "dim_out_stride": numbers(inner, size=8), "slice_sizes": numbers(outer, inner, size=8),
        "slice_out_strides": numbers(columns * inner, 1, size=8), "slice_ndim": numbers(2),
        "indices_stride": numbers(1, size=8),
    }  # fmt: skip
    yield Launch(
        bound_to(kernel, bound),
        (len(index) * outer * inner,),
        (1,),
        {"output": (given, value, 0.0)},
    )


@family(r"masked_fill_scalar_(?P<how>dense|strided|broadcast)_(?P<a>\d+bit)")
def _masked_fill(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = _element(match["a"])
    rows, columns = 5, 7
    given, filler = random((rows, columns), dtype, 1), random((1,), dtype, 3)
    mask = random((rows, columns), torch.bool, 2)
    if match["how"] == "broadcast":
        mask = mask[:1]
    value = torch.where(mask, filler, given)
    width = 1 if match["how"] == "broadcast" else columns
    bound = {
        "input": given.clone(), "mask": mask.contiguous(), "val": filler, "mask_numel": numbers(mask.numel()),
        "sizes": numbers(columns, rows, size=8), "input_strides": numbers(1, columns, size=8),
        "mask_strides": numbers(1, width, size=8), "ndim": numbers(2),
    }  # fmt: skip
    yield Launch(bound_to(kernel, bound), (given.numel(),), (1,), {"input": (given, value, 0.0)})


@family(r"flip_(?P<direct>direct_)?(?P<a>\d+bit)")
def _flip(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with a negative stride for the flipped dimension, as the host turns it (in bytes)."""
    dtype = _element(match["a"])
    rows, columns = 4, 6
    given = random((rows, columns), dtype, 1)
    value = given.flip(0, 1)
    size = given.element_size()
    source = torch.cat(
        [given.flatten().flip(0)]
    )  # the last element comes first: strides count down from it
    del source
    bound = {
        "output": untouched((rows, columns), dtype), "input": given.flatten()[-1:], "ndim": numbers(2),
        "sizes": numbers(columns, rows), "output_strides": numbers(size, columns * size, 0, 0),
        "input_strides": torch.tensor([-size, -columns * size, 0, 0], dtype=torch.int32),
    }  # fmt: skip
    grid = (columns, rows, 1) if match["direct"] else (given.numel(),)
    yield Launch(
        bound_to(kernel, bound),
        grid,
        (1, 1, 1) if match["direct"] else (1,),
        {"output": (given, value, 0.0)},
    )


@family(r"index_fill_(?P<how>dense|strided)_from_mask_(?P<a>[a-z0-9]+)")
def _index_fill_mask(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    outer, columns, inner = 3, 9, 5
    mask = torch.zeros(columns, dtype=torch.bool)
    mask[[0, 3, 8]] = True
    given, filler = random((outer, columns, inner), dtype, 1), random((1,), dtype, 3)
    bound = {
        "output": given.clone(), "mask": mask, "fill_val": filler, "dim_size": numbers(columns),
        "inner_size": numbers(inner), "sizes": numbers(outer, columns, inner, size=8),
        "out_strides": numbers(*given.stride(), size=8), "dim": numbers(1), "ndim": numbers(3),
    }  # fmt: skip
    value = widened(torch.where(mask[:, None], filler, given))
    dense = match["how"] == "dense"
    yield Launch(
        bound_to(kernel, bound), (inner, columns, outer) if dense else (given.numel(),),
        (1, 1, 1) if dense else (1,), {"output": (given, value, 0.0)},
    )  # fmt: skip


@family(r"eye_diag_(?P<a>[a-z0-9]+)")
def _eye_diagonal(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call on memory that the host has filled with zeros."""
    dtype = dtype_named(match["a"])
    output = torch.zeros((4, 6), dtype=dtype)
    value = widened(torch.eye(4, 6, dtype=torch.float64).to(dtype))
    bound = {"output": output, "diag_stride": numbers(7, size=8)}
    yield Launch(bound_to(kernel, bound), (4,), (1,), {"output": (value, value, 0.0)})


@family(r"eye_(?P<a>(?!diag)[a-z0-9]+)")
def _eye(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    rows, columns = 4, 6
    bound = {
        "output": untouched((rows, columns), dtype), "stride0": numbers(columns, size=8), "stride1": numbers(1, size=8)
    }  # fmt: skip
    value = torch.eye(rows, columns, dtype=torch.float64)
    value = value.to(torch.complex128) if dtype.is_complex else value
    yield Launch(bound_to(kernel, bound), (columns, rows), (1, 1), {"output": (value, value, 0.0)})


@family(r"(?P<op>tril|triu)_(?P<inplace>inplace_)?(?P<b>int|long)_(?P<a>[a-z0-9]+)")
def _triangle(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    batch, rows, columns = 2, 5, 7
    for diagonal in (0, 2, -1):
        given = random((batch, rows, columns), dtype, 1)
        value = getattr(torch, match["op"])(widened(given), diagonal)
        strides = numbers(1, columns, rows * columns, 0, size=4 if match["b"] == "int" else 8)
        bound = {
            "inp": given, "out": untouched(given.shape, dtype), "self": given.clone(), "out_strides": strides,
            "inp_strides": strides, "strides": strides, "sizes": numbers(columns, rows, batch, 0),
            "k_ndim": torch.tensor([diagonal, 3], dtype=torch.int32),
        }  # fmt: skip
        result = "self" if match["inplace"] else "out"
        yield Launch(
            bound_to(kernel, bound),
            (columns, rows, batch),
            (1, 1, 1),
            {result: (given, value, 0.0)},
        )


@family(r"cat_(?P<i>int32_t|int64_t)_(?P<a>[a-z0-9]+)_(?P<b>[a-z0-9]+)")
def _cat(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call once: each input of a cat is a launch of its own, at an offset."""
    first, second = dtype_named(match["a"]), dtype_named(match["b"])
    types = {argument.name: argument.type for argument in kernel.buffers}
    source, target = (first, second) if types["input"] == match["a"] else (second, first)
    batch, before, rows, columns = 2, 3, 4, 5
    given = random((batch, rows, columns), source, 1)
    if not target.is_signed and source.is_floating_point:
        given = given.abs()  # what a negative number becomes is not specified
    shape = (batch, before + rows + 1, columns)
    output = untouched(shape, target)
    value = widened(output)
    moved = given.to(target)
    value[:, before : before + rows] = widened(moved)
    shared = struct(
        kernel,
        "shared_params",
        ndim=3,
        cat_dim=1,
        output_strides=output.stride(),
        output_sizes=shape,
    )
    own = struct(
        kernel, "input_params", cat_dim_offset=before, input_element_offset=0,
        input_strides=given.stride(), input_sizes=given.shape,
    )  # fmt: skip
    yield Launch(
        {"input": given, "output": output, "shared_params": shared, "input_params": own},
        (given.numel(),), (32,), {"output": (given, value, 0.0)},
    )  # fmt: skip


_PADDED = {"reflection": "reflect", "replication": "replicate"}


@family(
    r"(?P<mode>reflection|replication)_pad(?P<dims>[123])d_(?P<way>forward|backward)_(?P<a>[a-z0-9]+)_(?P<i>i32|i64)"
)
def _pads(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with dimensions innermost first; strides 3 and 4 are those of channels and batch."""
    dtype, dims = dtype_named(match["a"]), int(match["dims"])
    for left, right in ((1, 2), (2, 0)):
        shape = (2, 3, 3, 5, 4)[:2] + (3, 5, 4)[3 - dims :]
        given = random(shape, dtype, 1)
        wide = widened(given)
        wide = wide if wide.is_floating_point() or wide.is_complex() else wide.double()
        wide.requires_grad_(match["way"] == "backward")
        padded = F.pad(wide, (left, right) * dims, mode=_PADDED[match["mode"]])
        output = untouched(padded.shape, dtype)

        def strides(tensor: Tensor) -> tuple[int, ...]:
            spatial = tuple(reversed(tensor.stride()[2:]))
            return (*spatial, *(0,) * (3 - dims), tensor.stride(1), tensor.stride(0))

        params = struct(
            kernel, "params", input_sizes=tuple(reversed(shape[2:])), left_pad=(left,) * dims,
            output_sizes=tuple(reversed(padded.shape[2:])), input_strides=strides(given),
            output_strides=strides(output), channels=3,
        )  # fmt: skip
        extent = padded.shape[2:] if match["way"] == "forward" else given.shape[2:]
        grid = (extent[-1], extent[-2] if dims > 1 else 1, 6 * (extent[0] if dims == 3 else 1))
        if match["way"] == "forward":
            bound = {"input": given, "output": output, "params": params}
            yield Launch(bound, grid, (1, 1, 1), {"output": (given, padded, 0.0)})
            continue
        upstream = random(padded.shape, dtype, 2)
        (gradient,) = torch.autograd.grad(padded, wide, widened(upstream))
        bound = {
            "grad_output": upstream,
            "grad_input": torch.zeros(shape, dtype=dtype),
            "params": params,
        }
        slack = float(upstream.abs().double().amax()) * 64 * (EPS + _half_steps(dtype) / 8)
        yield Launch(bound, grid, (1, 1, 1), {"grad_input": (given, gradient, slack)})


@family(r"constant_pad_nd_(?P<dense>dense_)?(?P<a>[a-z0-9]+?)(_u32|_u64)?")
def _constant_pad(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    shape, left, right = (3, 4, 5), (1, 2, 0), (2, 0, 3)
    given, filler = random(shape, dtype, 1), random((1,), dtype, 3)
    sides = [side for dimension in (2, 1, 0) for side in (left[dimension], right[dimension])]
    value = F.pad(widened(given), sides, value=0)
    inside = F.pad(torch.ones(shape, dtype=torch.bool), sides, value=False)
    value = torch.where(inside, value, widened(filler))
    given_strides = {} if match["dense"] else {
        "input_strides": (1, 5, 20), "output_strides": tuple(reversed(value.stride())), "ndim": 3
    }  # fmt: skip
    params = struct(
        kernel, "params", output_sizes=tuple(reversed(value.shape)), input_sizes=tuple(reversed(shape)),
        left_pad=tuple(reversed(left)), **given_strides,
    )  # fmt: skip
    depth, height, width = value.shape
    grid = (width, height, depth) if match["dense"] else (width, height * depth)
    bound = {
        "input": given,
        "output": untouched(value.shape, dtype),
        "params": params,
        "fill_value": filler,
    }
    yield Launch(bound, grid, (1,) * len(grid), {"output": (given, value, 0.0)})


_STEPS = 33


def _ranged(
    kernel: Kernel, value: Tensor, dtype: torch.dtype, slack: Tensor | float, **given: Tensor
) -> Launch:
    """Return the launch of a range, dense or with every second place of rows of 24; ``given`` are its limits."""
    strided = any(argument.name == "ndim" for argument in kernel.buffers)
    output = untouched((3, 24) if strided else (_STEPS,), dtype)
    wanted, off = widened(output), torch.zeros(output.shape, dtype=torch.float64)
    for whole, part in ((wanted, value), (off, torch.as_tensor(slack, dtype=torch.float64))):
        target = whole[:, :22:2] if strided else whole
        target.copy_(part.expand(_STEPS).view(target.shape))
    wide = 8 if kernel.name.endswith("_i64") else 4
    steps = () if "se" in given else (_STEPS,)
    bound = {
        "out": output, "p": numbers(*steps, 1, 0, 0, size=wide), "sp": numbers(_STEPS, 0, size=8),
        "base": numbers(0, size=8), "ndim": numbers(2), "sizes": numbers(11, 3, size=8),
        "strides": numbers(2, 24, size=8), "steps": numbers(_STEPS, 0), "stride": numbers(1, size=wide), **given,
    }  # fmt: skip
    return Launch(bound_to(kernel, bound), (_STEPS,), (1,), {"out": (value, wanted, off)})


@family(
    r"(?P<op>arange|linspace|logspace)_(?:strided_)?(?P<a>(?!strided|integral)[a-z0-9]+?)(?:_i32|_i64)?"
)
def _ranges(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, operation = dtype_named(match["a"]), match["op"]
    inexact = dtype.is_floating_point or dtype.is_complex
    start, step = 2.0, 0.25 if inexact else 1.0
    if operation == "logspace" and not inexact:
        start, step = 0.0, 0.1875  # of the powers a byte holds each
    last = start + step * (_STEPS - 1)
    value = torch.linspace(start, last, _STEPS, dtype=torch.float64)
    parameters = {
        "arange": (start, step),
        "linspace": (start, step, last),
        "logspace": (start, step, last, 2.0),
    }
    value = 2**value if operation == "logspace" else value
    slack = value.abs() * (8 if operation == "linspace" else 32) * EPS
    value = value.to(torch.complex128) if dtype.is_complex else value
    name = "se" if operation == "arange" else "v"
    argument = next(argument for argument in kernel.buffers if argument.name == name)
    numeric = dtype_named(argument.fields[0].type)
    limits = torch.tensor(parameters[operation]).to(numeric)
    yield _ranged(kernel, value, dtype, slack, **{name: limits})


@family(r"linspace_integral_(?:strided_)?(?P<a>int|long)(?:_i32|_i64)?")
def _whole_ranges(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with the quotient and the remainder of the distance and the number of steps."""
    limit = 2**31 - 1 if match["a"] == "int" else 2**62
    for start, last in ((-7, 100), (100, -7), (-limit, limit)):
        parts = _STEPS - 1
        exact = [Fraction(start * (parts - i) + last * i, parts) for i in range(_STEPS)]
        value = torch.tensor([math.trunc(number) for number in exact])
        params = numbers(start, last, *divmod(abs(last - start), parts), size=8)
        yield _ranged(kernel, value, dtype_named(match["a"]), 0.0, params=params)


@family(r"fill_scalar_(?P<how>dense|strided)_(?P<a>[a-z0-9]+)")
def _fill(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    rows, columns = 5, 7
    filler, output = random((1,), dtype, 3), untouched((rows, columns), dtype)
    size = output.element_size()
    bound = {
        "out": output, "fill_val": filler, "numel": numbers(output.numel()), "sizes": numbers(rows, columns, size=8),
        "strides": numbers(columns * size, size, size=8), "ndim": numbers(2),
    }  # fmt: skip
    grid = (output.numel(),) if match["how"] == "dense" else (columns, rows)
    value = widened(filler).expand(rows, columns)
    yield Launch(bound_to(kernel, bound), grid, (1,) * len(grid), {"out": (value, value, 0.0)})


@family(r"where_strided_(?P<a>[a-z0-9]+)_bool")
def _where(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    rows, columns = 5, 7
    condition = random((rows, columns), torch.bool, 0)
    first, second = random((rows, columns), dtype, 1), random((rows, 1), dtype, 2)
    size = first.element_size()
    bound = {
        "output": untouched((rows, columns), dtype), "input": condition, "other1": first, "other2": second,
        "sizes": numbers(columns, rows, size=8), "output_strides": numbers(size, columns * size, size=8),
        "input_strides": numbers(1, columns, size=8), "other1_strides": numbers(size, columns * size, size=8),
        "other2_strides": numbers(0, size, size=8), "ndim": numbers(2),
    }  # fmt: skip
    value = widened(torch.where(condition, first, second))
    yield Launch(
        bound_to(kernel, bound), (columns, rows, 1), (1, 1, 1), {"output": (first, value, 0.0)}
    )


@family(r"index_select_dim_(?P<dense>dense_)?(?P<a>\d+bit)_(?P<b>int|long)")
def _index_select(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, index_dtype = _element(match["a"]), dtype_named(match["b"])
    outer, columns, inner = 3, 9, 5
    index = torch.tensor([3, 0, 3, 8])
    given = random((outer, columns, inner), dtype, 1)
    value = given.index_select(1, index)
    bound = {
        "output": untouched(value.shape, dtype), "index": index.to(index_dtype), "input": given
    }  # fmt: skip
    if match["dense"]:
        bound["params"] = struct(
            kernel,
            "params",
            inner=inner,
            in_dim_size=columns,
            out_dim_size=len(index),
            index_stride=1,
        )
        yield Launch(bound, (inner, len(index), outer), (1, 1, 1), {"output": (given, value, 0.0)})
        return
    bound["params"] = struct(
        kernel, "params", ndim=3, reduce_dim=1, self_strides=given.stride(), self_sizes=given.shape,
        source_strides=value.stride(), source_sizes=value.shape, index_stride=1,
    )  # fmt: skip
    yield Launch(bound, (value.numel(),), (1,), {"output": (given, value, 0.0)})
