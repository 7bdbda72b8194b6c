"""Calls the kernels of sorts, of unique, median and histograms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from opcheck.kernels.launch import (
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

# Radix sorts: aten/src/ATen/native/mps/kernels/SortRadix.h and SortTopK.h, which the wheel ships.

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def _keys(given: Tensor, *, down: bool) -> Tensor:
    """Return the unsigned integers, in int64, whose order is that of the values; without NaN."""
    bits = 8 * given.element_size()
    every = (1 << bits) - 1
    raw = given.view(torch.uint8) if given.dtype == torch.bool else given.view(_BITS[bits // 8])
    raw = raw.long() & every
    if given.dtype.is_floating_point:
        keys = torch.where(raw >> (bits - 1) > 0, ~raw & every, raw | 1 << (bits - 1))
    elif given.dtype.is_signed and given.dtype != torch.bool:
        keys = raw ^ 1 << (bits - 1)
    else:
        keys = raw
    return ~keys & every if down else keys


def _radix_group(dtype: torch.dtype, name: str) -> tuple[int, int]:
    """Return the threads of a threadgroup and the elements of each: INSTANTIATE_RADIX in SortRadix.h."""
    if dtype.itemsize == 1:
        return 512, 8
    return (1024, 4) if dtype.itemsize == 2 and not name.endswith("_tptg512") else (512, 4)


_PLACES = {"ushort": torch.uint16, "uint": torch.uint32, "long": torch.int64}
_RADIX = r"(?P<a>[a-z]+)_(?P<bits>[48])bit(?P<few>_tptg512)?"


def _digits(given: Tensor, bits: int, shift: int, *, down: bool) -> Tensor:
    return _keys(given, down=down) >> shift & (1 << bits) - 1


def _histograms(digits: Tensor, block: int, bits: int) -> Tensor:
    """Return how often each digit is in each block: (rows, digits, blocks)."""
    counts = [
        torch.stack([torch.bincount(part, minlength=1 << bits) for part in row.split(block)], -1)
        for row in digits
    ]
    return torch.stack(counts)


def _before(histograms: Tensor) -> Tensor:
    """Return how many elements stand before those of a digit in a block, in the sorted row."""
    flat = histograms.flatten(1)
    return (flat.cumsum(1) - flat).view_as(histograms)


@family(rf"radix_count_(?P<scan>scan_)?{_RADIX}(?:_mb4)?")
def _radix_counts(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    dtype, bits = dtype_named(match["a"]), int(match["bits"])
    threads, each = _radix_group(dtype, match["few"] or "")
    block = threads * each
    for down, shift in ((False, 0), (True, 8 * dtype.itemsize - bits)):
        given = random((2, block + 100), dtype, 1)
        counts = _histograms(_digits(given, bits, shift, down=down), block, bits)
        value = _before(counts) if match["scan"] else counts
        grid = threads if match["scan"] else threads * counts.shape[-1]
        yield Launch(
            {
                "input": given, "histograms": untouched(value.shape, torch.int32), "desc": torch.tensor([down]),
                "dims": numbers(given.shape[1], counts.shape[-1], shift, 0),
            },
            (grid, 2, 1), (threads, 1, 1), {"histograms": (given, value, 0.0)},
        )  # fmt: skip


@family(r"radix_scan")
def _radix_scan(_match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    for entries in (16, 700, 5000):
        given = random((2, entries), torch.uint8, entries).int()
        value = _before(given[..., None].long())[..., 0]
        yield Launch(
            {"histograms": given.clone(), "n_entries": numbers(entries)},
            (1024, 2, 1), (1024, 1, 1), {"histograms": (given, value, 0.0)},
        )  # fmt: skip


@family(rf"radix_scatter_(?P<fused>fused_)?(?P<final>final_)?(?P<topk>topk_)?{_RADIX}(?:_u16)?")
def _radix_scatter(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call one pass: the rows are sorted by one digit, and stay in order where it is equal."""
    dtype, bits = dtype_named(match["a"]), int(match["bits"])
    threads, each = _radix_group(dtype, match["few"] or "")
    block = threads * each
    types = {argument.name: argument.type for argument in kernel.buffers}
    for down, shift, first in ((False, 0, True), (True, 8 * dtype.itemsize - bits, False)):
        given = random((1, block + 100), dtype, 1)
        rows, length = given.shape
        places = torch.arange(length).expand(rows, -1).contiguous()
        if not first:
            places = places.flip(1)
        digits = _digits(given, bits, shift, down=down)
        counts = _histograms(digits, block, bits)
        order = digits.argsort(dim=1, stable=True)
        keys, moved = widened(given).gather(1, order), places.gather(1, order)
        start, chosen = (3, 40) if match["topk"] else (0, length)
        keys, moved = keys[:, start : start + chosen], moved[:, start : start + chosen]
        bound = {
            "keys_in": given, "vals_in": places.to(_PLACES[types["vals_in"]]),
            "keys_out": untouched(keys.shape, dtype), "vals_out": untouched(keys.shape, _PLACES[types["vals_out"]]),
            "offsets": (counts if match["fused"] else _before(counts)).int(),
            "dims": numbers(length, counts.shape[-1], shift, 0), "flags": torch.tensor([down, first]),
            "sel": numbers(start, chosen),
        }  # fmt: skip
        yield Launch(
            bound_to(kernel, bound), (threads * counts.shape[-1], rows, 1), (threads, 1, 1),
            {"keys_out": (given, keys, 0.0), "vals_out": (given, moved, 0.0)},
        )  # fmt: skip


# Sorts by merging: operations/Sort.mm.  Those of floats by key make integers of them in between.

_KEYS = {"ushort": torch.uint16, "uint": torch.uint32}


def _argument_types(kernel: Kernel) -> dict[str, str]:
    return {argument.name: argument.type for argument in kernel.buffers}


@family(r"sort_block_(?:(?P<part>topk)_|fkey_)?(?P<a>[a-z0-9]+)_tptg(?P<t>\d+)(?P<stable>_stable)?")
def _sort(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with rows of one block; `sel`, where a kernel has it, says which part of each row it writes."""
    dtype, threads = dtype_named(match["a"]), int(match["t"])
    types = _argument_types(kernel)
    if not {"inp", "out_vals", "out_idx", "size", "strides", "desc"} <= types.keys():
        raise Unfit("other arguments than sort_block had in 2.13")
    for most, down, part in (
        (1, False, 1),
        (33, False, 33),
        (100, True, 5),
        (4 * threads, False, 7),
    ):
        length = min(most, 4 * threads)  # a block has four elements a thread
        chosen = part if "sel" in types else length
        given = random((2, length), dtype, length)
        order = torch.sort(given, dim=-1, descending=down, stable=True)
        expected: dict[str, Any] = {"out_vals": (given, widened(order.values[:, :chosen]), 0.0)}
        if match["stable"]:
            expected["out_idx"] = (given, order.indices, 0.0)
        bound = {
            "inp": given, "out_vals": untouched((2, chosen), dtype),
            "out_idx": untouched((2, chosen), torch.int64), "size": numbers(length),
            "strides": numbers(1, length, size=8), "desc": torch.tensor([down]), "sel": numbers(0, chosen),
        }  # fmt: skip
        yield Launch(bound_to(kernel, bound), (threads, 2, 1), (threads, 1, 1), expected)


@family(r"mb_sort_block_(?P<key>fkey_)?(?P<a>[a-z0-9]+)_tptg(?P<t>\d+)(?:_u16)?(?:_stable)?")
def _sort_blocks(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call the first pass of a long sort: each block of four elements a thread is sorted by itself."""
    dtype, threads = dtype_named(match["a"]), int(match["t"])
    block, types = 4 * threads, _argument_types(kernel)
    written = _KEYS[types["dv"]] if match["key"] else dtype
    for down in (False, True):
        given = random((2, 3 * block), dtype, threads)
        held = _keys(given, down=down) if match["key"] else given
        order = torch.sort(
            held.reshape(2, 3, block), descending=down and not match["key"], stable=True
        )
        bound = {
            "inp": given, "dv": untouched(given.shape, written), "di": untouched(given.shape, _PLACES[types["di"]]),
            "size": numbers(3 * block), "strides": numbers(1, 3 * block, size=8), "desc": torch.tensor([down]),
        }  # fmt: skip
        yield Launch(
            bound, (3 * threads, 2, 1), (threads, 1, 1), {"dv": (given, widened(order.values), 0.0)}
        )


@family(
    r"mb_merge_(?:final_)?(?P<topk>topk_)?(?P<key>fkey_)?(?P<a>[a-z0-9]+)_tptg(?P<t>\d+)(?:_u16)?"
)
def _merge_blocks(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call a later pass of a long sort: two neighbours of sorted blocks become one."""
    dtype, threads = dtype_named(match["a"]), int(match["t"])
    block, types = 4 * threads, _argument_types(kernel)
    chosen = 7 if match["topk"] else 2 * block
    for down in (False, True):
        given = random((2, 2 * block), dtype, threads)
        held = _keys(given, down=down) if match["key"] else given
        order = torch.sort(
            held.reshape(2, 2, block), descending=down and not match["key"], stable=True
        )
        places = order.indices + torch.tensor([0, block])[:, None]
        merged = torch.sort(given, descending=down, stable=True).values[:, :chosen]
        bound = {
            "vi": order.values.to(_KEYS[types["vi"]] if match["key"] else dtype),
            "ii": places.to(_PLACES[types["ii"]]), "vo": untouched((2, chosen), dtype),
            "io": untouched((2, chosen), _PLACES[types["io"]]), "dims": numbers(2 * block, 2, 2, 0),
            "desc": torch.tensor([down]), "sel": numbers(0, chosen),
        }  # fmt: skip
        yield Launch(
            bound_to(kernel, bound), (2 * threads, 2, 1), (threads, 1, 1), {"vo": (given, widened(merged), 0.0)}
        )  # fmt: skip


# The kernels of unique are called by operations/Unique.mm there.


def _sorted(dtype: torch.dtype) -> Tensor:
    """Return a sorted row with duplicates."""
    given = random((61,), dtype, 5)
    repeated = torch.cat([given, given[:20]])
    return repeated.sort().values


def _runs(given: Tensor) -> Tensor:
    """Return where a value differs from the one before it."""
    changed = torch.ones(len(given), dtype=torch.int64)
    changed[1:] = given[1:] != given[:-1]
    return changed


@family(r"unique_mark_boundaries_(?P<a>[a-z]+)")
def _unique_boundaries(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    given = _sorted(dtype_named(match["a"]))
    yield Launch(
        {"sorted": given, "mask": untouched(given.shape, torch.int32)},
        (len(given),), (32,), {"mask": (given, _runs(given), 0.0)},
    )  # fmt: skip


_SCANNED = {"32": torch.int32, "64": torch.int64}


@family(r"unique_emit_(?P<a>[a-z]+)_(?P<size>32|64)")
def _unique_emit(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    given = _sorted(dtype)
    runs = _runs(given)
    first = runs.nonzero().flatten()
    yield Launch(
        {
            "sorted": given, "mask": runs.int(), "scan": runs.cumsum(0).to(_SCANNED[match["size"]]),
            "unique_values": untouched(first.shape, dtype), "bound_pos": untouched(first.shape, torch.int64),
        },
        (len(given),), (32,),
        {"unique_values": (given, widened(given[first]), 0.0), "bound_pos": (given, first, 0.0)},
    )  # fmt: skip


@family(r"unique_inverse_(?P<size>32|64)")
def _unique_inverse(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    unsorted = random((61,), torch.int64, 5)
    order = unsorted.sort(stable=True)
    scan = _runs(order.values).cumsum(0)
    value: Tensor = torch.unique(unsorted, return_inverse=True)[1]
    yield Launch(
        {
            "sort_idx": order.indices, "scan": scan.to(_SCANNED[match["size"]]),
            "inverse": untouched(value.shape, torch.int64),
        },
        (61,), (32,), {"inverse": (unsorted, value, 0.0)},
    )  # fmt: skip


@family(r"unique_counts")
def _unique_counts(_match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    given = _sorted(torch.int64)
    value: Tensor = torch.unique(given, return_counts=True)[1]
    yield Launch(
        {
            "bound_pos": _runs(given).nonzero().flatten(), "counts": untouched(value.shape, torch.int64),
            "num_unique": numbers(len(value), size=8), "numel": numbers(len(given), size=8),
        },
        (len(value),), (32,), {"counts": (value, value, 0.0)},
    )  # fmt: skip


# Medians and histograms: ReduceOps.mm, HistogramKernel.mm


@family(r"median_gather_(?P<a>[a-z]+)")
def _median_gather(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    for length, ignoring in ((7, False), (8, False), (9, True)):
        given = random((3, length), dtype, length)
        given[1, 2] = given[1, 5] = torch.nan
        order = given.sort(dim=1, stable=True)
        median = (given.nanmedian if ignoring else given.median)(1)
        expected: dict[str, tuple[Tensor, Tensor, Tensor | float]] = {
            "out_vals": (given, widened(median.values), 0.0)
        }
        yield Launch(
            {
                "sorted_vals": order.values, "sorted_idxs": order.indices, "out_vals": untouched((3,), dtype),
                "out_idxs": untouched((3,), torch.int64), "sort_size": numbers(length),
                "ignore_nan": torch.tensor([ignoring]),
            },
            (3,), (1,), expected,
        )  # fmt: skip


_DIGIT = 8


@family(r"median_select_hist_(?P<a>[a-z]+)")
def _median_histogram(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call the first of the passes that find a digit of the median each."""
    dtype = dtype_named(match["a"])
    if dtype.itemsize == torch.int64.itemsize:
        given = random((1000,), torch.int32, 3)
        top = (
            given < 0
        ).long()  # the highest digit: 127 of the negative numbers, 128 of the others
        counts = torch.bincount(128 - top, minlength=256)
        given = given.long()
    else:
        given = random((1000,), dtype, 3)
        shift = 8 * dtype.itemsize - _DIGIT
        counts = torch.bincount(_digits(given, _DIGIT, shift, down=False), minlength=256)
    state = struct(kernel, "state", k=499)
    yield Launch(
        {
            "input": given, "state": state, "hist": torch.zeros(257, dtype=torch.int32), "numel": numbers(1000),
            "shift": numbers(8 * dtype.itemsize - _DIGIT), "first_pass": torch.tensor([True]),
        },
        (512,), (256,), {"hist": (given, torch.cat([counts, torch.zeros(1, dtype=torch.int64)]), 0.0)},
    )  # fmt: skip


@family(r"median_select_pick_(?P<a>[a-z]+)")
def _median_pick(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call all passes over a digit each, with the histograms that the kernel before it gives."""
    dtype, count = dtype_named(match["a"]), 1001
    given = random((count,), dtype, 3)
    passes = dtype.itemsize
    keys = _bytes_of_keys(given)
    state = struct(kernel, "state")
    output, left = untouched((1,), dtype), torch.ones(count, dtype=torch.bool)
    median = given.sort().values[(count - 1) // 2]
    for number in range(passes):
        digits = keys[:, number]
        histogram = torch.cat(
            [torch.bincount(digits[left], minlength=256), torch.zeros(1, dtype=torch.int64)]
        )
        bound = {
            "out": output, "state": state, "hist": histogram.int(), "numel": numbers(count),
            "first_pass": torch.tensor([number == 0]), "last_pass": torch.tensor([number == passes - 1]),
            "ignore_nan": torch.tensor([False]),
        }  # fmt: skip
        chosen = keys[given == median][0]
        prefix = int.from_bytes(
            bytes(chosen[: number + 1].tolist()).rjust(8, b"\0"), "big", signed=True
        )
        expected: dict[str, tuple[Tensor, Tensor, Tensor | float]] = {
            "state": (given, torch.tensor([prefix]), 0.0)
        }
        if number == passes - 1:
            expected["out"] = (given, widened(median)[None], 0.0)
        yield Launch(
            bound_to(kernel, bound), (1,), (1,), expected,
            made={"state": lambda bound: bound["state"][:8].view(torch.int64)},
        )  # fmt: skip
        left &= digits == chosen[number]


def _bytes_of_keys(given: Tensor) -> Tensor:
    """Return the keys' bytes, the highest first."""
    size = given.element_size()
    if size == torch.int64.itemsize:
        flipped = given ^ -(2**63)
        return torch.stack([flipped >> 8 * place & 255 for place in reversed(range(size))], -1)
    keys = _keys(given, down=False)
    return torch.stack([keys >> 8 * place & 255 for place in reversed(range(size))], -1)


@family(r"histc_atomic_(?P<where>global|threadgroup)_(?P<a>[a-z]+)")
def _histogram(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    given = random((500,), dtype, 3)
    edges = torch.arange(9).to(dtype)
    value = torch.histc(given.double(), 8, 0, 8).long()
    bound = {
        "input": given, "counts": torch.zeros(8, dtype=torch.int32), "input_stride": numbers(1, size=8),
        "num_elements": numbers(500), "num_bins": numbers(8, size=8), "bin_edges": edges, "total_threads": numbers(256),
    }  # fmt: skip
    grid = 500 if match["where"] == "global" else 256
    yield Launch(
        bound_to(kernel, bound), (grid,), (64,), {"counts": (given, value, 0.0)}, {"local_counts": 64}
    )  # fmt: skip
