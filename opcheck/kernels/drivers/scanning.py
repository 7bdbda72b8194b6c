"""Calls the kernels of scans: in one threadgroup, in blocks with a second pass, with look-back, and transposed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from opcheck.kernels.launch import (
    EPS,
    LENGTHS,
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

# The scans are called by aten/src/ATen/native/mps/operations/ScanKernel.mm.

_SCANNED: dict[str, Callable[[Tensor, int], Any]] = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "cummax": torch.cummax,
    "cummin": torch.cummin,
    "logcumsumexp": torch.logcumsumexp,
}


@family(
    r"(?P<op>cumsum|cumprod|cummax|cummin|logcumsumexp)_(?P<form>innermost|outer)"
    r"_(?P<a>(?!transposed)[a-z0-9]+)(?:_(?P<b>long))?"
)
def _scans(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    operation, dtype, outer = match["op"], dtype_named(match["a"]), match["form"] == "outer"
    target = dtype_named(match["b"] or match["a"])
    names = [argument.name for argument in kernel.buffers]
    for length in LENGTHS[:4] if outer else LENGTHS:
        rows = 3
        given = random((rows, length), dtype, length)
        if operation == "cumprod":
            given = torch.where(given == 0, torch.ones_like(given), given)
            given = given.sign() if not dtype.is_complex else torch.ones_like(given) * 1j
        if outer:  # the scanned dimension stands before 40 columns: more than the 32 of a block
            given = given[..., None].expand(rows, length, 40).clone()
            given[..., 7] = given[:, :1, 7]
            if dtype == torch.float16:
                given[..., 7] = 1.0 if operation != "cumsum" else 0.25
        dim = 1
        scanned = _SCANNED[operation](widened(given), dim)
        value, places = (
            (scanned.values, scanned.indices)
            if operation in {"cummax", "cummin"}
            else (scanned, None)
        )
        slack: Tensor | float = 0.0
        if dtype.is_floating_point or dtype.is_complex:
            slack = given.abs().double().cumsum(dim) * 4 * EPS + value.abs() * length * EPS
        bound = {
            "in": given, "axis_size": numbers(length, size=8), "stride": numbers(40, size=8),
            "stride_blocks": numbers(2, size=8),
        }  # fmt: skip
        out = untouched(given.shape, target)
        expected = {}
        if places is None:
            bound["out"], expected["out"] = out, (given, value, slack)
        elif "out_values" in names:
            bound |= {"out_values": out, "out_indices": untouched(given.shape, torch.int64)}
            expected = {"out_values": (given, value, 0.0)}
            if dtype.is_floating_point and not outer:
                expected["out_indices"] = (given, places, 0.0)
        group = min(1024, -(-length // (4 * 32)) * 32)
        if outer:  # 32 rows, and as many lanes a row as read 32 columns: 4 elements a lane, or 2 of eight bytes
            group = 32 * (16 if target.itemsize == 8 else 8)
        yield Launch(
            {name: tensor for name, tensor in bound.items() if name in names},
            (group, 2 * rows if outer else rows, 1), (group, 1, 1), expected,
        )  # fmt: skip


#: Rows of threads of a tile of the strided forms.
_TILE_ROWS = 32


def _each(dtype: torch.dtype) -> int:
    """Return the elements that a thread reads at once: four, or two of eight bytes."""
    return 2 if dtype.itemsize == 8 else 4


def _factors(operation: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return random values; those of a product have the absolute value 1, so that none overflows."""
    given = random(shape, dtype, sum(shape))
    if operation == "cumsum":
        return given
    return torch.where(given == 0, torch.ones_like(given), given).sign()


def _accumulated(operation: str, given: Tensor, dim: int) -> tuple[Tensor, Tensor | float]:
    """Return a scan and what another order of its steps may change."""
    value = _SCANNED[operation](widened(given), dim)
    if not given.dtype.is_floating_point:
        return value, 0.0
    return value, given.abs().double().cumsum(dim) * 8 * EPS


def _total(operation: str, wide: Tensor, dim: int) -> Tensor:
    return wide.sum(dim) if operation == "cumsum" else wide.prod(dim)


def _accumulator(target: torch.dtype) -> torch.dtype:
    return torch.float32 if target.is_floating_point else target


@family(
    r"(?P<op>cumsum|cumprod)_(?:(?P<form>strided|vec)_)?block_(?P<step>reduce|carry)(?:_(?P<width>\d+))?"
    r"_(?P<a>[a-z]+)(?:_(?P<b>long))?"
)
def _block_scans(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call one of two passes: the total of each block, or the scan of each block after those before it."""
    source, target = dtype_named(match["a"]), dtype_named(match["b"] or match["a"])
    accumulator, form, operation = _accumulator(target), match["form"], match["op"]
    width = int(match["width"] or 1)
    rows, each = 2, _each(accumulator)
    # Blocks are whole tiles, but for those of contiguous rows.
    group, block = {
        None: (256, 700),
        "vec": (64, 64 * each),
        "strided": (width // each * 32, 2 * _TILE_ROWS),
    }[form]
    inner = width if form == "vec" else width - 3 if form else 1
    for length in (block * 2, block * 3 - 5):
        given = _factors(operation, (rows, length, inner), source)
        value, slack = _accumulated(operation, given, 1)
        blocks = -(-length // block)
        parts = torch.stack(
            [_total(operation, part, 1) for part in torch.split(widened(given), block, 1)], -1
        )  # (rows, inner, blocks)
        sums = parts if form != "vec" else parts.transpose(1, 2).contiguous()
        if form == "strided" and match["step"] == "carry":
            sums = _SCANNED[operation](parts, -1)  # by the kernel between the two passes
        bound = {
            "in": given, "out": untouched(given.shape, target), "axis_size": numbers(length, size=8),
            "block_sums": untouched(sums.shape, accumulator) if match["step"] == "reduce" else sums.to(accumulator),
            "block_size": numbers(block, size=8), "num_blocks": numbers(blocks, size=8),
            "n_orows": numbers(rows, size=8), "stride": numbers(inner, size=8), "stride_blocks": numbers(1, size=8),
        }  # fmt: skip
        grid = (group, rows * blocks, 1) if form else (group * blocks, rows, 1)
        sizes = given.abs().double().sum(1).amax() * 8 * EPS if source.is_floating_point else 0.0
        expected: dict[str, tuple[Tensor, Tensor, Tensor | float]] = {"out": (given, value, slack)}
        if match["step"] == "reduce":
            expected = {"block_sums": (given, sums, sizes)}
        yield Launch(bound_to(kernel, bound), grid, (group, 1, 1), expected)


@family(r"(?P<op>cumsum|cumprod)_scan_block_sums_(?P<a>[a-z]+)")
def _block_sums(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    """Call the kernel between the two passes, which scans the blocks' totals in place."""
    accumulator, operation = _accumulator(dtype_named(match["a"])), match["op"]
    for blocks in (1, 7, 300, 700):
        given = _factors(operation, (3, blocks), accumulator)
        value, slack = _accumulated(operation, given, 1)
        yield Launch(
            {"block_sums": given.clone(), "num_blocks": numbers(blocks, size=8)},
            (256, 3, 1), (256, 1, 1), {"block_sums": (given, value, slack)},
        )  # fmt: skip


@family(
    r"(?P<op>cumsum|cumprod)_(?:contig_decoupled|strided_decoupled_(?P<width>\d+)_(?P<each>\d+))_(?P<a>[a-z]+)"
)
def _scans_with_look_back(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call in tiles that wait for those before them, which a launch in ascending order never makes them do."""
    dtype, operation, width = dtype_named(match["a"]), match["op"], int(match["width"] or 1)
    rows = 2
    group = 256 if not match["width"] else 768 if width <= 2 else 512
    tile = group * int(match["each"] or 16)
    for length in (tile * 2 + 77, 100):
        given = _factors(operation, (rows, length, width), dtype)
        value, slack = _accumulated(operation, given, 1)
        tiles = -(-length // tile)
        total = rows * tiles
        bound = {
            "in": given, "out": untouched(given.shape, dtype), "tile_counter": torch.zeros(1, dtype=torch.int32),
            "status": torch.zeros(total, dtype=torch.int32), "axis_size": numbers(length), "num_tiles": numbers(tiles),
            "aggregates": torch.full((total * width,), -1, dtype=torch.int32),
            "inclusive": torch.full((total * width,), -1, dtype=torch.int32),
        }  # fmt: skip
        yield Launch(
            bound_to(kernel, bound), (group * total,), (group,), {"out": (given, value, slack)}
        )


@family(r"(?P<op>cumsum|cumprod)_tiny_innermost_(?P<a>[a-z]+)(?:_(?P<b>long))?")
def _short_scans(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    """Call with many rows a threadgroup: as many as 2,048 elements have."""
    source, target = dtype_named(match["a"]), dtype_named(match["b"] or match["a"])
    for length in (1, 5, 32):
        rows = 500
        given = _factors(match["op"], (rows, length), source)
        value, slack = _accumulated(match["op"], given, 1)
        each = 2048 // length
        yield Launch(
            {
                "in": given, "out": untouched(given.shape, target), "axis_size": numbers(length),
                "n_scans": numbers(rows), "rows_per_tg": numbers(each),
            },
            (256 * -(-rows // each), 1, 1), (256, 1, 1), {"out": (given, value, slack)},
        )  # fmt: skip


@family(r"(?P<op>cumsum|cumprod)_innermost_transposed_(?P<a>[a-z]+)(?:_(?P<b>long))?")
def _transposed_scans(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    """Call with rows that lie beside each other in memory; the result has them one after the other."""
    source, target = dtype_named(match["a"]), dtype_named(match["b"] or match["a"])
    group = 32 // _each(_accumulator(target)) * 32
    columns = 40
    for length in LENGTHS[:4]:
        given = _factors(match["op"], (length, columns), source)
        value, slack = _accumulated(match["op"], given, 0)
        if isinstance(slack, Tensor):
            slack = slack.T.contiguous()
        yield Launch(
            {
                "in": given, "out": untouched((columns, length), target), "axis_size": numbers(length, size=8),
                "n_cols": numbers(columns, size=8), "stride_blocks": numbers(2, size=8),
            },
            (group, 2, 1), (group, 1, 1), {"out": (given, value.T.contiguous(), slack)},
        )  # fmt: skip
