"""Calls the kernels that count: nonzero, repeat_interleave, histogramdd, the indices of triangles."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from opcheck.kernels.launch import (
    EPS,
    Launch,
    bound_to,
    dtype_named,
    family,
    random,
    untouched,
)
from opcheck.kernels.machine import Kernel
from opcheck.kernels.pointwise import numbers

# nonzero: operations/Indexing.mm.  The second word of a name is the type of the index of an element.

#: Threads of a threadgroup, which is a block of elements.
_BLOCK = 1024


def _sparse(dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Return values of which about half are zero."""
    given = random(shape, dtype, 1)
    return torch.where(random(shape, torch.bool, 2), given, torch.zeros_like(given))


def _block_sums(given: Tensor) -> Tensor:
    return torch.stack([(part != 0).sum() for part in torch.split(given.flatten(), _BLOCK)])


@family(r"count_nonzero_prefix_sum_(?P<a>[a-z0-9]+)_(?:uint|ulong)")
def _count_nonzero(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    for count in (100, 2 * _BLOCK + 52):
        given = _sparse(dtype, (count,))
        value = _block_sums(given)
        bound = {
            "input": given, "block_sums": untouched(value.shape, torch.int32),
            "flat_base": numbers(0, size=8), "block_base": numbers(0, size=8),
        }  # fmt: skip
        yield Launch(
            bound_to(kernel, bound), (count,), (_BLOCK,), {"block_sums": (given, value, 0.0)}
        )


@family(r"prefix_sum_blocks_(?:uint|ulong)")
def _block_offsets(_match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with one threadgroup, each of whose threads has several blocks."""
    for count in (1, 100, 2500):
        given = random((count,), torch.uint8, count).long()
        bound = {
            "block_sums": given.int(), "num_blocks": numbers(count),
            "block_offsets": untouched((count,), torch.int64), "total_nonzero": untouched((1,), torch.int64),
        }  # fmt: skip
        yield Launch(
            bound_to(kernel, bound), (_BLOCK,), (_BLOCK,),
            {
                "block_offsets": (given, given.cumsum(0) - given, 0.0),
                "total_nonzero": (given, given.sum()[None], 0.0),
            },
        )  # fmt: skip


@family(r"scatter_nonzero_indices_(?P<a>[a-z0-9]+)_(?:uint|ulong)")
def _nonzero(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, shape = dtype_named(match["a"]), (3, 100, 7)
    given = _sparse(dtype, shape)
    sums, value = _block_sums(given), given.nonzero()
    bound = {
        "input": given, "output": untouched(value.shape, torch.int64), "ndim": numbers(3),
        "sizes": numbers(*shape, size=8), "block_offsets": sums.cumsum(0) - sums,
        "max_entries": numbers(len(value), size=8), "flat_base": numbers(0, size=8),
        "block_base": numbers(0, size=8),
    }  # fmt: skip
    yield Launch(
        bound_to(kernel, bound), (given.numel(),), (_BLOCK,), {"output": (given, value, 0.0)}
    )


@family(r"repeat_interleave_(?P<a>int32_t|int64_t)")
def _repeat_interleave(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with every second of the counts (operations/Repeat.mm)."""
    dtype = {"int32_t": torch.int32, "int64_t": torch.int64}[match["a"]]
    counts = torch.tensor([2, 0, 5, 1, 0, 3], dtype=dtype)
    value = torch.arange(len(counts)).repeat_interleave(counts)
    bound = {
        "repeat_ptr": counts.repeat_interleave(2), "cumsum_ptr": counts.cumsum(0),
        "result_ptr": untouched(value.shape, dtype), "repeat_stride": numbers(2, size=8),
    }  # fmt: skip
    yield Launch(
        bound_to(kernel, bound), (len(counts),), (1,), {"result_ptr": (counts, value, 0.0)}
    )


# tril_indices, triu_indices: aten/src/ATen/native/mps/operations/TriangularOps.mm.  What the host passes is what
# aten/src/ATen/native/cuda/TensorFactories.cu passes: a trapezoid or triangle, and a rectangle.


@family(r"(?P<op>tril|triu)_indices_(?P<a>int|long)")
def _triangle_indices(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    for rows, columns, offset in ((5, 7, 0), (7, 5, -1), (6, 6, 2), (2000, 1500, 3)):
        function = torch.tril_indices if match["op"] == "tril" else torch.triu_indices
        value = function(rows, columns, offset)
        if match["op"] == "tril":
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
        bound = {name: numbers(number, size=8) for name, number in names.items()}
        bound["tensor"] = untouched(value.shape, dtype)
        yield Launch(
            bound_to(kernel, bound), (value.shape[1],), (1,), {"tensor": (value, value, 0.0)}
        )


# histogramdd: operations/HistogramKernel.mm.  What a bin's index is made of: 0 is equal widths, 1 is equal
# widths with a search beside, 2 is a search.


@family(r"histogramdd_(?P<atomic>atomic_)?(?P<a>float|half|bfloat)")
def _histogramdd(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with numbers in the middle of their bins, where rounding does not move them to another."""
    dtype, count, dims, edges = dtype_named(match["a"]), 203, 2, (5, 9)
    for algorithm in (0, 1, 2):
        bins = [
            random((count,), torch.uint8, dimension).long() % edges[dimension]
            for dimension in range(dims)
        ]
        # Beyond the last edge in some dimension: not counted.
        given = torch.stack([part.double() + 0.5 for part in bins], -1).to(dtype)
        inside = (bins[0] < edges[0] - 1) & (bins[1] < edges[1] - 1)
        place = bins[0] * (edges[1] - 1) + bins[1]
        size = (edges[0] - 1) * (edges[1] - 1)
        weight = random((count,), dtype, 7)
        each = torch.zeros(count, size, dtype=torch.float64)
        chosen = torch.arange(count)[inside], place[inside]
        each[chosen] = 1.0 if match["atomic"] else weight.double()[inside]
        result, value = ("counts", each.sum(0).long()) if match["atomic"] else ("local_out", each)
        bound = {
            "input_": given, "weight": weight, "input_strides": numbers(dims, 1, size=8),
            "num_dims": numbers(dims, size=8), "num_bin_edges": numbers(*edges, size=8),
            "bin_seq": torch.cat([torch.arange(float(edge)) for edge in edges]).to(dtype),
            "local_out_strides": numbers(size, edges[1] - 1, 1, size=8),
            "hist_strides": numbers(edges[1] - 1, 1, size=8),
            "algorithm": torch.tensor([algorithm], dtype=torch.uint8), "weight_stride": numbers(1, size=8),
            result: torch.zeros(value.shape, dtype=torch.int32 if match["atomic"] else dtype),
        }  # fmt: skip
        yield Launch(bound_to(kernel, bound), (count,), (1,), {result: (given, value, EPS)})
