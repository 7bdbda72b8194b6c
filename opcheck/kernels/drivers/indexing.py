"""Calls the kernels of indices that are tensors, of raw copies, and of checks that leave a message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

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
from opcheck.kernels.pointwise import address, numbers

#: Kernels that only move elements are keyed by their width.
_WIDTHS = {"8bit": torch.int8, "16bit": torch.int16, "32bit": torch.int32, "64bit": torch.int64}
_ROWS, _COLUMNS, _INNER = 7, 5, 3

# index and index_put: operations/Indexing.mm.  The host passes the strides of what is indexed as those of the
# indices, and the addresses of the indices.


def _indices(*, repeated: bool) -> tuple[Tensor, Tensor]:
    """Return the places of the first two dimensions; some are negative, and count from the end."""
    rows, columns = torch.tensor([3, -1, 0, 3, 5]), torch.tensor([0, 4, -2, 1, 2])
    if repeated:
        rows, columns = rows.repeat(2), columns.repeat(2)
    return rows, columns


def _indexed(picked: tuple[Tensor, Tensor], outside: str, size: int) -> dict[str, Tensor]:
    """Return the host's arguments; ``outside`` is what has the shape of the indices: output or input."""
    count = len(picked[0])
    own = numbers(size, _INNER * size, size=8)
    indexed = numbers(size, 0, size=8)
    return {
        "indices": torch.tensor([address(index) for index in picked]),
        "sizes": numbers(_INNER, count, size=8), "indices_strides": numbers(0, 8, size=8),
        "output_strides": own if outside == "output" else indexed,
        "input_strides": own if outside == "input" else indexed,
        "index_sizes": numbers(_ROWS, _COLUMNS, size=8),
        "index_strides": numbers(_COLUMNS * _INNER * size, _INNER * size, size=8),
        "ndim_nindices_numel": numbers(2, 2, count * _INNER, 0),
    }  # fmt: skip


def _error_count(expected: int) -> tuple[Tensor, Tensor, float]:
    return torch.zeros(1), torch.tensor([expected]), 0.0


def _errors(bound: Mapping[str, Tensor]) -> Tensor:
    """Return how many messages a kernel left for the host."""
    memory = next(tensor for name, tensor in bound.items() if name.startswith("error_buf"))
    return memory[:4].view(torch.int32)


@family(r"index_select_(?P<a>\d+bit)")
def _index(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    given = random((_ROWS, _COLUMNS, _INNER), _WIDTHS[match["a"]], 1)
    picked = _indices(repeated=False)
    value = given[picked]
    for wrong in (0, 1):
        asked = (picked[0] + torch.tensor([0, 0, 0, 0, 9 * wrong]), picked[1])
        output = untouched(value.shape, given.dtype)
        bound = _indexed(asked, "output", given.element_size()) | {"input": given, "output": output}
        if wrong:
            value[-1] = 0  # what a wrong index gives, beside the message
        yield Launch(
            bound_to(kernel, bound), (value.numel(),), (1,),
            {"output": (given, value.clone(), 0.0), "error_buffer": _error_count(wrong * _INNER)},
            made={"error_buffer": _errors},
        )  # fmt: skip


@family(r"index_put_(?P<serial>serial_)?(?P<a>\d+bit)")
def _index_put(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call the serial form, which has one thread, with places that are written twice: the last value stays."""
    dtype, picked = _WIDTHS[match["a"]], _indices(repeated=bool(match["serial"]))
    given, source = (
        random((_ROWS, _COLUMNS, _INNER), dtype, 1),
        random((len(picked[0]), _INNER), dtype, 2),
    )
    value = given.clone()
    for place, (row, column) in enumerate(zip(*picked, strict=True)):
        value[row, column] = source[place]
    bound = _indexed(picked, "input", given.element_size()) | {
        "input": source,
        "output": given.clone(),
    }
    yield Launch(
        bound_to(kernel, bound), (1 if match["serial"] else source.numel(),), (1,),
        {"output": (given, value, 0.0), "error_buffer": _error_count(0)}, made={"error_buffer": _errors},
    )  # fmt: skip


@family(r"index_put_accumulate_(?P<a>[a-z0-9]+)")
def _index_put_accumulate(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, picked = dtype_named(match["a"]), _indices(repeated=True)
    given, source = (
        random((_ROWS, _COLUMNS, _INNER), dtype, 1),
        random((len(picked[0]), _INNER), dtype, 2),
    )
    value = widened(given).index_put(picked, widened(source), accumulate=True)
    # Atomics on small dtypes work on whole words: the memory behind the tensor is the allocator's padding.
    memory = torch.cat([given.flatten(), torch.zeros(8, dtype=dtype)])
    bound = _indexed(picked, "input", given.element_size()) | {"input": source, "output": memory}
    small = dtype in {torch.float16, torch.bfloat16, torch.complex32}
    step = torch.finfo(torch.float16 if dtype == torch.complex32 else dtype).eps if small else EPS
    terms = (
        widened(given)
        .abs()
        .double()
        .index_put(picked, widened(source).abs().double(), accumulate=True)
    )
    yield Launch(
        bound_to(kernel, bound), (source.numel(),), (1,),
        {"output": (given, value, terms * 4 * step), "error_buffer": _error_count(0)},
        made={"output": lambda bound: bound["output"][: given.numel()], "error_buffer": _errors},
    )  # fmt: skip


@family(r"index_check_bounds_(?P<a>int|long)")
def _check_bounds(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    for index, wrong in (([0, 3, 8], 0), ([0, 9, -1], 2)):
        bound = {
            "index": torch.tensor(index, dtype=dtype_named(match["a"])), "index_stride": numbers(1),
            "dim_size": numbers(9, size=8),
        }  # fmt: skip
        yield Launch(
            bound_to(kernel, bound), (len(index),), (1,), {"error_buf": _error_count(wrong)},
            made={"error_buf": _errors},
        )  # fmt: skip


@family(r"assert_async_(?P<size>[1248])")
def _asserts(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with a value of so many bytes, which is zero or has only its last byte set."""
    size = int(match["size"])
    for last in (1, 0):
        given = torch.zeros(size, dtype=torch.uint8)
        given[-1] = last
        message = torch.tensor([*b"not true", 0], dtype=torch.uint8)
        yield Launch(
            bound_to(kernel, {"input": given, "msg": message}), (1,), (1,), {"error_buf": _error_count(1 - last)},
            made={"error_buf": _errors},
        )  # fmt: skip


@family(r"index_fill_(?P<what>set|zero)_mask")
def _index_fill_mask(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    index, mask = torch.tensor([3, -1, 0]), torch.zeros(9, dtype=torch.bool)
    value = mask.clone()
    value[index] = True
    grid = len(index)
    if match["what"] == "zero":
        mask, value, grid = ~mask, mask.clone(), len(mask)
    bound = {
        "mask": mask, "indices": index.repeat_interleave(2), "dim_size": numbers(9, size=8),
        "indices_stride": numbers(2, size=8),
    }  # fmt: skip
    yield Launch(bound_to(kernel, bound), (grid,), (1,), {"mask": (value, value.long(), 0.0)})


# Copies of bytes, sixteen a thread: operations/Copy.mm, operations/Shape.mm

_EACH = 16


@family(r"contiguous_byte_copy")
def _byte_copy(_match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    for count, base in ((64, 0), (37, 16), (50, 3)):
        given = random((count + base,), torch.uint8, count)
        value = torch.cat([untouched((base,), torch.uint8), given[base:]])
        bound = {
            "out": untouched(given.shape, torch.uint8), "in": given, "chunk_bytes": numbers(count),
            "base": numbers(base, size=8),
        }  # fmt: skip
        yield Launch(
            bound_to(kernel, bound), (-(-count // _EACH),), (1,), {"out": (given, value, 0.0)}
        )


@family(r"inner_contiguous_copy")
def _rows_copy(_match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with rows that lie apart in memory, by other strides on each side."""
    for width, stride in ((48, 64), (37, 41), (18, 22)):
        given = random((2, 3, stride), torch.uint8, width)
        output = untouched((3, 2, stride + 2), torch.uint8)
        value = output.clone()
        value[..., :width] = given[..., :width].transpose(0, 1)
        bound = {
            "input": given, "output": output, "outer_sizes": numbers(3, 2, size=8),
            "input_outer_strides": numbers(stride, 3 * stride, size=8),
            "output_outer_strides": numbers(2 * (stride + 2), stride + 2, size=8),
            "ndim_outer_inner_bytes": numbers(2, width),
        }  # fmt: skip
        grid = (-(-width // _EACH), 6)
        yield Launch(bound_to(kernel, bound), grid, (1, 1), {"output": (given, value, 0.0)})


@family(r"inner_contiguous_scatter_u(?:32|64)")
def _blocks_copy(_match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call as a cat does: each slice goes to its offset in a longer one."""
    for width, stride, offset in ((48, 64, 16), (37, 50, 5), (18, 22, 2)):
        given = random((5, width), torch.uint8, width)
        output = untouched((5, stride), torch.uint8)
        value = output.clone()
        value[:, offset : offset + width] = given
        params = struct(
            kernel, "params", chunk_base=0, slice_bytes=width, out_stride_bytes=stride, off_bytes=offset,
            nbytes=given.numel(),
        )  # fmt: skip
        bound = {"input": given, "output": output, "params": params}
        yield Launch(
            bound_to(kernel, bound), (-(-given.numel() // _EACH),), (1,), {"output": (given, value, 0.0)}
        )  # fmt: skip
