"""Calls the kernels of reductions and scans: ReduceOps.mm, ScanKernel.mm."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opcheck.kernels.judging import EPS
from opcheck.kernels.launch import LENGTHS, KernelCall, Launch, Launches, Result, family
from opcheck.kernels.pointwise import Unfit, dtype_named
from opcheck.kernels.values import fill_untouched, random, widen

# The reductions are called by aten/src/ATen/native/mps/operations/ReduceOps.mm.

_REDUCED: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(-1), "nansum": lambda x: x.nansum(-1), "prod": lambda x: x.prod(-1),
    "max": lambda x: x.amax(-1), "min": lambda x: x.amin(-1), "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1), "any": lambda x: x.bool().any(-1), "all": lambda x: x.bool().all(-1),
    "count_nonzero": lambda x: (x != 0).sum(-1), "var": lambda x: x.var(-1, correction=1),
    "std": lambda x: x.std(-1, correction=1), "norm_l0": lambda x: (x != 0).sum(-1).double(),
    "norm_l1": lambda x: x.abs().sum(-1), "norm_l2": lambda x: x.square().sum(-1).sqrt(),
    "norm_l2_combine": lambda x: x.sum(-1).sqrt(), "norm_inf": lambda x: x.abs().amax(-1),
    "norm_neginf": lambda x: x.abs().amin(-1)
}  # fmt: skip


def _reduction_slack(operation: str, operand: Tensor, value: Tensor) -> Tensor:
    """Return what another order of summation may change."""
    if value.dtype in {torch.int64, torch.bool} or operation in {"max", "min"}:
        return torch.zeros(value.shape, dtype=torch.float64)
    wide = operand.abs().double()
    return wide.sum(-1) * 8 * EPS + (value.abs().double() * operand.shape[-1] * EPS)


#: The state of a variance between two passes: the mean, the squares' sum about it, and the count, in 16 bytes.
_STATE = "float3"


def _state(operand: Tensor) -> Tensor:
    """Return the states of a variance of the last dimension, in double."""
    count = torch.full(operand.shape[:-1], operand.shape[-1], dtype=torch.float64)
    squares = operand.double().var(-1, correction=0) * count
    return torch.stack([operand.double().mean(-1), squares, count, torch.zeros_like(count)], -1)


def _operand(word: str, operation: str, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the numbers that are reduced along the last dimension, and their memory."""
    if word == _STATE:
        drawn = random((*shape, 3), torch.float32, shape[-1])
        return drawn.flatten(-2), _state(drawn).float()
    dtype = dtype_named(word)
    operand = random(shape, dtype, shape[-1])
    if operation == "prod":
        if dtype.is_complex:
            operand = (widen(operand) / 3).to(dtype)
        operand = torch.where(widen(operand) == 0, torch.ones_like(operand), operand)
        operand = operand if dtype.is_complex else operand.sign()
    return operand, operand


def _result(word: str, operand: Tensor, value: Tensor, slack: Tensor) -> dict[str, Any]:
    """Return the results' memory, and what a launch expects there."""
    if word != _STATE:
        out = fill_untouched(value.shape, dtype_named(word))
        return {"out": out, "expected": {"output": (operand, value, slack)}, "derived": {}}
    state = _state(operand)[..., :3]
    wide = operand.double()
    off = (wide.abs().sum(-1) + wide.square().sum(-1))[..., None] * 8 * EPS
    return {
        "out": fill_untouched((*value.shape, 4), torch.float32),
        "expected": {"output": (operand, state, off.expand(state.shape))},
        "derived": {"output": lambda bound: bound["output"][..., :3]},
    }


@family(r"(?P<op>argmax|argmin)_reduction_combine_{any}")
def _combined_places(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call the second of two passes over the extreme value of each part and its place: a simdgroup a row."""
    rows = 3
    for parts in (1, 7, 33, 100):
        operand = random((rows, parts), dtype, parts)
        places = torch.arange(rows * parts, dtype=torch.int32).view(rows, parts) * 5 + 2
        wide = widen(operand)
        extreme = (wide.amax if call["op"] == "argmax" else wide.amin)(-1, keepdim=True)
        value = torch.where(wide == extreme, places, 2**31 - 1).amin(-1).long()
        yield Launch({
            "input": operand, "idx_in": places, "sizes": (rows, parts, 1, parts),
            "val_out": fill_untouched((rows,), dtype), "idx_out": fill_untouched((rows,), torch.int32)
        }, rows * 32, {"output": (operand, value)}, group=32)  # fmt: skip


@family(r"(?P<op>\w+?)_reduction_{any}_(?P<b>[a-z0-9]+)")
def _reductions(call: KernelCall) -> Launches:
    operation, rows = call["op"], 5
    if operation not in _REDUCED:
        raise Unfit(f"no reference for the reduction {operation}")
    for length in LENGTHS:
        if operation in {"var", "std"} and length == 1:
            continue
        operand, memory = _operand(call["a"], operation, (rows, length))
        value = _REDUCED[operation](widen(operand))
        result = _result(call["b"], operand, value, _reduction_slack(operation, operand, value))
        params = call.struct("params", p=1.0, reduction_size=length, ndim=2, input_sizes=(rows, length),
            input_strides=(length, 1), output_sizes=(rows, 1), output_strides=(1, 1))  # fmt: skip
        group = min(1024, -(-length // 32) * 32)
        bound = {"input": memory, "output": result["out"], "params": params}
        yield Launch(bound, rows * group, result["expected"], group=group, derived=result["derived"])


def _arrange(form: str, batch: int, width: int, length: int) -> tuple[tuple[int, ...], Sequence[int], Sequence[int]]:
    """Return the sizes, the grid and the threadgroup of a form, by the extents of the results and the reduction."""
    rows, outer = batch * width, (length, width, 1, 0)
    if form == "flat":
        return (rows * length, length), (rows * 256,), (256,)
    if form == "flat_strided":  # one threadgroup reduces all rows
        return (1, length, 1, 0), (256,), (256,)
    if form == "innermost":
        # A simdgroup a row (2.15.0).  Sums read two of the sizes; argmax also the parts and elements of a row.
        return (rows, length, 1, length), (rows * 32,), (32,)
    if form == "innermost_chunk":  # eight lanes a row, so that a simdgroup has four rows
        return (rows, length, 8, 1), (-(-rows // 4) * 32,), (32,)
    if form.startswith("narrow"):
        return outer, (256, 1, batch), (256, 1, 1)
    lanes = 32 if form == "outer" else 1
    return outer, (-(-width // 32) * 32, lanes, batch), (32, lanes, 1)  # 32 columns a threadgroup


#: The extents of the reduced dimension that a form takes, if not all.
_LENGTHS = {
    "flat": (4, 128, 1028), "flat_strided": (1, 7, 33, 1025), "innermost": LENGTHS[1:], "outer": LENGTHS[:4],
    "outer_small_dim": LENGTHS[:4]
}  # fmt: skip
#: Batches and width of the results of one launch; else 2 and 3.  The outer forms have batches since 2.14.
#: Threads of a partly filled threadgroup would return before its barrier, so that the outer forms get whole ones.
_EXTENTS = {
    "flat_strided": (1, 1), "narrow": (1, 3), "narrow_strided": (1, 3), "outer": (1, 64), "outer_small_dim": (1, 64)
}  # fmt: skip
#: The flat forms have no parameter and leave the last step to a second kernel: no correction, no root.
_FLAT: dict[str, Callable[[Tensor], Tensor]] = {
    "norm_l2": lambda x: x.square().sum(-1), "norm_l2_combine": lambda x: x.sum(-1),
    "var": lambda x: x.var(-1, correction=0), "std": lambda x: x.std(-1, correction=0)
}  # fmt: skip


@family(
    r"(?P<op>\w+?)_reduction_(?P<form>flat_strided|flat|inner(?:most)?_chunk|inner(?:most)?|narrow(?:_strided)?"
    r"|outer_small_dim|outer)"
    r"_{any}_(?P<b>[a-z0-9]+)"
)
def _reduction_forms(call: KernelCall) -> Launches:
    # 2.14 wrote `inner`, later releases `innermost`.
    named = re.sub("^inner(?!most)", "innermost", call["form"])
    operation, is_last = call["op"], named.startswith(("flat", "inner"))
    partial = call["a"] == "p1"  # the first of two passes: a value and its place for each part
    source = call["b" if partial else "a"]
    references = _REDUCED | _FLAT if call["form"].startswith("flat") else _REDUCED
    if operation not in references or not {"input", "val_out" if partial else "output"} <= call.types.keys():
        raise Unfit(f"no reference for the reduction {operation}")
    batch, width = _EXTENTS.get(named, (2, 3))
    for length in _LENGTHS.get(named, LENGTHS):
        if operation in {"var", "std"} and length == 1:
            continue
        operand, memory = _operand(source, operation, (batch, width, length))
        if operation.endswith("combine"):
            operand = memory = operand.abs()  # sums of squares
        value = references[operation](widen(operand))
        sizes, grid, group = _arrange(named, batch, width, length)
        result = _result(call["b"], operand, value, _reduction_slack(operation, operand, value))
        bound = {
            "input": memory if is_last else memory.transpose(1, 2).contiguous(),
            "output": result["out"],
            "sizes": sizes,
            "params": sizes,
            # Of 2.14; later kernels pass their strides in the sizes.
            "strides": (length, 1, 0, 0) if is_last else (width, 1, length * width, 0),
            "param": 1.0,
            "divisor": 1.0,  # before 2.15.0
            "idx_in": torch.arange(operand.numel(), dtype=torch.int32),
            "val_out": fill_untouched((batch * width,), operand.dtype),
            "idx_out": fill_untouched((batch * width,), torch.int32),
        }
        expected = result["expected"]
        if partial:
            largest = (operand.amax if operation == "argmax" else operand.amin)(-1)
            expected = {"val_out": (operand, widen(largest)), "idx_out": (operand, value)}
        yield Launch(bound, grid, expected, group=group, derived=result["derived"])


@family(r"norm_{any}_(?P<b>[a-z0-9]+)")
def _norms(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call for norms of several orders: a threadgroup a row (2.12 to 2.14)."""
    rows = 3
    for length in LENGTHS:
        operand = random((rows, length), dtype, length)
        for order in (0.0, 1.0, 2.0, 3.0, float("inf"), -float("inf")):
            value = torch.linalg.vector_norm(widen(operand).abs(), order, -1)
            params = call.struct("params", p=order, reduction_size=length, ndim=2, input_sizes=(rows, length),
                                 input_strides=(length, 1), output_sizes=(rows, 1), output_strides=(1, 1))  # fmt: skip
            result = _result(call["b"], operand, value, value * (length + 8) * EPS)
            bound = {"input": operand, "output": result["out"], "params": params}
            group = min(1024, -(-length // 32) * 32)
            yield Launch(bound, rows * group, result["expected"], group=group)


# The scans are called by aten/src/ATen/native/mps/operations/ScanKernel.mm.

_SCANNED: dict[str, Callable[[Tensor, int], Any]] = {
    "cumsum": torch.cumsum, "cumprod": torch.cumprod, "cummax": torch.cummax, "cummin": torch.cummin,
    "logcumsumexp": torch.logcumsumexp
}  # fmt: skip


@family(
    r"(?P<op>cumsum|cumprod|cummax|cummin|logcumsumexp)_(?P<form>innermost|outer)"
    r"_(?P<a>(?!transposed)[a-z0-9]+)(?:_(?P<b>long))?"
)
def _scans(call: KernelCall, dtype: torch.dtype) -> Launches:
    operation, outer = call["op"], call["form"] == "outer"
    target = dtype_named(call["b"] or call["a"])
    for length in LENGTHS[:4] if outer else LENGTHS:
        rows = 3
        operand = random((rows, length), dtype, length)
        if operation == "cumprod":
            operand = torch.where(operand == 0, torch.ones_like(operand), operand)
            operand = operand.sign() if not dtype.is_complex else torch.ones_like(operand) * 1j
        if outer:  # 40 columns follow the scanned dimension: more than the 32 of a block
            operand = operand[..., None].expand(rows, length, 40).clone()
            operand[..., 7] = operand[:, :1, 7]
            if dtype == torch.float16:
                operand[..., 7] = 1.0 if operation != "cumsum" else 0.25
        scanned = _SCANNED[operation](widen(operand), 1)
        value, places = (scanned.values, scanned.indices) if operation in {"cummax", "cummin"} else (scanned, None)
        slack: Tensor | float = 0.0
        if dtype.is_floating_point or dtype.is_complex:
            slack = operand.abs().double().cumsum(1) * 4 * EPS + value.abs() * length * EPS
        bound = {"in": operand, "axis_size": length, "stride": 40, "stride_blocks": 2}
        expected: dict[str, Result] = {}
        if places is None:
            expected["out"] = (operand, value, slack)
        elif "out_values" in call.types:
            bound["out_indices"] = fill_untouched(operand.shape, torch.int64)
            expected = {"out_values": (operand, value)}
            if dtype.is_floating_point and not outer:
                expected["out_indices"] = (operand, places, 0.0)
        group = min(1024, -(-length // (4 * 32)) * 32)
        if outer:  # 32 rows, and as many lanes a row as read 32 columns: 4 elements a lane, or 2 of eight bytes
            group = 32 * (16 if target.itemsize == 8 else 8)
        yield Launch(bound, (group, 2 * rows if outer else rows, 1), expected, group=(group, 1, 1))


#: Rows of threads of a tile of the strided forms.
_TILE_ROWS = 32


def _each(dtype: torch.dtype) -> int:
    """Return the elements that a thread reads at once: four, or two of eight bytes."""
    return 2 if dtype.itemsize == 8 else 4


def _scan_random(
    operation: str, shape: tuple[int, ...], dtype: torch.dtype, dim: int
) -> tuple[Tensor, Tensor, Tensor | float]:
    """Return random values, their scan, and what another order of its steps may change.

    The factors of a product have the absolute value 1, so that none overflows.
    """
    operand = random(shape, dtype, sum(shape))
    if operation != "cumsum":
        operand = torch.where(operand == 0, torch.ones_like(operand), operand).sign()
    value = _SCANNED[operation](widen(operand), dim)
    slack = operand.abs().double().cumsum(dim) * 8 * EPS if dtype.is_floating_point else 0.0
    return operand, value, slack


def _accumulator(target: torch.dtype) -> torch.dtype:
    return torch.float32 if target.is_floating_point else target


@family(
    r"(?P<op>cumsum|cumprod)_(?:(?P<form>strided|vec)_)?block_(?P<step>reduce|carry)(?:_(?P<width>\d+))?"
    r"_{word}(?:_(?P<b>long))?"
)
def _block_scans(call: KernelCall, source: torch.dtype) -> Launches:
    """Call a pass of two: the total of each block, or the scan of each block with the totals of earlier blocks."""
    target = dtype_named(call["b"] or call["a"])
    accumulator, form, operation = _accumulator(target), call["form"], call["op"]
    width = int(call["width"] or 1)
    rows, each = 2, _each(accumulator)
    # Blocks are whole tiles, but for those of contiguous rows.
    group, block = {"": (256, 700), "vec": (64, 64 * each), "strided": (width // each * 32, 2 * _TILE_ROWS)}[form]
    inner = width if form == "vec" else width - 3 if form else 1
    for length in (block * 2, block * 3 - 5):
        operand, value, slack = _scan_random(operation, (rows, length, inner), source, 1)
        blocks = -(-length // block)
        total = torch.sum if operation == "cumsum" else torch.prod
        parts = torch.stack(
            [total(part, 1) for part in torch.split(widen(operand), block, 1)], -1
        )  # (rows, inner, blocks)
        sums = parts if form != "vec" else parts.transpose(1, 2).contiguous()
        if form == "strided" and call["step"] == "carry":
            sums = _SCANNED[operation](parts, -1)  # by the kernel between the two passes
        bound = {
            "in": operand, "axis_size": length, "block_sums": sums.to(accumulator), "block_size": block,
            "num_blocks": blocks, "n_orows": rows, "stride": inner, "stride_blocks": 1
        }  # fmt: skip
        grid = (group, rows * blocks, 1) if form else (group * blocks, rows, 1)
        sizes = operand.abs().double().sum(1).amax() * 8 * EPS if source.is_floating_point else 0.0
        expected: dict[str, Result] = {"out": (operand, value, slack)}
        if call["step"] == "reduce":
            expected = {"block_sums": (operand, sums, sizes)}
            del bound["block_sums"]
        yield Launch(bound, grid, expected, group=(group, 1, 1))


@family(r"(?P<op>cumsum|cumprod)_scan_block_sums_{word}")
def _block_sums(call: KernelCall) -> Launches:
    """Call the kernel between the two passes, which scans the blocks' totals in place."""
    accumulator, operation = _accumulator(dtype_named(call["a"])), call["op"]
    for blocks in (1, 7, 300, 700):
        operand, value, slack = _scan_random(operation, (3, blocks), accumulator, 1)
        expected = {"block_sums": (operand, value, slack)}
        yield Launch({"block_sums": operand.clone(), "num_blocks": blocks}, (256, 3, 1), expected, group=(256, 1, 1))


@family(r"(?P<op>cumsum|cumprod)_(?:contig_decoupled|strided_decoupled_(?P<width>\d+)_(?P<each>\d+))_{word}")
def _scans_with_look_back(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call in tiles that wait for those before them, which a launch in ascending order never makes them do."""
    operation, width = call["op"], int(call["width"] or 1)
    rows = 2
    group = 256 if not call["width"] else 768 if width <= 2 else 512
    tile = group * int(call["each"] or 16)
    for length in (tile * 2 + 77, 100):
        operand, value, slack = _scan_random(operation, (rows, length, width), dtype, 1)
        tiles = -(-length // tile)
        total = rows * tiles
        yield Launch({
            "in": operand, "tile_counter": torch.zeros(1, dtype=torch.int32),
            "status": torch.zeros(total, dtype=torch.int32), "axis_size": length, "num_tiles": tiles,
            "aggregates": torch.full((total * width,), -1, dtype=torch.int32),
            "inclusive": torch.full((total * width,), -1, dtype=torch.int32)
        }, group * total, {"out": (operand, value, slack)}, group=group)  # fmt: skip


@family(r"(?P<op>cumsum|cumprod)_tiny_innermost_{word}(?:_(?P<b>long))?")
def _short_scans(call: KernelCall, source: torch.dtype) -> Launches:
    """Call with many rows a threadgroup: as many as 2,048 elements have."""
    for length in (1, 5, 32):
        rows = 500
        operand, value, slack = _scan_random(call["op"], (rows, length), source, 1)
        each = 2048 // length
        bound = {"in": operand, "axis_size": length, "n_scans": rows, "rows_per_tg": each}
        yield Launch(bound, (256 * -(-rows // each), 1, 1), {"out": (operand, value, slack)}, group=(256, 1, 1))


@family(r"(?P<op>cumsum|cumprod)_innermost_transposed_{word}(?:_(?P<b>long))?")
def _transposed_scans(call: KernelCall, source: torch.dtype) -> Launches:
    """Call with rows that are columns in memory; the result has contiguous rows."""
    target = dtype_named(call["b"] or call["a"])
    group = 32 // _each(_accumulator(target)) * 32
    columns = 40
    for length in LENGTHS[:4]:
        operand, value, slack = _scan_random(call["op"], (length, columns), source, 0)
        if isinstance(slack, Tensor):
            slack = slack.T.contiguous()
        bound = {"in": operand, "axis_size": length, "n_cols": columns, "stride_blocks": 2}
        yield Launch(bound, (group, 2, 1), {"out": (operand, value.T.contiguous(), slack)}, group=(group, 1, 1))
