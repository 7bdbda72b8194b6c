"""Calls the kernels of sorts, searches and counts: unique, median, histograms, searchsorted."""

from typing import Any

import torch
from torch import Tensor

from opcheck.kernels import judging, values
from opcheck.kernels.launch import KernelCall, Launch, Launches, Result, family
from opcheck.kernels.pointwise import Unfit, dtype_named
from opcheck.kernels.values import fill_untouched, random, widen

# histogramdd: operations/HistogramKernel.mm.  What a bin's index is made of: 0 is equal widths, 1 is equal
# widths with a search, 2 is a search.


@family(r"histogramdd_(?P<atomic>atomic_)?{float}")
def _histogramdd(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with numbers in the middle of their bins, where rounding does not move them to another."""
    count, dims, edges = 203, 2, (5, 9)
    for algorithm in (0, 1, 2):
        bins = [random((count,), torch.uint8, dimension).long() % edges[dimension] for dimension in range(dims)]
        # Beyond the last edge in some dimension: not counted.
        operand = torch.stack([part.double() + 0.5 for part in bins], -1).to(dtype)
        inside = (bins[0] < edges[0] - 1) & (bins[1] < edges[1] - 1)
        place = bins[0] * (edges[1] - 1) + bins[1]
        size = (edges[0] - 1) * (edges[1] - 1)
        weight = random((count,), dtype, 7)
        each = torch.zeros(count, size, dtype=torch.float64)
        chosen = torch.arange(count)[inside], place[inside]
        each[chosen] = 1.0 if call["atomic"] else weight.double()[inside]
        result, value = ("counts", each.sum(0).long()) if call["atomic"] else ("local_out", each)
        yield Launch({
            "input_": operand, "weight": weight, "input_strides": (dims, 1), "num_dims": dims, "num_bin_edges": edges,
            "bin_seq": torch.cat([torch.arange(float(edge)) for edge in edges]).to(dtype),
            "local_out_strides": (size, edges[1] - 1, 1), "hist_strides": (edges[1] - 1, 1),
            "algorithm": torch.tensor([algorithm], dtype=torch.uint8), "weight_stride": 1,
            result: torch.zeros(value.shape, dtype=torch.int32 if call["atomic"] else dtype)
        }, count, {result: (operand, value, judging.EPS)})  # fmt: skip


# Searching is called by Bucketization.mm.


@family(r"searchsorted_{any}_{index}(?P<sorter>_sorter)?")
def _search(call: KernelCall, dtype: torch.dtype) -> Launches:
    for right in (0, 1):
        bounds = torch.unique(random((40,), dtype, 1))
        operand = torch.cat([random((61,), dtype, 2), bounds[:5]])
        bound = {
            "data_in": operand, "data_bd": bounds, "idim_in": len(operand), "idim_bd": len(bounds),
            "numel_in": len(operand), "right": right, "is_1d_boundaries": 1
        }  # fmt: skip
        if call["sorter"]:
            order = torch.randperm(len(bounds), generator=values.generator(1))
            bound["data_sort"] = torch.argsort(order)
            bound["data_bd"] = bounds[order]
        value = torch.searchsorted(bounds.double(), operand.double(), right=bool(right))
        yield Launch(bound, (len(operand), 1), {"data_out": (operand, value)}, group=(32, 1))


# Radix sorts: aten/src/ATen/native/mps/kernels/SortRadix.h and SortTopK.h, which the wheel ships.

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def _keys(operand: Tensor, *, down: bool) -> Tensor:
    """Return the unsigned integers, in int64, whose order is that of the values; without NaN."""
    bits = 8 * operand.element_size()
    every = (1 << bits) - 1
    raw = operand.view(torch.uint8) if operand.dtype == torch.bool else operand.view(_BITS[bits // 8])
    raw = raw.long() & every
    if operand.dtype.is_floating_point:
        keys = torch.where(raw >> (bits - 1) > 0, ~raw & every, raw | 1 << (bits - 1))
    elif operand.dtype.is_signed and operand.dtype != torch.bool:
        keys = raw ^ 1 << (bits - 1)
    else:
        keys = raw
    return ~keys & every if down else keys


def _radix_group(dtype: torch.dtype, name: str) -> tuple[int, int]:
    """Return the threads of a threadgroup and the elements of each: INSTANTIATE_RADIX in SortRadix.h."""
    if dtype.itemsize == 1:
        return 512, 8
    return (1024, 4) if dtype.itemsize == 2 and not name.endswith("_tptg512") else (512, 4)


_RADIX = r"(?P<a>[a-z]+)_(?P<bits>[48])bit(?P<few>_tptg512)?"


def _digits(operand: Tensor, bits: int, shift: int, *, down: bool) -> Tensor:
    return _keys(operand, down=down) >> shift & (1 << bits) - 1


def _histograms(digits: Tensor, block: int, bits: int) -> Tensor:
    """Return how often each digit is in each block: (rows, digits, blocks)."""
    counts = [
        torch.stack([torch.bincount(part, minlength=1 << bits) for part in row.split(block)], -1) for row in digits
    ]
    return torch.stack(counts)


def _count_before(histograms: Tensor) -> Tensor:
    """Return how many elements precede those of a digit in a block, in the sorted row."""
    flat = histograms.flatten(1)
    return (flat.cumsum(1) - flat).view_as(histograms)


@family(rf"radix_count_(?P<scan>scan_)?{_RADIX}(?:_mb4)?")
def _radix_counts(call: KernelCall, dtype: torch.dtype) -> Launches:
    bits = int(call["bits"])
    threads, each = _radix_group(dtype, call["few"])
    block = threads * each
    for down, shift in ((False, 0), (True, 8 * dtype.itemsize - bits)):
        operand = random((2, block + 100), dtype, 1)
        counts = _histograms(_digits(operand, bits, shift, down=down), block, bits)
        value = _count_before(counts) if call["scan"] else counts
        grid = threads if call["scan"] else threads * counts.shape[-1]
        bound = {"input": operand, "desc": down, "dims": (operand.shape[1], counts.shape[-1], shift, 0)}
        yield Launch(bound, (grid, 2, 1), {"histograms": (operand, value)}, group=(threads, 1, 1))


@family(r"radix_scan")
def _radix_scan(_call: KernelCall) -> Launches:
    for entries in (16, 700, 5000):
        operand = random((2, entries), torch.uint8, entries).int()
        expected = {"histograms": (operand, _count_before(operand[..., None].long())[..., 0])}
        yield Launch({"histograms": operand.clone(), "n_entries": entries}, (1024, 2, 1), expected, group=(1024, 1, 1))


@family(rf"radix_scatter_(?P<fused>fused_)?(?P<final>final_)?(?P<topk>topk_)?{_RADIX}(?:_u16)?")
def _radix_scatter(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call one pass: the rows are sorted by one digit, and stay in order where it is equal."""
    bits = int(call["bits"])
    threads, each = _radix_group(dtype, call["few"])
    block = threads * each
    for down, shift, first in ((False, 0, True), (True, 8 * dtype.itemsize - bits, False)):
        operand = random((1, block + 100), dtype, 1)
        if dtype.is_floating_point:  # a flushed number has another digit than its offset counts
            operand[judging.is_denormal(operand)] = 0
        rows, length = operand.shape
        places = torch.arange(length).expand(rows, -1).contiguous()
        if not first:
            places = places.flip(1)
        digits = _digits(operand, bits, shift, down=down)
        counts = _histograms(digits, block, bits)
        order = digits.argsort(dim=1, stable=True)
        keys, moved = widen(operand).gather(1, order), places.gather(1, order)
        start, chosen = (3, 40) if call["topk"] else (0, length)
        keys, moved = keys[:, start : start + chosen], moved[:, start : start + chosen]
        yield Launch({
            "keys_in": operand, "vals_in": places.to(call.dtype("vals_in")),
            "offsets": (counts if call["fused"] else _count_before(counts)).int(),
            "dims": (length, counts.shape[-1], shift, 0), "flags": torch.tensor([down, first]), "sel": (start, chosen)
        }, (threads * counts.shape[-1], rows, 1), {"keys_out": (operand, keys), "vals_out": (operand, moved)},
            group=(threads, 1, 1))  # fmt: skip


# Sorts by merging: operations/Sort.mm.  Those of floats by key make integers of them in between.


@family(r"sort_block_(?:(?P<part>topk)_|fkey_)?{any}_tptg(?P<t>\d+)(?P<stable>_stable)?")
def _sort(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with rows of one block; `sel`, where a kernel has it, selects the part of each row to write."""
    threads = int(call["t"])
    types = call.types
    if not {"inp", "out_vals", "out_idx", "size", "strides", "desc"} <= types.keys():
        raise Unfit("other arguments than sort_block had in 2.13")
    for most, down, part in ((1, False, 1), (33, False, 33), (100, True, 5), (4 * threads, False, 7)):
        length = min(most, 4 * threads)  # a block has four elements a thread
        chosen = part if "sel" in types else length
        operand = random((2, length), dtype, length)
        order = torch.sort(operand, dim=-1, descending=down, stable=True)
        expected: dict[str, Any] = {"out_vals": (operand, widen(order.values[:, :chosen]))}
        if call["stable"]:
            expected["out_idx"] = (operand, order.indices, 0.0)
        yield Launch({
            "inp": operand, "out_idx": fill_untouched((2, chosen), torch.int64), "size": length, "strides": (1, length),
            "desc": down, "sel": (0, chosen)
        }, (threads, 2, 1), expected, group=(threads, 1, 1))  # fmt: skip


@family(
    r"mb_(?P<step>sort_block|merge)_(?:final_)?(?P<topk>topk_)?(?P<key>fkey_)?{any}_tptg(?P<t>\d+)(?:_u16)?(?:_stable)?"
)
def _long_sort(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call a pass of a long sort: blocks of four elements a thread are sorted, or two sorted neighbours are merged."""
    threads, merges = int(call["t"]), call["step"] == "merge"
    block, blocks = 4 * threads, 2 if merges else 3
    chosen = 7 if call["topk"] else blocks * block
    for down in (False, True):
        operand = random((2, blocks * block), dtype, threads)
        held = _keys(operand, down=down) if call["key"] else operand
        order = torch.sort(held.reshape(2, blocks, block), descending=down and not call["key"], stable=True)
        bound = {
            "desc": down, "inp": operand, "size": 3 * block, "strides": (1, 3 * block), "dims": (2 * block, 2, 2, 0),
            "sel": (0, chosen)
        }  # fmt: skip
        expected = {"dv": (operand, widen(order.values))}
        if merges:
            places = order.indices + torch.tensor([0, block])[:, None]
            bound |= {
                "vi": order.values.to(call.dtype("vi") if call["key"] else dtype),
                "ii": places.to(call.dtype("ii")),
            }
            merged = torch.sort(operand, descending=down, stable=True).values
            expected = {"vo": (operand, widen(merged[:, :chosen]))}
        for name in call.types.keys() & {"di", "io"}:
            bound[name] = fill_untouched((2, chosen), call.dtype(name))
        yield Launch(bound, (blocks * threads, 2), expected, group=threads)


# The kernels of unique are called by operations/Unique.mm there.


def _runs(operand: Tensor) -> Tensor:
    """Return where a value differs from the one before it."""
    changed = torch.ones(len(operand), dtype=torch.int64)
    changed[1:] = operand[1:] != operand[:-1]
    return changed


@family(r"unique_(?P<step>mark_boundaries|emit|inverse|counts)(?:_{word})?(?:_(?:32|64))?")
def _unique(call: KernelCall) -> Launches:
    """Call a step of unique: where values change, the values, the place of each, or how often each is there."""
    row = random((61,), dtype_named(call["a"] or "long"), 5)
    operand = torch.cat([row, row[:20]]).sort().values  # with duplicates
    runs = _runs(operand)
    first, scan = runs.nonzero().flatten(), runs.cumsum(0)
    order = torch.randperm(len(operand), generator=values.generator(5))
    results = {
        "mark_boundaries": {"mask": runs}, "emit": {"unique_values": widen(operand[first]), "bound_pos": first},
        "inverse": {"inverse": torch.zeros_like(order).scatter(0, order, scan - 1)},
        "counts": {"counts": torch.bincount(scan - 1)},
    }[call["step"]]  # fmt: skip
    bound = {
        "sorted": operand, "mask": runs.tolist(), "scan": scan.tolist(), "sort_idx": order, "bound_pos": first,
        "num_unique": len(first), "numel": len(operand)
    }  # fmt: skip
    yield Launch(
        {name: content for name, content in bound.items() if name not in results},
        len(first) if call["step"] == "counts" else len(operand),
        {name: (operand, value) for name, value in results.items()}, group=32
    )  # fmt: skip


# Medians and histograms: ReduceOps.mm, HistogramKernel.mm


@family(r"median_gather_{word}")
def _median_gather(_call: KernelCall, dtype: torch.dtype) -> Launches:
    for length, ignoring in ((7, False), (8, False), (9, True)):
        operand = random((3, length), dtype, length)
        operand[1, 2] = operand[1, 5] = torch.nan
        order = operand.sort(dim=1, stable=True)
        median = (operand.nanmedian if ignoring else operand.median)(1)
        expected: dict[str, Result] = {"out_vals": (operand, widen(median.values))}
        yield Launch(
            {"sorted_vals": order.values, "sorted_idxs": order.indices, "out_idxs": fill_untouched((3,), torch.int64),
            "sort_size": length, "ignore_nan": ignoring}, 3, expected
        )  # fmt: skip


_DIGIT = 8


@family(r"median_select_hist_{word}")
def _median_histogram(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call the first of the passes that find a digit of the median each."""
    operand = random((1000,), dtype, 3)
    counts = torch.bincount(_bytes_of_keys(operand)[:, 0], minlength=256)
    state = call.struct("state", k=499)
    yield Launch({
        "input": operand, "state": state, "hist": torch.zeros(257, dtype=torch.int32), "numel": 1000,
        "shift": 8 * dtype.itemsize - _DIGIT, "first_pass": True
    }, 512, {"hist": (operand, torch.cat([counts, torch.zeros(1, dtype=torch.int64)]))}, group=256)  # fmt: skip


@family(r"median_select_pick_{word}")
def _median_pick(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call all passes over a digit each, with the histograms that the kernel before it gives."""
    count = 1001
    operand = random((count,), dtype, 3)
    passes = dtype.itemsize
    keys = _bytes_of_keys(operand)
    state = call.struct("state")
    output, left = fill_untouched((1,), dtype), torch.ones(count, dtype=torch.bool)
    median = operand.sort().values[(count - 1) // 2]
    for number in range(passes):
        digits = keys[:, number]
        histogram = torch.cat([torch.bincount(digits[left], minlength=256), torch.zeros(1, dtype=torch.int64)])
        bound = {
            "out": output, "state": state, "hist": histogram.int(), "numel": count, "first_pass": number == 0,
            "last_pass": number == passes - 1, "ignore_nan": False
        }  # fmt: skip
        chosen = keys[operand == median][0]
        prefix = int.from_bytes(bytes(chosen[: number + 1].tolist()).rjust(8, b"\0"), "big", signed=True)
        expected: dict[str, Result] = {"state": (operand, torch.tensor([prefix]))}
        if number == passes - 1:
            expected["out"] = (operand, widen(median)[None], 0.0)
        yield Launch(bound, 1, expected, derived={"state": lambda bound: bound["state"][:8].view(torch.int64)})
        left &= digits == chosen[number]


def _bytes_of_keys(operand: Tensor) -> Tensor:
    """Return the keys' bytes, the highest first."""
    size = operand.element_size()
    # An int64 has the sign bit flipped; its shifted bytes are those of an unsigned number.
    keys = operand ^ -(2**63) if size == torch.int64.itemsize else _keys(operand, down=False)
    return torch.stack([keys >> 8 * place & 255 for place in reversed(range(size))], -1)


@family(r"histc_atomic_(?P<where>global|threadgroup)_{word}")
def _histogram(call: KernelCall, dtype: torch.dtype) -> Launches:
    operand = random((500,), dtype, 3)
    edges = torch.arange(9).to(dtype)
    value = torch.histc(operand.double(), 8, 0, 8).long()
    grid = 500 if call["where"] == "global" else 256
    yield Launch({
        "input": operand, "counts": torch.zeros(8, dtype=torch.int32), "input_stride": 1, "num_elements": 500,
        "num_bins": 8, "bin_edges": edges, "total_threads": 256
    }, grid, {"counts": (operand, value)}, group=64, shared={"local_counts": 64})  # fmt: skip
