"""Calls the kernels of sparse tensors: aten/src/ATen/native/sparse/mps."""

import torch
from torch import Tensor

from opcheck.kernels import values
from opcheck.kernels.judging import EPS
from opcheck.kernels.launch import KernelCall, Launch, Launches, family
from opcheck.kernels.values import fill_untouched, random, widen

_ROWS, _INNER, _COLUMNS, _COUNT = 6, 9, 5, 23


def _places(rows: int, columns: int, count: int, salt: int) -> Tensor:
    """Return distinct places of a matrix, sorted by rows: (2, count)."""
    flat = torch.randperm(rows * columns, generator=values.generator(salt))[:count].sort().values
    return torch.stack([flat // columns, flat % columns])


def _full(places: Tensor, numbers_there: Tensor, rows: int, columns: int) -> Tensor:
    """Return the matrix of a list of places, in double or int64."""
    full = torch.zeros(rows, columns, dtype=widen(numbers_there).dtype)
    full[places[0], places[1]] = widen(numbers_there)
    return full


def _rounding(terms: Tensor, dtype: torch.dtype) -> Tensor | float:
    """Return what rounding each of a few steps may change; the terms are sums of absolute values."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    half = dtype in {torch.float16, torch.bfloat16, torch.complex32}
    part = torch.float16 if dtype == torch.complex32 else dtype
    return terms.double() * ((8 * torch.finfo(part).eps if half else 0.0) + 32 * EPS)


@family(r"spmm_addmm_coo_{any}")
def _addmm(_call: KernelCall, dtype: torch.dtype) -> Launches:
    places = _places(_ROWS, _INNER, _COUNT, 1)
    held, dense = random((_COUNT,), dtype, 2), random((_INNER, _COLUMNS), dtype, 3)
    added = random((_ROWS, _COLUMNS), dtype, 4)
    if dtype.itemsize == 1:
        held = held.sign()  # so that no sum leaves the type's range
    elif not (dtype.is_floating_point or dtype.is_complex) and dtype.itemsize > 2:
        held, dense = held.sign().abs(), dense.abs() + 2**24  # whole numbers that float32 has not
    full = _full(places, held, _ROWS, _INNER)
    for alpha, beta in ((1, 0), (2, 3)):
        value = alpha * (full @ widen(dense)) + beta * widen(added)
        terms = alpha * (full.abs() @ widen(dense).abs()) + beta * widen(added).abs()
        yield Launch({
            "indices2d": places, "vals": held, "dense": dense, "t_in": added, "dims": (_ROWS, _INNER, _COLUMNS, 0),
            "alpha_beta": torch.tensor([alpha, beta], dtype=torch.float32), "nnz": _COUNT
        }, (_COLUMNS, 1, _ROWS), {"out": (dense, value, _rounding(terms, dtype))})  # fmt: skip


@family(r"spmm_bmm_coo_rows_grouped_{any}")
def _bmm(_call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with a simdgroup a row."""
    batches = 2
    places = [_places(_ROWS, _INNER, _COUNT, batch) for batch in range(batches)]
    held = random((batches, _COUNT), dtype, 2)
    dense = random((batches, _INNER, 40), dtype, 3)
    full = torch.stack([_full(p, h, _ROWS, _INNER) for p, h in zip(places, held, strict=True)])
    starts = [torch.searchsorted(p[0], torch.arange(_ROWS + 1)) + batch * _COUNT for batch, p in enumerate(places)]
    value = full @ widen(dense)
    slack = _rounding(full.abs() @ widen(dense).abs(), dtype)
    yield Launch({
        "cols": torch.cat([p[1] for p in places]), "vals": held, "dense": dense, "row_ptr": torch.stack(starts),
        "dims": (batches, _ROWS, _INNER, 40)
    }, (32, _ROWS, batches), {"out": (held, value, slack)}, group=(32, 1, 1))  # fmt: skip


@family(r"dense_sparse_mul_kernel_{any}")
def _dense_times_sparse(_call: KernelCall, dtype: torch.dtype) -> Launches:
    places = _places(_ROWS, _INNER, _COUNT, 1)
    dense, held = random((_ROWS, _INNER, _COLUMNS), dtype, 2), random((_COUNT, _COLUMNS), dtype, 3)
    value = widen(dense)[places[0], places[1]] * widen(held)
    yield Launch({
        "dense": dense, "values": held, "indices": places, "sizes": (_ROWS, _INNER),
        "sparse_params": (_COUNT, 2, _COLUMNS, 0)
    }, (_COLUMNS, 1, _COUNT), {"out_values": (held, value, _rounding(value.abs(), dtype))})  # fmt: skip


@family(r"fused_gather_mul_kernel_{any}")
def _products_of_matches(_call: KernelCall, dtype: torch.dtype) -> Launches:
    picked = 7
    places = _places(_ROWS, _INNER, _COUNT, 1)
    left, right = random((_COUNT, _COLUMNS), dtype, 2), random((_COUNT, _COLUMNS), dtype, 3)
    drawn = torch.randperm(_COUNT, generator=values.generator(4))
    first, second = drawn[:picked], drawn[picked : 2 * picked]
    value = widen(left)[first] * widen(right)[second]
    yield Launch({
        "lhs_vals": left, "rhs_vals": right, "lhs_sel": first, "rhs_sel": second, "lhs_indices": places,
        "dims_input": (2, _COUNT), "dims_output": (picked, _COLUMNS)
    }, (_COLUMNS, 1, picked),
        {"out_vals": (left, value, _rounding(value.abs(), dtype)), "out_indices": (places, places[:, first])}
    )  # fmt: skip


def _repeat() -> Tensor:
    """Return sorted numbers, many of them several times."""
    drawn = torch.randint(0, 15, (_COUNT,), generator=values.generator(6))
    return drawn.sort().values


def _firsts(operand: Tensor) -> Tensor:
    return torch.cat([torch.ones(1, dtype=torch.bool), operand[1:] != operand[:-1]])


@family(r"coalesce_with_positions_kernel_{any}")
def _coalesce(_call: KernelCall, dtype: torch.dtype) -> Launches:
    flat = _repeat()
    indices = torch.stack([flat // 4, flat % 4])
    operand, firsts = random((_COUNT, _COLUMNS), dtype, 2), _firsts(flat)
    places = firsts.long().cumsum(0) - firsts.long()
    unique: Tensor = torch.unique(flat, return_inverse=True)[1]
    count = int(firsts.sum())
    wide = widen(operand)
    value = torch.zeros(count, _COLUMNS, dtype=wide.dtype).index_add(0, unique, wide)
    terms = torch.zeros(count, _COLUMNS, dtype=torch.float64).index_add(0, unique, wide.abs().double())
    yield Launch({
        "flat_indices": flat, "indices": indices, "in_values": operand, "is_unique": firsts,
        "output_positions": places.int(), "nnz": _COUNT, "value_size": _COLUMNS, "sparse_dim": 2, "total_unique": count
    }, _COUNT, {"out_values": (operand, value, _rounding(terms, dtype)), "out_indices": (indices, indices[:, firsts])}
    )  # fmt: skip


@family(r"mark_unique_positions_and_count_kernel|compute_output_positions_kernel|mark_segments")
def _unique_places(call: KernelCall) -> Launches:
    """Call a step before coalescing: which elements are first, how many, and where they go."""
    operand = _repeat()
    firsts = _firsts(operand)
    positions = firsts.long().cumsum(0) - firsts.long()
    results = {"mark_segments": {"mask": firsts.long()}, "compute_output_positions_kernel": {"positions": positions}}
    counted = {"is_unique": firsts.long(), "count": firsts.sum()[None]}
    expected = results.get(call.name, counted)
    yield Launch({
        "flat_indices": operand, "indices": operand, "count": torch.zeros(1, dtype=torch.int32),
        "mask": fill_untouched(operand.shape, torch.int32), "positions": fill_untouched(operand.shape, torch.int32),
        "is_unique": firsts if call.name.startswith("compute") else ~firsts
    }, _COUNT, {name: (operand, value) for name, value in expected.items()})  # fmt: skip


@family(r"compute_offsets_and_counts")
def _pools(_call: KernelCall) -> Launches:
    """Call for the pools of a sparse softmax: where each begins, and its size."""
    operand = _repeat()
    scan = _firsts(operand).long().cumsum(0)
    counts = torch.bincount(scan - 1)
    expected = {"offsets": (operand, counts.cumsum(0) - counts), "counts": (operand, counts)}
    yield Launch({"scan": scan.int(), "total_elements": _COUNT}, len(counts), expected)


@family(r"kogge_stone_step|shift_right_kernel")
def _scan_steps(call: KernelCall) -> Launches:
    operand, stride = random((_COUNT,), torch.int32, 1), 4 if call.name.startswith("kogge") else 1
    shifted = torch.cat([torch.zeros(stride, dtype=torch.int64), operand.long()[:-stride]])
    value = operand.long() + shifted if stride > 1 else shifted
    yield Launch({"input": operand, "stride": stride}, _COUNT, {"output": (operand, value)})


@family(r"flatten_indices_kernel")
def _flat_places(_call: KernelCall) -> Launches:
    places = _places(_ROWS, _INNER, _COUNT, 1)
    value = places[0] * _INNER + places[1]
    for transposed in (False, True):
        held = places.t().contiguous() if transposed else places
        strides = (1, 2) if transposed else (_COUNT, 1)
        bound = {"indices": held, "row_muls": (_INNER, 1), "sparse_dim": 2, "idx_strides": strides}
        yield Launch(bound, _COUNT, {"flat_indices": (places, value)})


@family(r"build_(?P<what>batch|row)_ptr_from_sorted_\w+")
def _starts(call: KernelCall) -> Launches:
    """Call the search for where each batch begins, or each row of each batch."""
    batches, batch_count = torch.tensor([0, 0, 0, 2, 2, 3]), 5
    rows = torch.tensor([1, 1, 4, 0, 3, 2])
    batch_starts = torch.searchsorted(batches, torch.arange(batch_count + 1))
    row_starts = torch.stack([
        torch.searchsorted(rows[batches == batch], torch.arange(_ROWS + 1)) + batch_starts[batch]
        for batch in range(batch_count)
    ])  # fmt: skip
    name, value = "batch_ptr", batch_starts
    grid: tuple[int, ...] = (batch_count + 1, 1, 1)
    if call["what"] == "row":
        name, value, grid = "row_ptr", row_starts, (_ROWS + 1, batch_count, 1)
    bound = {
        "batches": batches, "rows": rows, "batch_ptr": batch_starts, "nnz_B": (len(rows), batch_count),
        "dims": (_ROWS, batch_count),
    } | {name: fill_untouched(value.shape, torch.int64)}  # fmt: skip
    yield Launch(bound, grid, {name: (rows, value)})


@family(r"intersect_binary_search")
def _intersection(_call: KernelCall) -> Launches:
    """Call with sorted keys; the matches come in the order of the threads, which here is that of the keys."""
    first, second = torch.tensor([1, 4, 5, 9, 12, 20]), torch.tensor([0, 4, 9, 10, 20])
    left, right = torch.tensor([1, 3, 5]), torch.tensor([1, 2, 4])
    for first_is_left in (True, False):
        outs = (left, right) if first_is_left else (right, left)
        yield Launch({
            "keysA": first, "keysB": second, "counter": torch.zeros(1, dtype=torch.int32), "lenB": len(second),
            "A_is_lhs": first_is_left
        }, (len(first), 1, 1),
            {"outA_idx": (first, outs[0]), "outB_idx": (second, outs[1]), "counter": (first, torch.tensor([3]))}
        )  # fmt: skip


@family(r"softmax_sparse_(?P<way>forward|backward)_{float}")
def _softmax(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with the pools of values that one softmax is of, each a run of rows."""
    pools = (4, 1, 9, 3)
    offsets = torch.tensor([0, 4, 5, 14])
    count = sum(pools)
    scan = torch.arange(len(pools)).repeat_interleave(torch.tensor(pools)) + 1
    operand, upstream = random((count, _COLUMNS), dtype, 1) * 3, random((count, _COLUMNS), dtype, 2)
    for log in (False, True):
        function = torch.log_softmax if log else torch.softmax
        wide = operand.double().requires_grad_()
        value = torch.cat([function(part, 0) for part in torch.split(wide, list(pools))])
        result, name = value.detach(), "output"
        output = fill_untouched(operand.shape, dtype)
        bound = {
            "values": operand, "output": output, "pool_offsets": offsets.int(), "pool_sizes": torch.tensor(pools).int(),
            "offsets": offsets.int(), "counts": torch.tensor(pools).int(), "scan": scan.int(),
            "nnz_nvalues": (count, _COLUMNS), "is_log": log, "grad_output": upstream,
            "grad_input": fill_untouched(operand.shape, dtype),
        }  # fmt: skip
        if call["way"] == "backward":
            (result,) = torch.autograd.grad(value, wide, upstream.double())
            name, bound["output"] = "grad_input", value.detach().to(dtype)
        step = torch.finfo(dtype).eps if dtype != torch.float32 else 0.0
        slack = (result.abs() + 1) * (16 * EPS + (8 if name == "grad_input" or log else 1) * step)
        yield Launch(bound, len(pools), {name: (operand, result, slack)})
