"""Calls kernels that compute element by element with several operands or results a place: cross, frexp, glu."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
    untouched,
    widened,
)
from opcheck.kernels.machine import Kernel
from opcheck.kernels.pointwise import numbers


@family(r"cross_(?:dense|strided)_(?P<a>[a-z0-9]+)")
def _cross(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call for the middle dimension of three (operations/CrossKernel.mm): a thread computes all three results."""
    dtype, shape = dtype_named(match["a"]), (5, 3, 7)
    first, second = random(shape, dtype, 1), random(shape, dtype, 2)
    value = torch.linalg.cross(widened(first), widened(second), dim=1)
    products = torch.linalg.cross(
        widened(first).abs().double(), -widened(second).abs().double(), dim=1
    ).abs()
    rolled = widened(first).abs().roll(1, 1) * widened(second).abs().roll(-1, 1)
    slack = (products + rolled * 2).double() * 4 * _eps(dtype)
    strides = numbers(*first.stride(), size=8)
    bound = {
        "out": untouched(shape, dtype), "input": first, "other": second, "dim_stride": numbers(7),
        "squashed_sizes": numbers(5, 7, size=8), "out_strides": strides, "input_strides": strides,
        "other_strides": strides, "ndim": numbers(3), "dim": numbers(1),
    }  # fmt: skip
    yield Launch(bound_to(kernel, bound), (35,), (1,), {"out": (first, value, slack)})


def _eps(dtype: torch.dtype) -> float:
    """Return the relative step of what a dtype's products are kept in."""
    parts = {torch.complex64: torch.float32, torch.complex32: torch.float16}.get(dtype, dtype)
    return torch.finfo(parts).eps if parts.is_floating_point else 0.0


def _byte_strides(*tensors: Tensor) -> list[Tensor]:
    """Return the strides of matrices in bytes, innermost first."""
    return [numbers(*(s * t.element_size() for s in reversed(t.stride())), size=8) for t in tensors]


@family(r"frexp_(?P<how>dense|strided)_(?P<a>float|half|bfloat)")
def _frexp(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call over all delicate values; of infinities and NaN the exponent is not defined."""
    dtype = dtype_named(match["a"])
    given = values.single(dtype)
    given = given[given.isfinite()]
    given = given[: len(given) // 8 * 8].view(8, -1)
    mantissa, exponent = torch.frexp(given.double())
    out = untouched(given.shape, dtype), untouched(given.shape, torch.int32)
    strides = _byte_strides(given, *out)
    bound = {
        "mantissa": out[0], "exponent": out[1], "input": given, "ndim": numbers(2),
        "sizes": numbers(*reversed(given.shape), size=8), "input_strides": strides[0],
        "mantissa_strides": strides[1], "exponent_strides": strides[2],
    }  # fmt: skip
    # A denormal may be flushed, and then is zero.
    flushed = given.abs() < torch.finfo(dtype).smallest_normal
    for tensor in (mantissa, exponent):
        tensor[flushed] = 0
    given[flushed] = 0
    yield Launch(
        bound_to(kernel, bound), (given.numel(),), (1,),
        {"mantissa": (given, mantissa, 0.0), "exponent": (given, exponent.long(), 0.0)},
    )  # fmt: skip


@family(r"glu_(?P<back>backward_)?(?:dense_)?(?P<a>float|half|bfloat)")
def _glu(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call for the last dimension, whose halves are the values and the gates (operations/GatedLinearUnit.mm)."""
    dtype, rows, half = dtype_named(match["a"]), 5, 7
    given = random((rows, 2 * half), dtype, 1) * 4
    wide = given.double().requires_grad_()
    value = F.glu(wide)
    upstream = random((rows, half), dtype, 2)
    out = untouched((rows, half), dtype)
    result, name = value.detach(), "out"
    if match["back"]:
        (result,) = torch.autograd.grad(value, wide, upstream.double())
        out, name = untouched(given.shape, dtype), "grad_input"
    strides = _byte_strides(out, given, upstream)
    offset = half * given.element_size()
    bound = {
        name: out, "input": given, "grad_output": upstream, "inner_half": numbers(half, size=8),
        "sizes": numbers(half, rows, size=8), f"{name}_strides": strides[0], "input_strides": strides[1],
        "grad_output_strides": strides[2], "grad_input_byte_offset": numbers(offset, size=8),
        "input_byte_offset": numbers(offset, size=8), "ndim": numbers(2),
    }  # fmt: skip
    dense = any(argument.name == "inner_half" for argument in kernel.buffers)
    # Each step is rounded to the dtype.
    slack = (result.abs() + 1) * 4 * torch.finfo(dtype).eps + EPS
    yield Launch(
        bound_to(kernel, bound), (half, rows) if dense else (half * rows,), (1, 1) if dense else (1,),
        {name: (given, result, slack)},
    )  # fmt: skip
