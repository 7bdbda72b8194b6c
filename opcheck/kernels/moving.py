"""Calls the kernels that move values: gather, scatter, index, pad, cat."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from opcheck.kernels import values
from opcheck.kernels.launch import (
    EPS,
    Launch,
    dtype_named,
    family,
    random,
    untouched,
    widened,
)
from opcheck.kernels.machine import Kernel
from opcheck.kernels.pointwise import Unfit, numbers

# Gather, scatter, indexing: ScatterGather.mm, Indexing.mm


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
    if given.dtype.is_complex or given.dtype == torch.bool:
        raise Unfit("no reference for reductions of the dtype")
    if given.dtype == torch.int64 and reduce in {"amax", "amin"}:
        raise Unfit("the host flips the sign bits first (scatter_signbit_xor)")
    return wide.scatter_reduce(1, index, widened(source), "sum" if reduce == "add" else reduce)


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
        value, width = _scattered(operation, given, index, source), columns
        bound["output"] = given.clone()
    for name, extent in {"output": width, "input": columns, "src": picked, "index": picked}.items():
        bound[f"{name}_strides"] = numbers(1, extent, size=8)
    wanted = {argument.name for argument in kernel.buffers}
    yield Launch(
        {name: tensor for name, tensor in bound.items() if name in wanted},
        (rows * picked,), (32,), {"output": (given, value, value.abs().double() * 4 * EPS)},
    )  # fmt: skip
