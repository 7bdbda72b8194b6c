"""Norms of groups, losses of classes, upsampling, pooling, dropout's gradient, flips and attention of few queries.

The host functions are in GroupNorm.mm, LossOps.mm, UpSample.mm, Pooling.mm, Dropout.mm, SoftMax.mm and Attention.mm.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opcheck.common.versions import Version
from opcheck.kernels.host import pointwise_calls, row_calls
from opcheck.kernels.host.host_call import CallArguments, HostCall, HostWork, Step, UnboundError, empty_like, metal_type
from opcheck.kernels.host.release_kernels import Binder, ReleaseKernels
from opcheck.kernels.launch import describe
from opcheck.kernels.values import pad_words


def _word(tensor: Tensor | None) -> str:
    return "void" if tensor is None else metal_type(tensor)


def bind_group_norm(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind native_group_norm (GroupNorm.mm, group_norm_forward): a threadgroup a group."""
    arguments = call.arguments
    source, gamma, beta = (arguments[name] for name in ("input", "weight", "bias"))
    out, mean, rstd = (torch.empty(output.shape, dtype=output.dtype) for output in call.outputs)
    groups, per_group = arguments["group"], arguments["C"] // arguments["group"]
    elements = per_group * arguments["HxW"]
    params = {
        "HxW": arguments["HxW"], "num_groups": groups, "channels_per_group": per_group,
        "elements_per_group": elements, "eps": arguments["eps"],
    }  # fmt: skip
    words = "_".join((metal_type(source), metal_type(mean), _word(gamma), _word(beta)))
    bound = {
        "X": source.contiguous(), "gamma": gamma, "beta": beta, "Y": out, "mean": mean, "rstd": rstd, "params": params
    }  # fmt: skip
    size = row_calls.lanes(elements)
    threads = arguments["N"] * groups * size
    return release.bind(f"group_norm_{words}_uint32_t", bound, threads, out, mean, rstd, group=size)


def bind_group_norm_backward(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind native_group_norm_backward (GroupNorm.mm, GroupNormBackwardKernelImpl): the operand, then the weights."""
    arguments = call.arguments
    gamma, mean = arguments["weight"], arguments["mean"].contiguous()
    upstream, source = arguments["grad_out"].contiguous(), arguments["input"].contiguous()
    channels, groups, extent = arguments["C"], arguments["group"], arguments["HxW"]
    per_group, wanted = channels // groups, arguments["output_mask"]
    like = gamma if gamma is not None else source
    d_source = torch.empty(source.shape, dtype=source.dtype)
    d_gamma, d_beta = (torch.empty(channels, dtype=like.dtype) for _ in range(2))
    params = {
        "HxW": extent, "num_groups": groups, "channels_per_group": per_group, "elements_per_group": per_group * extent,
        "C": channels, "N_times_HxW": arguments["N"] * extent,
    }  # fmt: skip
    bound = {
        "dY": upstream, "X": source, "mean": mean, "rstd": arguments["rstd"].contiguous(), "gamma": gamma,
        "dX": d_source, "dgamma": d_gamma, "dbeta": d_beta, "params": params,
    }  # fmt: skip
    words = f"{metal_type(upstream)}_{metal_type(mean)}"
    launches = []
    if wanted[0]:
        size = row_calls.lanes(per_group * extent)
        name = f"group_norm_backward_x_{words}_{_word(gamma)}_uint32_t"
        launches.append(release.launch(name, bound, arguments["N"] * groups * size, size))
    if wanted[1] or wanted[2]:
        size = row_calls.lanes(arguments["N"] * extent)
        name = f"group_norm_backward_affine_{words}_{metal_type(d_gamma)}_uint32_t"
        launches.append(release.launch(name, bound, channels * size, size))
    results = (d_source, d_gamma, d_beta)
    compared = (each for each, is_wanted in zip(results, wanted, strict=True) if is_wanted)
    return CallArguments(tuple(launches), tuple(compared))


def _classes(source: Tensor, call: HostCall) -> dict[str, Any]:
    """Return the fields of NLLLossForwardParams (LossOps.h)."""
    at = 0 if source.dim() == 1 else 1
    return {
        "n_classes": source.shape[at], "map_size": math.prod(source.shape[at + 1 :]),
        "batch_stride": source.stride(0) if at else 0, "class_stride": source.stride(at),
        "ignore_index": call.arguments["ignore_index"], "has_weight": call.arguments["weight"] is not None,
    }  # fmt: skip


def bind_class_loss(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind nll_loss_forward and nll_loss2d_forward without a reduction (LossOps.mm): a thread a target."""
    source, target = call.arguments["self"].contiguous(), call.arguments["target"].contiguous()
    if call.arguments["reduction"]:
        raise UnboundError("a loss with a reduction: its sums are not in the table")
    out = torch.empty(call.outputs[0].shape, dtype=source.dtype)
    bound = {
        "input": source, "target": target, "weight": call.arguments["weight"], "output": out,
        "sample_weights": torch.empty_like(out), "params": _classes(source, call),
    }  # fmt: skip
    others = (None,) * (len(call.outputs) - 1)
    return release.bind(f"nllnd_loss_forward_{metal_type(source)}", bound, target.numel(), out, *others)


def bind_class_loss_backward(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind nll_loss_backward and nll_loss2d_backward (LossOps.mm): a thread a target."""
    source, target = call.arguments["self"], call.arguments["target"].contiguous()
    out = torch.empty(source.shape, dtype=source.dtype)
    reduction = call.arguments["reduction"]
    params = _classes(out, call) | {"is_reduction": reduction > 0, "is_mean": reduction == 1}
    bound = {
        "grad_input": out, "grad_output": call.arguments["grad_output"].contiguous(), "target": target,
        "weight": call.arguments["weight"], "total_weight": call.arguments["total_weight"], "params": params,
    }  # fmt: skip
    scattered = release.launch(f"nllnd_loss_backward_{metal_type(source)}", bound, target.numel())
    return CallArguments((HostWork(out.zero_), scattered), (out,))


def bind_gates(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind glu (GatedLinearUnit.mm) as the pointwise operator of two halves that it is."""
    halves = call.arguments["self"].chunk(2, call.arguments["dim"])
    return pointwise_calls.bind_functor("glu", call.outputs[0], halves, (), release)


#: What the kernels of upsampling call the operators.
UPSAMPLING = {
    "upsample_nearest3d": "nearest_3d", "_upsample_nearest_exact3d": "nearest_exact_3d",
    "_upsample_nearest_exact1d": "nearest_exact1d", "_upsample_nearest_exact2d": "nearest_exact2d",
    "upsample_trilinear3d": "trilinear", "_upsample_bilinear2d_aa": "bilinear2d_aa",
    "_upsample_bicubic2d_aa": "bicubic2d_aa",
    **{f"upsample_{mode}": mode for mode in ("nearest1d", "nearest2d", "linear1d", "bilinear2d", "bicubic2d")},
}  # fmt: skip
_SCALES = ("scales_w", "scales_h", "scales_d")


def _scale(size: int, target: int, *, corners: bool, factor: float | None) -> float:
    """Return the step of a result in its source (UpSample.h, area_pixel_compute_scale)."""
    if corners:
        return (size - 1) / (target - 1) if target > 1 else 0.0
    return 1 / factor if factor is not None and factor > 0 else size / target


def bind_upsampling(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind upsampling and its gradients (UpSample.mm): a thread a place of the result for all its channels."""
    arguments, name = call.arguments, call.name.removesuffix("_backward")
    backward = name != call.name
    source = arguments["grad_output" if backward else "self"]
    out = empty_like(call.outputs[0])
    small, large = (out, source) if backward else (source, out)
    corners, spatial = bool(arguments.get("align_corners")), source.dim() - 2
    if corners and name.endswith("_aa") and 1 in large.shape[2:]:
        # The CPU repeats the first place of the other dimension, too (torch 2.13): no reference.
        raise UnboundError("nothing to compare with: one place, with aligned corners and antialiasing")
    names = ("scales",) if spatial == 1 else _SCALES[:spatial]
    scales = [
        _scale(small.shape[-1 - at], large.shape[-1 - at], corners=corners, factor=arguments.get(name))
        for at, name in enumerate(names)
    ]
    fields = {"scales": scales, "align_corners": int(corners), **describe(input=small, output=large)}
    bound: dict[str, Any] = {"params": fields, **fields}
    word = metal_type(source)
    if not backward:
        bound |= {"inputData": small, "outputData": large}
        return release.bind(f"upsample_{UPSAMPLING[name]}_{word}", bound, math.prod(out.shape[2:]), out)
    bound |= {"gradInputData": out, "gradOutputData": source}
    gathered = release.find(f"upsample_{UPSAMPLING[name]}_backward_{word}_u32")
    steps: list[Step] = []
    if gathered:
        planes = out.shape[0] * out.shape[1]
        grid: tuple[int, ...] = (out.shape[-1], out.shape[-2], planes)
    else:
        steps, grid = [HostWork(out.zero_)], (math.prod(source.shape[2:]),)
    steps.append(release.launch(gathered or f"upsample_{UPSAMPLING[name]}_backward_{word}", bound, grid))
    return CallArguments(tuple(steps), (out,))


#: Dimensions of a grid.
_GRID = 3


def _each(values: int | Sequence[int], count: int) -> list[int]:
    """Return a number for each dimension of a window; one number is for all."""
    listed = [values] if isinstance(values, int) else list(values)
    return listed * count if len(listed) == 1 else listed


def _window(call: HostCall) -> dict[str, list[int]]:
    """Return the window's extents and steps by the names of their fields (Pooling.h, PoolingParams)."""
    arguments, count = call.arguments, 3 if "3d" in call.name else 2
    size = _each(arguments["kernel_size"], count)
    return {
        "kernel_size": size, "stride": _each(arguments["stride"], count) or size,
        "padding": _each(arguments["padding"], count), "dilation": _each(arguments["dilation"], count),
    }  # fmt: skip


def bind_max_pool(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind max_pool2d and max_pool3d_with_indices (Pooling.mm, max_pool_with_indices_out_mps_template).

    Raises:
        UnboundError: MPSGraph computes the call (use_graph_for_max_pool2d).
    """
    source, window = call.arguments["self"], _window(call)
    if set(window["stride"]) == {1} and len(window["stride"]) == 2:
        raise UnboundError("MPSGraph computes a pool with a stride of 1")
    out, indexed = empty_like(call.outputs[0]), len(call.outputs) > 1
    places = empty_like(call.outputs[1]) if indexed else None
    tensors = {"input": source, "output": out} | ({} if places is None else {"indices": places})
    params = {
        "dims": source.dim(), "pooling_dims": len(window["stride"]), "return_indices": indexed, **window,
        **describe(**tensors),
    }  # fmt: skip
    bound = {"input": source, "output": out, "indices": places, "params": params}
    results = (out, places)[: len(call.outputs)]
    return release.bind(f"max_pool_{metal_type(source)}", bound, out.numel(), *results)


def bind_max_pool_backward(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind max_pool3d_with_indices_backward (Pooling.mm, max_pool_with_indices_backward_out_mps_template)."""
    upstream, places = call.arguments["grad_output"], call.arguments["indices"]
    memory = pad_words(torch.zeros(call.outputs[0].numel(), dtype=upstream.dtype))
    out = memory[: call.outputs[0].numel()].view(call.outputs[0].shape)
    described = describe(grad_input=out, grad_output=upstream, indices=places)
    params = {"dims": out.dim(), "pooling_dims": 3, **described}
    bound = {"grad_input": out, "grad_output": upstream, "indices": places, "params": params}
    scattered = release.launch(f"max_pool_backward_{metal_type(upstream)}", bound, upstream.numel())
    return CallArguments((HostWork(out.zero_), scattered), (out,))


def bind_dropout_backward(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind native_dropout_backward (Dropout.mm): before 2.13 by a functor of a gradient and a mask."""
    upstream, mask, scale = (call.arguments[name] for name in ("grad_output", "mask", "scale"))
    if not release.find(f"dropout_bwd_{metal_type(upstream)}"):
        functor, out = "native_dropout_mask_and_scale", call.outputs[0]
        bound = pointwise_calls.bind_functor(functor, out, (upstream, mask), (scale,), release)
        return bound._replace(functor="")
    source = upstream.contiguous()
    out = torch.empty(source.shape, dtype=source.dtype)
    memory = {"grad_input": out, "grad_output": source, "mask": mask.contiguous(), "scale": scale}
    return release.bind(f"dropout_bwd_{metal_type(source)}", memory, out.numel(), out)


def _last_places(source: Tensor, dims: Sequence[int]) -> Tensor:
    """Return the memory from the last place along some dimensions on."""
    for dim in dims:
        source = source.narrow(dim, source.shape[dim] - 1, 1)
    return source


def bind_flip(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind flip of 2.15 and newer: the strides count down, in bytes, from the last place.

    Up to three dimensions are the grid's (https://github.com/pytorch/pytorch/pull/193826).
    """
    source, out = call.arguments["self"], torch.empty(call.outputs[0].shape, dtype=call.outputs[0].dtype)
    flipped = {dim % max(source.dim(), 1) for dim in call.arguments["dims"]}
    if not source.dim() or source.element_size() > 8:
        raise UnboundError("no kernel flips a number, or elements of more than 8 bytes")
    width = out.element_size()
    strides = [(-step if dim in flipped else step) * width for dim, step in enumerate(source.stride())]
    bound = {
        "output": out, "input": _last_places(source, sorted(flipped)), "ndim": out.dim(), "sizes": out.shape[::-1],
        "output_strides": [step * width for step in out.stride()[::-1]], "input_strides": strides[::-1],
    }  # fmt: skip
    is_direct = out.dim() <= _GRID
    grid = out.shape[::-1] if is_direct else (out.numel(),)
    return release.bind(f"flip_{'direct_' * is_direct}{width * 8}bit", bound, grid, out)


def bind_safe_softmax(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind _safe_softmax (native/transformers/attention.cpp): a softmax, and zeros for rows without a finite number.

    Raises:
        UnboundError: another dtype is asked for.
    """
    source, dim = call.arguments["self"], call.arguments["dim"]
    if call.outputs[0].dtype != source.dtype:
        raise UnboundError("a softmax in another dtype is not in the table")
    # The kernel reads a copy, so that the launches are not used again: the rows are those of this call's numbers.
    copied = call._replace(arguments={**call.arguments, "self": source.clone()})
    bound = row_calls.bind_softmax(copied, release)
    out = bound.results[0]
    assert out is not None
    masked = source.eq(-torch.inf).all(dim, keepdim=True)
    return CallArguments((*bound.launches, HostWork(lambda: out.masked_fill_(masked, 0))), (out,))


#: Queries and keys of the kernel that reads the keys once, the sizes of its heads, and its threads.
_QUERIES, _KEYS, _SIZES, _THREADS = 8, 1024, (64, 96, 128), 1024
#: The first release whose way of reading a mask is in the table, and that with kernels by the dtype of the mask.
_STRIDED_MASK = Version.parse("2.12")
_BY_MASK = Version.parse("2.13")


def bind_attention(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind _scaled_dot_product_attention_math_for_mps: a threadgroup a query of a head.

    Raises:
        UnboundError: another kernel or MPSGraph computes the call.
    """
    q, k, v = (call.arguments[name] for name in ("query", "key", "value"))
    mask, scale = call.arguments["attn_mask"], call.arguments["scale"]
    fits = q.dim() == 4 and q.shape[2] <= _QUERIES and q.shape[2] <= k.shape[2] < _KEYS
    if (
        not fits
        or q.shape[3] not in _SIZES
        or v.shape[3] != q.shape[3]
        or (call.arguments["is_causal"] and release.torch < _BY_MASK)
    ):
        raise UnboundError("attention of many queries or keys: MPSGraph, or a kernel that is not in the table")
    if mask is not None and (mask.dim() != 4 or not _is_read(mask, q, release)):
        raise UnboundError("attention with a mask of this form is not in the table")
    if mask is not None and release.torch < _STRIDED_MASK:
        raise UnboundError("attention with a mask is not in the table for this release")
    if k.shape[1] != q.shape[1] and release.torch < _BY_MASK:
        raise UnboundError("attention of grouped queries is not in the table")
    name = f"sdpa_vector_{metal_type(q)}_{q.shape[3]}_{v.shape[3]}"
    word = "none" if mask is None else metal_type(mask)
    word = f"_mask{word}{'_causal' * bool(call.arguments['is_causal'])}"
    kernel_name = release.find(name if release.torch < _BY_MASK else f"{name}{word}")
    if not kernel_name:
        raise UnboundError(f"the release has no kernel for it: {name}{word}")
    heads, batch = q.shape[1], q.shape[0]
    for tensor in (q, k, v):
        _require_inside(tensor, batch * heads)
    out = torch.empty(q.shape[:3] + v.shape[3:], dtype=q.dtype)
    bound = bind_few_queries(q, k, v, mask, q.shape[3] ** -0.5 if scale is None else scale) | {"out": out}
    grid = (batch * heads * _THREADS, q.shape[2], 1)
    results = (out.view(call.outputs[0].shape), *(None for _ in call.outputs[1:]))
    return release.bind(kernel_name, bound, grid, *results, group=(_THREADS, 1, 1))


def bind_few_queries(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> dict[str, Any]:
    """Return what the kernels of few queries get but the result; strides are of heads, of positions, of batches."""
    heads, positions, batches = ([each.stride(dim) for each in (q, k, v)] for dim in (1, 2, 0))
    strides = [0, 0, 0, 0] if mask is None else [mask.stride(dim) * (mask.shape[dim] > 1) for dim in (3, 2, 1, 0)]
    return {
        "queries": q, "keys": k, "values": v, "gqa_factor": q.shape[1] // k.shape[1], "N": k.shape[2], "scale": scale,
        "qkv_head_strides": [*heads, 0], "qkv_seq_strides": [*positions, 0],
        "qkv_batch_strides_heads": [*batches, q.shape[1]], "k_head_seq_stride": k.stride()[1:3],
        "v_head_seq_stride": v.stride()[1:3], "mask": mask, "mask_strides": strides, "has_mask": int(mask is not None),
    }  # fmt: skip


def _is_read(mask: Tensor, query: Tensor, release: ReleaseKernels) -> bool:
    """Return whether the kernels of few queries read a mask of this dtype."""
    return mask.dtype == torch.bool or (mask.dtype == query.dtype and release.torch >= _BY_MASK)


def _require_inside(tensor: Tensor, heads: int) -> None:
    """Refuse operands whose strides would lead the kernel out of their memory, as it may on a Mac."""
    last = (heads - 1) * tensor.stride(1) + (tensor.shape[2] - 1) * tensor.stride(2) + tensor.shape[3]
    room = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    if last > room or tensor.stride(3) != 1:
        raise UnboundError("the strides lead the kernel out of the operand's memory")


BINDERS: dict[str, Binder] = {
    "glu": bind_gates,
    "native_group_norm": bind_group_norm,
    "native_group_norm_backward": bind_group_norm_backward,
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), bind_class_loss),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), bind_class_loss_backward),
    **{f"{name}{way}": bind_upsampling for name in UPSAMPLING for way in ("", "_backward")},
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices", "max_pool3d_with_indices"), bind_max_pool),
    "max_pool3d_with_indices_backward": bind_max_pool_backward,
    "native_dropout_backward": bind_dropout_backward,
    "flip": bind_flip,
    "_safe_softmax": bind_safe_softmax,
    "_scaled_dot_product_attention_math_for_mps": bind_attention,
}
