"""Calls the kernels of gather, scatter, indices and sparse tensors: ScatterGather.mm, Indexing.mm, sparse/mps."""

from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor

from opcheck.kernels import values
from opcheck.kernels.drivers.operator_calls import call_operator
from opcheck.kernels.judging import EPS, half_steps
from opcheck.kernels.launch import KernelCall, Launch, Launches, family
from opcheck.kernels.pointwise import Unfit, dtype_named
from opcheck.kernels.values import fill_untouched, pad_words, random, widen

# Gather, scatter, indexing: ScatterGather.mm, Indexing.mm


#: The sign bit of int64.
_SIGN = -(2**63)


def _scatter(operation: str, operand: Tensor, index: Tensor, source: Tensor) -> Tensor:
    """Return what scattering along the last dimension gives.

    Raises:
        Unfit: nothing to compare with.
    """
    wide, reduce = widen(operand), operation.removeprefix("scatter_")
    if reduce == "set":
        return wide.scatter(1, index, widen(source))
    if operand.dtype.is_complex and reduce == "add":
        return wide.scatter_add(1, index, widen(source))
    if operand.dtype.is_complex:
        raise Unfit("no reference for reductions of the dtype")
    return wide.scatter_reduce(1, index, widen(source), "sum" if reduce == "add" else reduce)


@family(r"scatter_signbit_xor_long")
def _xor_signs(_call: KernelCall) -> Launches:
    operand = random((45,), torch.int64, 1)
    bound = {"data": operand.clone(), "tid_offset": 0}
    yield Launch(bound, 45, {"data": (operand, operand ^ _SIGN)}, group=32)


@family(
    r"(?P<op>gather|scatter_(?:set|add|amax|amin|prod))(?:_(?P<how>strided|dense))?(?P<value>_value)?_{any}_{index}"
)
def _gather(call: KernelCall, dtype: torch.dtype, index_dtype: torch.dtype) -> Launches:
    """Call along the middle dimension; the strided kernels get an operand whose rows are columns in memory."""
    operation, outer, columns, picked, inner = call["op"], 3, 9, 6, 5
    index = _pick_places(outer, columns, picked)[..., None].expand(-1, -1, inner).contiguous()
    operand = random((outer, columns, inner), dtype, 1)
    source = random((outer, picked, inner), dtype, 2)
    if call["how"] != "dense":
        operand, source = _turn(operand), _turn(source)
    where: dict[str, Any] = {"dim": 1, "index": index.to(index_dtype)}
    if operation == "gather":
        value = widen(operand).gather(1, index)
        yield call_operator(call, "gather", (operand, value), self=operand, **where)
        return
    if call["value"]:
        source = source[:1, :1, :1].expand(source.shape)
    what: dict[str, Any] = {"value": source[0, 0, 0].item()} if call["value"] else {"src": source}
    if operation != "scatter_set":
        what["reduce"] = operation.removeprefix("scatter_")
    value = _scatter(operation, operand, index, source)
    if dtype == torch.int64 and operation in {"scatter_amax", "scatter_amin"}:
        # The host turns the sign bits of the result before and after, the kernel those of the source.
        operand, value = operand ^ _SIGN, value ^ _SIGN
    result = operand, value, value.abs().double() * 4 * EPS
    yield call_operator(call, "scatter", result, self=operand, **where, **what)


def _turn(operand: Tensor) -> Tensor:
    """Return the same values with the first dimension innermost in memory."""
    return operand.transpose(0, 2).contiguous().transpose(0, 2)


def _pick_places(rows: int, columns: int, picked: int) -> Tensor:
    """Return places without duplicates along the middle dimension, shaped (rows, picked)."""
    order = torch.rand(rows, columns, generator=values.generator(rows))
    return order.argsort(1)[:, :picked].contiguous()


@family(r"index_copy_(?P<how>dense|strided)_{any}_{index}(_(32|64))?")
def _index_copy(call: KernelCall, dtype: torch.dtype, index_dtype: torch.dtype) -> Launches:
    outer, columns, picked, inner = 3, 9, 4, 5
    index = _pick_places(1, columns, picked)[0]
    operand = random((outer, columns, inner), dtype, 1)
    source = random((outer, picked, inner), dtype, 2)
    value = widen(operand).index_copy(1, index, widen(source))
    places = index.to(index_dtype)
    if "input" not in call.types:
        source = _turn(source) if call["how"] == "strided" else source
        yield call_operator(call, "index_copy", (operand, value), self=operand, dim=1, index=places, source=source)
        return
    # Up to 2.12 there is a thread for each result, which is a copy or a source's.
    yield Launch({
        "input": operand, "dim": 1, "sizes": operand.shape, "ndim": 3, "input_strides": operand.stride(),
        "output_strides": operand.stride(), "source_strides": source.stride(), "output": operand.clone(),
        "source": source, "indices": places, "indices_numel": picked, "indices_stride": 1
    }, operand.numel(), {"output": (operand, value)})  # fmt: skip


@family(r"index_(?P<op>add|reduce_amax|reduce_amin|reduce_prod|reduce_mean)_{any}_{index}")
def _index_reduce(call: KernelCall, dtype: torch.dtype, index_dtype: torch.dtype) -> Launches:
    operation = call["op"].removeprefix("reduce_")
    rows, columns, picked = 5, 9, 6
    index = torch.tensor([3, 0, 3, 8, 0, 1])
    operand, source = random((rows, columns), dtype, 1), random((rows, picked), dtype, 2)
    wide = widen(operand)
    if operation in {"add", "mean"}:  # of a mean the host divides the sums
        factor = 2 if operation == "add" else 1
        value = wide.index_add(1, index, widen(source), alpha=factor)
        if dtype == torch.bool:
            value = wide.bool().long().index_add(1, index, source.long()).bool().long()
    elif dtype.is_complex or dtype == torch.bool:
        raise Unfit("no reference for reductions of the dtype")
    else:
        value = wide.index_reduce(1, index, widen(source), operation)
    slack = value.abs().double() * (8 * EPS + half_steps(dtype))
    places = index.to(index_dtype)
    if operation == "add":
        result = operand, value, slack
        yield call_operator(call, "index_add", result, self=operand, dim=1, index=places, source=source, alpha=2)
        return
    params = call.struct("params", ndim=2, reduce_dim=1, self_strides=(columns, 1), self_sizes=(rows, columns),
        source_strides=(picked, 1), source_sizes=(rows, picked), index_stride=1)  # fmt: skip
    bound = {"self": pad_words(operand), "index": places, "source": source, "params": params}
    yield Launch(bound, source.numel(), {"self": (operand, pad_words(value), pad_words(slack))}, group=32)


@family(r"index_fill_(?:dense|strided)_(?P<mask>from_mask_)?{any}")
def _index_fill(call: KernelCall, dtype: torch.dtype) -> Launches:
    outer, columns, inner = 3, 9, 5
    index, mask = torch.tensor([3, -1, 0]), torch.zeros(columns, dtype=torch.bool)
    mask[index] = True
    operand, filler = random((outer, columns, inner), dtype, 1), random((1,), dtype, 3)
    value = widen(operand).index_fill(1, index % columns, widen(filler)[0])
    grid: Any = len(index) * outer * inner
    if call["mask"]:
        grid = (inner, columns, outer) if "inner_size" in call.types else operand.numel()
    yield Launch({
        "output": operand.clone(), "indices": index, "mask": mask, "fill_val": filler, "dim_size": columns,
        "dim_stride": inner, "slice_numel": outer * inner, "dim_out_stride": inner, "slice_sizes": (outer, inner),
        "slice_out_strides": (columns * inner, 1), "slice_ndim": 2, "indices_stride": 1, "inner_size": inner,
        "sizes": (outer, columns, inner), "out_strides": operand.stride(), "dim": 1, "ndim": 3
    }, grid, {"output": (operand, value)})  # fmt: skip


@family(r"index_select_dim_(?P<dense>dense_)?(?P<a>\d+bit)_{index}")
def _index_select(call: KernelCall, dtype: torch.dtype, index_dtype: torch.dtype) -> Launches:
    operand, index = random((3, 9, 5), dtype, 1), torch.tensor([3, 0, 3, 8])
    value = operand.index_select(1, index)
    operand = operand if call["dense"] else _turn(operand)
    yield call_operator(call, "index_select", (operand, value), self=operand, dim=1, index=index.to(index_dtype))


_ROWS, _COLUMNS, _INNER = 7, 5, 3


# index and index_put: operations/Indexing.mm.


def _indices(*, repeated: bool) -> tuple[Tensor, Tensor]:
    """Return the places of the first two dimensions; some are negative, and count from the end."""
    rows, columns = torch.tensor([3, -1, 0, 3, 5]), torch.tensor([0, 4, -2, 1, 2])
    if repeated:
        rows, columns = rows.repeat(2), columns.repeat(2)
    return rows, columns


def _errors(bound: Mapping[str, Tensor]) -> Tensor:
    """Return how many messages a kernel left for the host."""
    memory = next(tensor for name, tensor in bound.items() if name.startswith("error_buf"))
    return memory[:4].view(torch.int32)


@family(r"index_select_(?P<a>\d+bit)")
def _index(call: KernelCall) -> Launches:
    """Call with valid indices, and with an index beyond the end: its result is zero, and there is a message."""
    operand = random((_ROWS, _COLUMNS, _INNER), dtype_named(call["a"]), 1)
    rows, columns = _indices(repeated=False)
    value = operand[rows, columns]
    for wrong in (0, 1):
        indices = rows + torch.tensor([0, 0, 0, 0, 9 * wrong]), columns
        if wrong:
            value[-1] = 0
        launch = call_operator(call, "index", (operand, value.clone()), self=operand, indices=indices)
        yield _count_errors(launch, wrong * _INNER)


def _count_errors(launch: Launch, count: int) -> Launch:
    """Return a launch that leaves so many messages for the host, too."""
    expected = {**launch.expected, "error_buffer": (torch.zeros(1), torch.tensor([count]), 0.0)}
    derived = {**launch.derived, "error_buffer": _errors}
    return msgspec.structs.replace(launch, expected=expected, derived=derived)


@family(r"index_put_(?P<how>serial_|accumulate_)?{any}")
def _index_put(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with places that are written twice: the serial form, which has one thread, keeps the last value."""
    adds = call["how"] == "accumulate_"
    picked = _indices(repeated=bool(call["how"]))
    operand = random((_ROWS, _COLUMNS, _INNER), dtype, 1)
    source = random((len(picked[0]), _INNER), dtype, 2)
    value = widen(operand).index_put(picked, widen(source), accumulate=adds)
    small = dtype in {torch.float16, torch.bfloat16, torch.complex32}
    step = torch.finfo(torch.float16 if dtype == torch.complex32 else dtype).eps if small else EPS
    terms = widen(operand).abs().double().index_put(picked, widen(source).abs().double(), accumulate=True)
    result = operand, value, terms * 4 * step * adds
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(call["how"] == "serial_")
    try:
        launch = call_operator(call, "index_put", result, self=operand, indices=picked, values=source, accumulate=adds)
    finally:
        torch.use_deterministic_algorithms(before)
    yield _count_errors(launch, 0)


@family(r"index_check_bounds_{whole}")
def _check_bounds(call: KernelCall) -> Launches:
    for index, wrong in (([0, 3, 8], 0), ([0, 9, -1], 2)):
        bound = {"index": torch.tensor(index, dtype=dtype_named(call["a"])), "index_stride": 1, "dim_size": 9}
        yield _count_errors(Launch(bound, len(index), {}), wrong)


@family(r"assert_async_(?P<size>[1248])")
def _asserts(call: KernelCall) -> Launches:
    """Call with a value of so many bytes, which is zero or has only its last byte set."""
    size = int(call["size"])
    for last in (1, 0):
        operand = torch.zeros(size, dtype=torch.uint8)
        operand[-1] = last
        message = torch.tensor([*b"not true", 0], dtype=torch.uint8)
        yield _count_errors(Launch({"input": operand, "msg": message}, 1, {}), 1 - last)


@family(r"index_fill_(?P<what>set|zero)_mask")
def _index_mask(call: KernelCall) -> Launches:
    index, mask = torch.tensor([3, -1, 0]), torch.zeros(9, dtype=torch.bool)
    value = mask.clone()
    value[index] = True
    grid = len(index)
    if call["what"] == "zero":
        mask, value, grid = ~mask, mask.clone(), len(mask)
    bound = {"mask": mask, "indices": index.repeat_interleave(2), "dim_size": 9, "indices_stride": 2}
    yield Launch(bound, grid, {"mask": (value, value.long())})


# nonzero: operations/Indexing.mm.  The second word of a name is the type of the index of an element.

#: Threads of a threadgroup, which is a block of elements.
_BLOCK = 1024


def _sparse(dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Return values; about half are zero."""
    operand = random(shape, dtype, 1)
    return torch.where(random(shape, torch.bool, 2), operand, torch.zeros_like(operand))


def _block_sums(operand: Tensor) -> Tensor:
    return torch.stack([(part != 0).sum() for part in torch.split(operand.flatten(), _BLOCK)])


@family(r"count_nonzero_prefix_sum_{any}_(?:uint|ulong)")
def _count_nonzero(_call: KernelCall, dtype: torch.dtype) -> Launches:
    for count in (100, 2 * _BLOCK + 52):
        operand = _sparse(dtype, (count,))
        value = _block_sums(operand)
        bound = {"input": operand, "flat_base": 0, "block_base": 0}
        yield Launch(bound, count, {"block_sums": (operand, value)}, group=_BLOCK)


@family(r"prefix_sum_blocks_(?:uint|ulong)")
def _block_offsets(_call: KernelCall) -> Launches:
    """Call with a single threadgroup; each thread has several blocks."""
    for count in (1, 100, 2500):
        operand = random((count,), torch.uint8, count).long()
        expected = {
            "block_offsets": (operand, operand.cumsum(0) - operand), "total_nonzero": (operand, operand.sum()[None]),
        }  # fmt: skip
        yield Launch({"block_sums": operand.int(), "num_blocks": count}, _BLOCK, expected, group=_BLOCK)


@family(r"scatter_nonzero_indices_{any}_(?:uint|ulong)")
def _nonzero(_call: KernelCall, dtype: torch.dtype) -> Launches:
    shape = (3, 100, 7)
    operand = _sparse(dtype, shape)
    sums, value = _block_sums(operand), operand.nonzero()
    yield Launch({
        "input": operand, "ndim": 3, "sizes": shape, "block_offsets": sums.cumsum(0) - sums, "max_entries": len(value),
        "flat_base": 0, "block_base": 0
    }, operand.numel(), {"output": (operand, value)}, group=_BLOCK)  # fmt: skip


# Sparse tensors: aten/src/ATen/native/sparse/mps

_HEIGHT, _DEPTH, _WIDTH, _COUNT = 6, 9, 5, 23


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
    places = _places(_HEIGHT, _DEPTH, _COUNT, 1)
    held, dense = random((_COUNT,), dtype, 2), random((_DEPTH, _WIDTH), dtype, 3)
    added = random((_HEIGHT, _WIDTH), dtype, 4)
    if dtype.itemsize == 1:
        held = held.sign()  # so that no sum leaves the type's range
    elif not (dtype.is_floating_point or dtype.is_complex) and dtype.itemsize > 2:
        held, dense = held.sign().abs(), dense.abs() + 2**24  # whole numbers that float32 has not
    full = _full(places, held, _HEIGHT, _DEPTH)
    for alpha, beta in ((1, 0), (2, 3)):
        value = alpha * (full @ widen(dense)) + beta * widen(added)
        terms = alpha * (full.abs() @ widen(dense).abs()) + beta * widen(added).abs()
        yield Launch({
            "indices2d": places, "vals": held, "dense": dense, "t_in": added, "dims": (_HEIGHT, _DEPTH, _WIDTH, 0),
            "alpha_beta": torch.tensor([alpha, beta], dtype=torch.float32), "nnz": _COUNT
        }, (_WIDTH, 1, _HEIGHT), {"out": (dense, value, _rounding(terms, dtype))})  # fmt: skip


@family(r"spmm_bmm_coo_rows_grouped_{any}")
def _bmm(_call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with a simdgroup a row."""
    batches = 2
    places = [_places(_HEIGHT, _DEPTH, _COUNT, batch) for batch in range(batches)]
    held = random((batches, _COUNT), dtype, 2)
    dense = random((batches, _DEPTH, 40), dtype, 3)
    full = torch.stack([_full(p, h, _HEIGHT, _DEPTH) for p, h in zip(places, held, strict=True)])
    starts = [torch.searchsorted(p[0], torch.arange(_HEIGHT + 1)) + batch * _COUNT for batch, p in enumerate(places)]
    value = full @ widen(dense)
    slack = _rounding(full.abs() @ widen(dense).abs(), dtype)
    yield Launch({
        "cols": torch.cat([p[1] for p in places]), "vals": held, "dense": dense, "row_ptr": torch.stack(starts),
        "dims": (batches, _HEIGHT, _DEPTH, 40)
    }, (32, _HEIGHT, batches), {"out": (held, value, slack)}, group=(32, 1, 1))  # fmt: skip


@family(r"dense_sparse_mul_kernel_{any}")
def _dense_times_sparse(_call: KernelCall, dtype: torch.dtype) -> Launches:
    places = _places(_HEIGHT, _DEPTH, _COUNT, 1)
    dense, held = random((_HEIGHT, _DEPTH, _WIDTH), dtype, 2), random((_COUNT, _WIDTH), dtype, 3)
    value = widen(dense)[places[0], places[1]] * widen(held)
    yield Launch({
        "dense": dense, "values": held, "indices": places, "sizes": (_HEIGHT, _DEPTH),
        "sparse_params": (_COUNT, 2, _WIDTH, 0)
    }, (_WIDTH, 1, _COUNT), {"out_values": (held, value, _rounding(value.abs(), dtype))})  # fmt: skip


@family(r"fused_gather_mul_kernel_{any}")
def _products_of_matches(_call: KernelCall, dtype: torch.dtype) -> Launches:
    picked = 7
    places = _places(_HEIGHT, _DEPTH, _COUNT, 1)
    left, right = random((_COUNT, _WIDTH), dtype, 2), random((_COUNT, _WIDTH), dtype, 3)
    drawn = torch.randperm(_COUNT, generator=values.generator(4))
    first, second = drawn[:picked], drawn[picked : 2 * picked]
    value = widen(left)[first] * widen(right)[second]
    yield Launch({
        "lhs_vals": left, "rhs_vals": right, "lhs_sel": first, "rhs_sel": second, "lhs_indices": places,
        "dims_input": (2, _COUNT), "dims_output": (picked, _WIDTH)
    }, (_WIDTH, 1, picked),
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
    operand, firsts = random((_COUNT, _WIDTH), dtype, 2), _firsts(flat)
    places = firsts.long().cumsum(0) - firsts.long()
    unique: Tensor = torch.unique(flat, return_inverse=True)[1]
    count = int(firsts.sum())
    wide = widen(operand)
    value = torch.zeros(count, _WIDTH, dtype=wide.dtype).index_add(0, unique, wide)
    terms = torch.zeros(count, _WIDTH, dtype=torch.float64).index_add(0, unique, wide.abs().double())
    yield Launch({
        "flat_indices": flat, "indices": indices, "in_values": operand, "is_unique": firsts,
        "output_positions": places.int(), "nnz": _COUNT, "value_size": _WIDTH, "sparse_dim": 2, "total_unique": count
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
    places = _places(_HEIGHT, _DEPTH, _COUNT, 1)
    value = places[0] * _DEPTH + places[1]
    for transposed in (False, True):
        held = places.t().contiguous() if transposed else places
        strides = (1, 2) if transposed else (_COUNT, 1)
        bound = {"indices": held, "row_muls": (_DEPTH, 1), "sparse_dim": 2, "idx_strides": strides}
        yield Launch(bound, _COUNT, {"flat_indices": (places, value)})


@family(r"build_(?P<what>batch|row)_ptr_from_sorted_\w+")
def _starts(call: KernelCall) -> Launches:
    """Call the search for where each batch begins, or each row of each batch."""
    batches, batch_count = torch.tensor([0, 0, 0, 2, 2, 3]), 5
    rows = torch.tensor([1, 1, 4, 0, 3, 2])
    batch_starts = torch.searchsorted(batches, torch.arange(batch_count + 1))
    row_starts = torch.stack([
        torch.searchsorted(rows[batches == batch], torch.arange(_HEIGHT + 1)) + batch_starts[batch]
        for batch in range(batch_count)
    ])  # fmt: skip
    by_row = call["what"] == "row"
    name, value = ("row_ptr", row_starts) if by_row else ("batch_ptr", batch_starts)
    grid = (_HEIGHT + 1, batch_count, 1) if by_row else (batch_count + 1, 1, 1)
    bound = {
        "batches": batches, "rows": rows, "batch_ptr": batch_starts, "nnz_B": (len(rows), batch_count),
        "dims": (_HEIGHT, batch_count),
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
    operand, upstream = random((count, _WIDTH), dtype, 1) * 3, random((count, _WIDTH), dtype, 2)
    for log in (False, True):
        function = torch.log_softmax if log else torch.softmax
        wide = operand.double().requires_grad_()
        value = torch.cat([function(part, 0) for part in torch.split(wide, list(pools))])
        result, name = value.detach(), "output"
        output = fill_untouched(operand.shape, dtype)
        bound = {
            "values": operand, "output": output, "pool_offsets": offsets.int(), "pool_sizes": torch.tensor(pools).int(),
            "offsets": offsets.int(), "counts": torch.tensor(pools).int(), "scan": scan.int(),
            "nnz_nvalues": (count, _WIDTH), "is_log": log, "grad_output": upstream,
            "grad_input": fill_untouched(operand.shape, dtype),
        }  # fmt: skip
        if call["way"] == "backward":
            (result,) = torch.autograd.grad(value, wide, upstream.double())
            name, bound["output"] = "grad_input", value.detach().to(dtype)
        step = torch.finfo(dtype).eps if dtype != torch.float32 else 0.0
        slack = (result.abs() + 1) * (16 * EPS + (8 if name == "grad_input" or log else 1) * step)
        yield Launch(bound, len(pools), {name: (operand, result, slack)})
