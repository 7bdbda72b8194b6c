"""Calls the kernels of gather, scatter and indices: ScatterGather.mm, Indexing.mm."""

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
from opcheck.kernels.values import pad_words, random, widen

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


def _error_count(expected: int) -> tuple[Tensor, Tensor, float]:
    return torch.zeros(1), torch.tensor([expected]), 0.0


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
    expected = {**launch.expected, "error_buffer": _error_count(count)}
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
        yield Launch(bound, len(index), {"error_buf": _error_count(wrong)}, derived={"error_buf": _errors})


@family(r"assert_async_(?P<size>[1248])")
def _asserts(call: KernelCall) -> Launches:
    """Call with a value of so many bytes, which is zero or has only its last byte set."""
    size = int(call["size"])
    for last in (1, 0):
        operand = torch.zeros(size, dtype=torch.uint8)
        operand[-1] = last
        message = torch.tensor([*b"not true", 0], dtype=torch.uint8)
        expected = {"error_buf": _error_count(1 - last)}
        yield Launch({"input": operand, "msg": message}, 1, expected, derived={"error_buf": _errors})


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
