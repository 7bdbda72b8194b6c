"""Gather, scatter, indices, embeddings: ScatterGather.mm, Indexing.mm, Embedding.mm."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from opcheck.kernels.host.host_call import CallArguments, HostCall, HostWork, Step, UnboundError, empty_like, metal_type
from opcheck.kernels.host.iteration import is_repeated, iterate
from opcheck.kernels.host.release_kernels import Binder, ReleaseKernels
from opcheck.kernels.launch import describe
from opcheck.kernels.values import pad_words

#: Indices for each place from which halves are summed in float32 (Indexing.mm, index_add_mps_out).
_CONTENTION = 16
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
#: The names of the kernels of reductions by those of the operators' argument.
_REDUCED = {"sum": "add", "multiply": "prod", "mean": ""}


def _bits(tensor: Tensor) -> str:
    if tensor.element_size() > 8:
        raise UnboundError(f"no kernel moves elements of {tensor.dtype}")
    return f"{tensor.element_size() * 8}bit"


def _vector(tensor: Tensor) -> Tensor:
    """Return a tensor with at least one dimension."""
    return tensor.reshape(1) if not tensor.dim() else tensor


def _inner(tensor: Tensor, dim: int) -> int:
    return math.prod(tensor.shape[dim + 1 :])


def copy_before(source: Tensor, output: Tensor) -> tuple[Tensor, HostWork]:
    """Return memory for a result, and the step that copies what the call changes into it.

    Behind the result are zeros, as an allocator leaves them: atomics of small dtypes take whole words.
    """
    reach = 1 + sum((size - 1) * step for size, step in zip(output.shape, output.stride(), strict=True))
    memory = pad_words(torch.zeros(max(reach, 1), dtype=output.dtype))
    out = memory.as_strided(output.shape, output.stride())
    return out, HostWork(lambda: out.copy_(source))


def _is_dense(along: Tensor, index: Tensor, dim: int) -> bool:
    """Return whether two contiguous tensors differ in one dimension alone (can_use_dense_scatter)."""
    others = (at for at in range(index.dim()) if at != dim)
    is_contiguous = along.is_contiguous() and index.is_contiguous()
    return is_contiguous and all(along.shape[at] == index.shape[at] for at in others)


def bind_gather(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind gather (ScatterGather.mm, gather_out_mps): a thread a result."""
    source, index = (_vector(call.arguments[name]) for name in ("self", "index"))
    dim = call.arguments["dim"] % source.dim()
    out = torch.empty_like(call.outputs[0], memory_format=torch.contiguous_format)
    form = "dense" if _is_dense(source, index, dim) else "strided"
    walked = _vector(out)
    bound = {
        "output": out, "input": source, "index": index, "inner_size": _inner(source, dim),
        "output_dim_size": index.shape[dim], "input_dim_size": source.shape[dim], "tid_offset": 0,
        "sizes": index.shape, "ndim_dim": (index.dim(), dim, 0, 0),
        **describe(output=walked, input=source, index=index),
    }  # fmt: skip
    return release.bind(f"gather_{form}_{metal_type(source)}_{metal_type(index)}", bound, index.numel(), out)


def bind_scatter(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind scatter, scatter_add and scatter_reduce (ScatterGather.mm): a thread an index."""
    arguments = call.arguments
    operation = arguments.get("reduce") or ("add" if call.name == "scatter_add" else "set")
    operation = _REDUCED.get(operation, operation)
    if not operation or not arguments.get("include_self", True):
        raise UnboundError("a mean, or a reduction without the tensor itself: several launches")
    target, index = _vector(arguments["self"]), _vector(arguments["index"])
    dim = arguments["dim"] % target.dim()
    out, fill = copy_before(arguments["self"], call.outputs[0])
    dense = _is_dense(_vector(out), index, dim)
    source: Tensor | None = arguments.get("src")
    by_value = source is None and operation == "set" and dense
    if source is None:
        source = torch.full(index.shape, arguments["value"], dtype=target.dtype)
    source = _vector(source)
    dense = dense and source.is_contiguous() and source.shape == index.shape
    form = "dense_" if dense else "" if operation == "set" else "strided_"
    kind = f"{metal_type(target)}_{metal_type(index)}"
    name = f"scatter_{operation}_{form}{'value_' * by_value}{kind}"
    length = _vector(out).shape[dim]
    bound = {
        "output": out, "src": source, "value": source.reshape(-1)[:1], "index": index,
        "inner_size": _inner(_vector(out), dim), "index_dim_size": index.shape[dim], "output_dim_size": length,
        "index_sizes": index.shape, "output_strides": _vector(out).stride(), "src_strides": source.stride(),
        "index_strides": index.stride(), "ndim_dim": (index.dim(), dim, 0, 0), "dim_size": length, "tid_offset": 0,
    }  # fmt: skip
    launches: tuple[Step, ...] = (release.launch(name, bound, index.numel()),)
    turns = release.find("scatter_signbit_xor_long")
    if turns and target.dtype == torch.int64 and operation in {"amax", "amin"}:
        # Found by atomics of uint64: the sign bits are turned before and after (dispatch_signbit_xor_long).
        turn = release.launch(turns, {"data": out, "tid_offset": 0}, out.numel())
        launches = (turn, *launches, turn)
    return CallArguments((fill, *launches), (out,))


class IndexedTensor(NamedTuple):
    """A tensor and its indices as AdvancedIndex makes them (aten/src/ATen/native/IndexingUtils.h)."""

    #: with no strides along the places of the indices
    source: Tensor
    indices: tuple[Tensor, ...]
    sizes: tuple[int, ...]
    #: in bytes
    strides: tuple[int, ...]


def _index(source: Tensor, all_indices: Sequence[Tensor | None]) -> IndexedTensor:
    """Return the indexed dimensions side by side, each index in the shape that all have together."""
    each: list[Tensor | None] = []
    for index in all_indices:
        if index is not None and index.dtype in {torch.bool, torch.uint8}:
            each += index.nonzero().unbind(1)
        else:
            each.append(None if index is None else index.long())
    shapes = (index.shape for index in each if index is not None)
    common: torch.Size = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    each = [None if index is None else index.expand(common) for index in each]
    each += [None] * (source.dim() - len(each))
    places = [dim for dim, index in enumerate(each) if index is not None]
    if places != list(range(places[0], places[-1] + 1)):
        order = [*places, *(dim for dim in range(source.dim()) if dim not in places)]
        source, each = source.permute(order), [each[dim] for dim in order]
        places = list(range(len(places)))
    first, last = places[0], places[-1] + 1
    indices = [index for index in each if index is not None]
    shape = indices[0].shape
    restrided = source.as_strided(
        (*source.shape[:first], *shape, *source.shape[last:]),
        (*source.stride()[:first], *(0,) * len(shape), *source.stride()[last:]),
    )
    after = source.dim() - last
    shaped = [index.reshape((1,) * first + tuple(shape) + (1,) * after) for index in indices]
    if any(index.stride() != shaped[0].stride() for index in shaped):
        shaped = [index.contiguous() for index in shaped]
    width = source.element_size()
    return IndexedTensor(
        restrided, tuple(shaped), tuple(source.shape[first:last]),
        tuple(step * width for step in source.stride()[first:last]),
    )  # fmt: skip


def _launch_index(release: ReleaseKernels, name: str, output: Tensor, source: Tensor, indexed: IndexedTensor) -> Step:
    """Return the launch of dispatch_index_kernel: a thread a place of the iteration, strides in bytes."""
    walk = iterate((output, source, *indexed.indices))
    widths = (output.element_size(), source.element_size(), 8)
    strides = [tuple(step * width for step in steps) for steps, width in zip(walk.strides, widths, strict=False)]
    count = math.prod(walk.sizes)
    bound = {
        "output": output, "input": source, "indices": torch.tensor([index.data_ptr() for index in indexed.indices]),
        "sizes": walk.sizes, "output_strides": strides[0], "input_strides": strides[1], "indices_strides": strides[2],
        "index_sizes": indexed.sizes, "index_strides": indexed.strides,
        "ndim_nindices_numel": (len(walk.sizes), len(indexed.indices), count, 0),
    }  # fmt: skip
    threads = 1 if "_serial_" in name else count
    return release.launch(name, bound, threads, kept=indexed.indices)


def bind_index(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind index (Indexing.mm, index_kernel_mps)."""
    indexed = _index(call.arguments["self"], call.arguments["indices"])
    out = empty_like(call.outputs[0])
    name = f"index_select_{_bits(out)}"
    return CallArguments((_launch_index(release, name, out, indexed.source, indexed),), (out,))


def bind_index_put(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind index_put (Indexing.mm, index_put_kernel_mps)."""
    arguments = call.arguments
    out, fill = copy_before(arguments["self"], call.outputs[0])
    indexed = _index(out, arguments["indices"])
    value = arguments["values"].to(out.dtype).expand(indexed.source.shape)
    if arguments["accumulate"]:
        name = f"index_put_accumulate_{metal_type(out)}"
    elif torch.are_deterministic_algorithms_enabled():
        name = f"index_put_serial_{_bits(out)}"  # one thread writes all
    else:
        name = f"index_put_{_bits(out)}"
    return CallArguments((fill, _launch_index(release, name, indexed.source, value, indexed)), (out,))


def _reduction(dim: int, index: Tensor, target: Tensor, source: Tensor) -> dict[str, Any]:
    """Return the fields of IndexReduceParams."""
    described = describe(self=target, source=source)
    return {"ndim": target.dim(), "reduce_dim": dim, "index_stride": index.stride(0), **described}


def bind_index_select(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind index_select and embedding (Indexing.mm, index_select_out_mps): slices are copied by wide words."""
    arguments = call.arguments
    if call.name == "embedding":
        source, dim, index = arguments["weight"], 0, arguments["indices"].reshape(-1)
    else:
        source, index = arguments["self"], _vector(arguments["index"])
        dim = arguments["dim"] % max(source.dim(), 1)
    if not source.dim():
        raise UnboundError("a tensor without dimensions is copied")
    shape = (*source.shape[:dim], index.numel(), *source.shape[dim + 1 :])
    out = torch.empty(shape, dtype=source.dtype)
    result = out.view(call.outputs[0].shape)
    if not (source.is_contiguous() and index.is_contiguous()):
        bound = {"output": out, "index": index, "input": source, "params": _reduction(dim, index, source, out)}
        return release.bind(f"index_select_dim_{_bits(out)}_{metal_type(index)}", bound, out.numel(), result)
    row, unit = _inner(source, dim) * out.element_size(), 8
    offset = source.storage_offset() * out.element_size()
    while unit > out.element_size() and (row % unit or offset % unit):
        unit //= 2
    grid = (row // unit, index.numel(), math.prod(source.shape[:dim]))
    params = {"inner": grid[0], "in_dim_size": source.shape[dim], "out_dim_size": index.numel(), "index_stride": 1}
    bound = {"output": out, "index": index, "input": source, "params": params}
    return release.bind(f"index_select_dim_dense_{unit * 8}bit_{metal_type(index)}", bound, grid, result)


def bind_index_add(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind index_add (Indexing.mm, index_add_mps_out): halves are summed in float32 where many meet."""
    index, source = (_vector(call.arguments[name]) for name in ("index", "source"))
    out, fill = copy_before(call.arguments["self"], call.outputs[0])
    target = _vector(out)
    dim = call.arguments["dim"] % target.dim()
    steps: list[Step] = [fill]
    if index.numel() // max(1, target.shape[dim]) >= _CONTENTION and out.dtype in _WIDER:
        wide, source = target.to(_WIDER[out.dtype]), source.to(_WIDER[out.dtype])
        steps.append(HostWork(lambda: wide.copy_(target)))
    else:
        wide = target
    bound = {
        "self": wide, "index": index, "source": source, "params": _reduction(dim, index, wide, source),
        "alpha": torch.tensor([call.arguments["alpha"]]).to(wide.dtype),
    }  # fmt: skip
    steps.append(release.launch(f"index_add_{metal_type(wide)}_{metal_type(index)}", bound, source.numel()))
    if wide is not target:
        steps.append(HostWork(lambda: target.copy_(wide)))
    return CallArguments(tuple(steps), (out,))


def _bind_slices(out: Tensor, index: Tensor, dim: int) -> dict[str, Any]:
    """Return what the kernels get that write the slices of a result at the places of an index."""
    sizes = [size for at, size in enumerate(out.shape) if at != dim]
    return {
        "output": out, "indices": index, "indices_stride": index.stride(0), "dim_size": out.shape[dim],
        "dim_out_stride": out.stride(dim), "slice_sizes": sizes or [1], "slice_ndim": len(sizes),
        "slice_out_strides": _other_strides(out, dim), "slice_numel": math.prod(sizes),
    }  # fmt: skip


def _other_strides(tensor: Tensor, dim: int) -> list[int]:
    return [step for at, step in enumerate(tensor.stride()) if at != dim] or [1]


def bind_index_copy(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind index_copy (Indexing.mm, index_copy_out_mps) of 2.13 and newer."""
    index, source = _vector(call.arguments["index"]), call.arguments["source"]
    out, fill = copy_before(call.arguments["self"], call.outputs[0])
    if not out.dim():
        raise UnboundError("a tensor without dimensions is copied")
    dim = call.arguments["dim"] % out.dim()
    dense = out.is_contiguous() and source.is_contiguous() and index.is_contiguous()
    name = f"index_copy_{'dense' if dense else 'strided'}_{metal_type(out)}_{metal_type(index)}_32"
    bound = {
        **_bind_slices(out, index, dim), "source": source, "inner": _inner(out, dim), "indices_numel": index.numel(),
        "dim_source_stride": source.stride(dim), "slice_source_strides": _other_strides(source, dim),
    }  # fmt: skip
    grid = (_inner(out, dim), index.numel(), math.prod(out.shape[:dim]))
    started = release.launch(name, bound, grid if dense else source.numel(), (1, 1, 1) if dense else 1)
    return CallArguments((fill, started), (out,))


def bind_index_fill(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind index_fill (Indexing.mm, index_fill_mps_kernel): by a mask of the places where there are many."""
    index, value = _vector(call.arguments["index"]), call.arguments["value"]
    out, fill = copy_before(call.arguments["self"], call.outputs[0])
    if not out.dim():
        raise UnboundError("a tensor without dimensions is filled")
    dim = call.arguments["dim"] % out.dim()
    length, inner = out.shape[dim], _inner(out, dim)
    form = "dense" if out.is_contiguous() and index.is_contiguous() else "strided"
    filler = torch.as_tensor(value, dtype=out.dtype).reshape(1)
    bound = {
        **_bind_slices(out, index, dim), "mask": torch.empty(length, dtype=torch.bool), "fill_val": filler,
        "inner_size": inner, "dim_stride": out.stride(dim), "sizes": out.shape, "out_strides": out.stride(),
        "dim": dim, "ndim": out.dim(),
    }  # fmt: skip
    if index.numel() * 16 < length:
        started = release.launch(f"index_fill_{form}_{metal_type(out)}", bound, index.numel() * (out.numel() // length))
        return CallArguments((fill, started), (out,))
    grid = (inner, length, math.prod(out.shape[:dim])) if form == "dense" else (out.numel(),)
    return CallArguments((
        fill,
        release.launch("index_fill_zero_mask", bound, length),
        release.launch("index_fill_set_mask", bound, index.numel()),
        release.launch(f"index_fill_{form}_from_mask_{metal_type(out)}", bound, grid),
    ), (out,))  # fmt: skip


def bind_masked_fill(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind masked_fill (Indexing.mm, masked_fill__mps): a thread an element."""
    mask, out = call.arguments["mask"], call.outputs[0]
    out, fill = copy_before(call.arguments["self"], out)
    spread = mask.expand(out.shape)
    form = "strided"
    if out.is_contiguous() and spread.is_contiguous():
        form = "dense"
    elif is_repeated(mask, out):
        form = "broadcast"
    filler = torch.as_tensor(call.arguments["value"], dtype=out.dtype).reshape(1)
    bound = {
        "input": out, "mask": mask if form == "broadcast" else spread, "val": filler, "mask_numel": mask.numel(),
        "sizes": out.shape or (1,), "input_strides": out.stride() or (1,), "mask_strides": spread.stride() or (1,),
        "ndim": out.dim(),
    }  # fmt: skip
    return CallArguments((fill, release.launch(f"masked_fill_scalar_{form}_{_bits(out)}", bound, out.numel())), (out,))


def bind_embedding_backward(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind embedding_dense_backward (Embedding.mm): a thread an index and feature; sums in float32."""
    upstream, index = call.arguments["grad_output"], call.arguments["indices"]
    features, kind = upstream.shape[-1], metal_type(index)
    sums = torch.empty(call.outputs[0].shape, dtype=torch.float32)
    counts = torch.empty(sums.shape[0], dtype=torch.int32)
    by_frequency = call.arguments["scale_grad_by_freq"]
    params = {
        "outer_sizes": index.shape, "grad_outer_strides": upstream.stride()[:-1], "indices_strides": index.stride(),
        "grad_feature_stride": upstream.stride(-1), "outer_ndim": index.dim(), "feature_size": features,
        "padding_idx": call.arguments["padding_idx"], "scale_grad_by_freq": by_frequency,
    }  # fmt: skip
    bound = {"grad": upstream, "indices": index, "counts": counts, "grad_weight": sums, "params": params}
    steps: list[Step] = [HostWork(sums.zero_), HostWork(counts.zero_)]
    if by_frequency:
        steps.append(release.launch(f"embedding_dense_backward_count_{kind}_32", bound, index.numel()))
    name = f"embedding_dense_backward_{metal_type(upstream)}_{kind}_32"
    steps.append(release.launch(name, bound, index.numel() * features))
    out = sums
    if upstream.dtype != sums.dtype:
        narrow = out = torch.empty(sums.shape, dtype=upstream.dtype)
        steps.append(HostWork(lambda: narrow.copy_(sums)))
    return CallArguments(tuple(steps), (out,))


BINDERS: dict[str, Binder] = {
    "gather": bind_gather,
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), bind_scatter),
    **dict.fromkeys(("index", "_unsafe_index"), bind_index),
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put"), bind_index_put),
    **dict.fromkeys(("index_select", "embedding"), bind_index_select),
    "index_add": bind_index_add,
    "index_copy": bind_index_copy,
    "index_fill": bind_index_fill,
    "masked_fill": bind_masked_fill,
    "embedding_dense_backward": bind_embedding_backward,
}
