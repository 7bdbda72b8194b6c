"""Calls the kernels of gather, scatter and indices: ScatterGather.mm, Indexing.mm."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from opcheck.kernels import values
from opcheck.kernels.judging import EPS, half_steps
from opcheck.kernels.launch import KernelCall, Launch, Launches, family
from opcheck.kernels.pointwise import Unfit, address, dtype_named
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
    """Call with tensors that the dense kernels see as (outer, dimension, inner), the others as matrices."""
    operation = call["op"]
    outer, inner = (3, 5) if call["how"] == "dense" else (5, 1)
    columns, picked = 9, 6
    index = _pick_places(outer, columns, picked)[..., None].expand(-1, -1, inner).contiguous()
    operand = random((outer, columns, inner), dtype, 1)
    source = random((outer, picked, inner), dtype, 2)
    if call["value"]:
        source = source[:1, :1, :1].expand(source.shape).contiguous()
    width = picked if operation == "gather" else columns
    if operation == "gather":
        value, output = widen(operand).gather(1, index), fill_untouched(index.shape, dtype)
    else:
        value, output = _scatter(operation, operand, index, source), operand.clone()
        if dtype == torch.int64 and operation in {"scatter_amax", "scatter_amin"}:
            # They are found by atomics of uint64: the host flips the sign bits of the result's memory before and
            # after (scatter_signbit_xor), the kernel those of the source.
            value, output = value ^ _SIGN, output ^ _SIGN
    bound = {
        "output": output, "input": operand, "src": source, "value": source.flatten()[:1],
        "index": index.to(index_dtype), "inner_size": inner, "input_dim_size": columns, "index_dim_size": picked,
        "output_dim_size": width, "tid_offset": 0, "ndim_dim": (2, 0, 0, 0), "sizes": (picked, outer),
        "index_sizes": (picked, outer), "dim_size": columns
    }  # fmt: skip
    for name, extent in {"output": width, "input": columns, "src": picked, "index": picked}.items():
        bound[f"{name}_strides"] = (1, extent)  # innermost first, as TensorIterator has dimensions
    yield Launch(
        bound, index.numel(), {"output": (operand, value, value.abs().double() * 4 * EPS)}, group=32
    )  # fmt: skip


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
    grid = (inner, picked, outer) if call["how"] == "dense" else (source.numel(),)
    group = (1, 1, 1) if call["how"] == "dense" else (32,)
    if "input" in call.types:  # up to 2.12 a thread for each result, which is a copy or a source's
        grid, group = (operand.numel(),), (1,)
    yield Launch({
        "input": operand, "dim": 1, "sizes": operand.shape, "ndim": 3, "input_strides": operand.stride(),
        "output_strides": operand.stride(), "source_strides": source.stride(),
        "output": operand.clone(), "source": source, "indices": index.to(index_dtype), "dim_size": columns,
        "inner": inner, "indices_numel": picked, "dim_out_stride": inner, "dim_source_stride": inner,
        "slice_sizes": (outer, inner), "slice_out_strides": (columns * inner, 1),
        "slice_source_strides": (picked * inner, 1), "slice_ndim": 2, "slice_numel": outer * inner, "indices_stride": 1
    }, grid, {"output": (operand, value)}, group=group)  # fmt: skip


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
    params = call.struct("params", ndim=2, reduce_dim=1, self_strides=(columns, 1), self_sizes=(rows, columns),
        source_strides=(picked, 1), source_sizes=(rows, picked), index_stride=1)  # fmt: skip
    alpha = torch.tensor([2]).to(dtype)
    padded = pad_words(value)
    yield Launch({
        "self": pad_words(operand), "index": index.to(index_dtype), "source": source, "params": params, "alpha": alpha
    }, source.numel(),
        {"self": (operand, padded, padded.abs().double() * 8 * EPS + half_steps(dtype) * padded.abs().double())},
        group=32
    )  # fmt: skip


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
    outer, columns, inner = 3, 9, 5
    index = torch.tensor([3, 0, 3, 8])
    operand = random((outer, columns, inner), dtype, 1)
    value = operand.index_select(1, index)
    params = call.fit("params", inner=inner, in_dim_size=columns, out_dim_size=len(index), index_stride=1, ndim=3,
        reduce_dim=1, self_strides=operand.stride(), self_sizes=operand.shape, source_strides=value.stride(),
        source_sizes=value.shape)  # fmt: skip
    grid = (inner, len(index), outer) if call["dense"] else value.numel()
    bound = {"index": index.to(index_dtype), "input": operand, "params": params}
    yield Launch(bound, grid, {"output": (operand, value)})


_ROWS, _COLUMNS, _INNER = 7, 5, 3


# index and index_put: operations/Indexing.mm.  The host passes the strides of the indexed tensor as those of the
# indices, and the addresses of the indices.


def _indices(*, repeated: bool) -> tuple[Tensor, Tensor]:
    """Return the places of the first two dimensions; some are negative, and count from the end."""
    rows, columns = torch.tensor([3, -1, 0, 3, 5]), torch.tensor([0, 4, -2, 1, 2])
    if repeated:
        rows, columns = rows.repeat(2), columns.repeat(2)
    return rows, columns


def _bind_indices(picked: tuple[Tensor, Tensor], outside: str, size: int) -> dict[str, Any]:
    """Return the host's arguments; ``outside`` is what has the shape of the indices: output or input."""
    count = len(picked[0])
    own = (size, _INNER * size)
    indexed = (size, 0)
    return {
        "indices": torch.tensor([address(index) for index in picked]), "sizes": (_INNER, count),
        "indices_strides": (0, 8), "output_strides": own if outside == "output" else indexed,
        "input_strides": own if outside == "input" else indexed, "index_sizes": (_ROWS, _COLUMNS),
        "index_strides": (_COLUMNS * _INNER * size, _INNER * size), "ndim_nindices_numel": (2, 2, count * _INNER, 0)
    }  # fmt: skip


def _error_count(expected: int) -> tuple[Tensor, Tensor, float]:
    return torch.zeros(1), torch.tensor([expected]), 0.0


def _errors(bound: Mapping[str, Tensor]) -> Tensor:
    """Return how many messages a kernel left for the host."""
    memory = next(tensor for name, tensor in bound.items() if name.startswith("error_buf"))
    return memory[:4].view(torch.int32)


@family(r"index_select_(?P<a>\d+bit)")
def _index(call: KernelCall) -> Launches:
    operand = random((_ROWS, _COLUMNS, _INNER), dtype_named(call["a"]), 1)
    picked = _indices(repeated=False)
    value = operand[picked]
    for wrong in (0, 1):
        asked = (picked[0] + torch.tensor([0, 0, 0, 0, 9 * wrong]), picked[1])
        output = fill_untouched(value.shape, operand.dtype)
        bound = _bind_indices(asked, "output", operand.element_size()) | {
            "input": operand,
            "output": output,
        }
        if wrong:
            value[-1] = 0  # the result of a wrong index, with a message
        yield Launch(
            bound, value.numel(), {"output": (operand, value.clone()), "error_buffer": _error_count(wrong * _INNER)},
            derived={"error_buffer": _errors}
        )  # fmt: skip


@family(r"index_put_(?P<how>serial_|accumulate_)?{any}")
def _index_put(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with places that are written twice: the serial form, which has one thread, keeps the last value."""
    adds = call["how"] == "accumulate_"
    picked = _indices(repeated=bool(call["how"]))
    operand = random((_ROWS, _COLUMNS, _INNER), dtype, 1)
    source = random((len(picked[0]), _INNER), dtype, 2)
    value = widen(operand).index_put(picked, widen(source), accumulate=adds)
    bound = _bind_indices(picked, "input", operand.element_size()) | {
        "input": source, "output": pad_words(operand)
    }  # fmt: skip
    small = dtype in {torch.float16, torch.bfloat16, torch.complex32}
    step = torch.finfo(torch.float16 if dtype == torch.complex32 else dtype).eps if small else EPS
    terms = (
        widen(operand).abs().double().index_put(picked, widen(source).abs().double(), accumulate=True)
    )  # fmt: skip
    yield Launch(
        bound, 1 if call["how"] == "serial_" else source.numel(),
        {"output": (operand, value, terms * 4 * step * adds), "error_buffer": _error_count(0)},
        derived={"output": lambda bound: bound["output"][: operand.numel()], "error_buffer": _errors}
    )  # fmt: skip


@family(r"index_check_bounds_{whole}")
def _check_bounds(call: KernelCall) -> Launches:
    for index, wrong in (([0, 3, 8], 0), ([0, 9, -1], 2)):
        yield Launch({
            "index": torch.tensor(index, dtype=dtype_named(call["a"])), "index_stride": 1, "dim_size": 9
        }, len(index), {"error_buf": _error_count(wrong)}, derived={"error_buf": _errors})  # fmt: skip


@family(r"assert_async_(?P<size>[1248])")
def _asserts(call: KernelCall) -> Launches:
    """Call with a value of so many bytes, which is zero or has only its last byte set."""
    size = int(call["size"])
    for last in (1, 0):
        operand = torch.zeros(size, dtype=torch.uint8)
        operand[-1] = last
        message = torch.tensor([*b"not true", 0], dtype=torch.uint8)
        yield Launch(
            {"input": operand, "msg": message}, 1, {"error_buf": _error_count(1 - last)}, derived={"error_buf": _errors}
        )  # fmt: skip


@family(r"index_fill_(?P<what>set|zero)_mask")
def _index_mask(call: KernelCall) -> Launches:
    index, mask = torch.tensor([3, -1, 0]), torch.zeros(9, dtype=torch.bool)
    value = mask.clone()
    value[index] = True
    grid = len(index)
    if call["what"] == "zero":
        mask, value, grid = ~mask, mask.clone(), len(mask)
    yield Launch({
        "mask": mask, "indices": index.repeat_interleave(2), "dim_size": 9, "indices_stride": 2
    }, grid, {"mask": (value, value.long())})  # fmt: skip


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
        yield Launch({
            "block_sums": operand.int(), "num_blocks": count
        }, _BLOCK, {"block_offsets": (operand, operand.cumsum(0) - operand),
            "total_nonzero": (operand, operand.sum()[None])},
            group=_BLOCK)  # fmt: skip


@family(r"scatter_nonzero_indices_{any}_(?:uint|ulong)")
def _nonzero(_call: KernelCall, dtype: torch.dtype) -> Launches:
    shape = (3, 100, 7)
    operand = _sparse(dtype, shape)
    sums, value = _block_sums(operand), operand.nonzero()
    yield Launch({
        "input": operand, "ndim": 3, "sizes": shape, "block_offsets": sums.cumsum(0) - sums, "max_entries": len(value),
        "flat_base": 0, "block_base": 0
    }, operand.numel(), {"output": (operand, value)}, group=_BLOCK)  # fmt: skip
