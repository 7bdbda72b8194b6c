"""Pooling by Metal kernels, gradients of dropout, flips, softmax of masked rows: Pooling.mm, Dropout.mm, SoftMax.mm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from opcheck.kernels.host import pointwise_calls, row_calls
from opcheck.kernels.host.host_call import (
    BoundCall,
    HostCall,
    HostWork,
    UnboundError,
    empty_like,
    launch,
    metal_type,
)
from opcheck.kernels.host.release_kernels import ReleaseKernels
from opcheck.kernels.values import pad_words

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


def bind_max_pool(call: HostCall, release: ReleaseKernels) -> BoundCall:
    """Bind max_pool2d and max_pool3d_with_indices (Pooling.mm, max_pool_with_indices_out_mps_template).

    Raises:
        UnboundError: MPSGraph computes the call (use_graph_for_max_pool2d).
    """
    source, window = call.arguments["self"], _window(call)
    if set(window["stride"]) == {1} and len(window["stride"]) == 2:
        raise UnboundError("MPSGraph computes a pool with a stride of 1")
    out, indexed = empty_like(call.outputs[0]), len(call.outputs) > 1
    places = empty_like(call.outputs[1]) if indexed else None
    params: dict[str, Any] = {
        "dims": source.dim(), "pooling_dims": len(window["stride"]), "input_sizes": source.shape,
        "input_strides": source.stride(), "output_sizes": out.shape, "output_strides": out.stride(),
        "return_indices": indexed, **window,
    }  # fmt: skip
    if places is not None:
        params |= {"indices_sizes": places.shape, "indices_strides": places.stride()}
    kernel = release.first(f"max_pool_{metal_type(source)}")
    bound = {"input": source, "output": out, "indices": places, "params": params}
    return BoundCall((launch(kernel, bound, out.numel()),), (out, places)[: len(call.outputs)])


def bind_max_pool_backward(call: HostCall, release: ReleaseKernels) -> BoundCall:
    """Bind max_pool3d_with_indices_backward (Pooling.mm, max_pool_with_indices_backward_out_mps_template)."""
    upstream, places = call.arguments["grad_output"], call.arguments["indices"]
    memory = pad_words(torch.zeros(call.outputs[0].numel(), dtype=upstream.dtype))
    out = memory[: call.outputs[0].numel()].view(call.outputs[0].shape)
    params = {
        "dims": out.dim(), "pooling_dims": 3, "grad_input_sizes": out.shape, "grad_input_strides": out.stride(),
        "grad_output_sizes": upstream.shape, "grad_output_strides": upstream.stride(),
        "indices_strides": places.stride(),
    }  # fmt: skip
    bound = {"grad_input": out, "grad_output": upstream, "indices": places, "params": params}
    kernel = release.first(f"max_pool_backward_{metal_type(upstream)}")
    return BoundCall((HostWork(out.zero_), launch(kernel, bound, upstream.numel())), (out,))


def bind_dropout_backward(call: HostCall, release: ReleaseKernels) -> BoundCall:
    """Bind native_dropout_backward (Dropout.mm): before 2.13 by a functor of a gradient and a mask."""
    upstream, mask, scale = (call.arguments[name] for name in ("grad_output", "mask", "scale"))
    if not release.find(f"dropout_bwd_{metal_type(upstream)}"):
        functor, out = "native_dropout_mask_and_scale", call.outputs[0]
        bound = pointwise_calls.bind_functor(functor, out, (upstream, mask), (scale,), release)
        return bound._replace(functor="")
    source = upstream.contiguous()
    out = torch.empty(source.shape, dtype=source.dtype)
    memory = {"grad_input": out, "grad_output": source, "mask": mask.contiguous(), "scale": scale}
    kernel = release.first(f"dropout_bwd_{metal_type(source)}")
    return BoundCall((launch(kernel, memory, out.numel()),), (out,))


def _last_places(source: Tensor, dims: Sequence[int]) -> Tensor:
    """Return the memory from the last place along some dimensions on."""
    for dim in dims:
        source = source.narrow(dim, source.shape[dim] - 1, 1)
    return source


def bind_flip(call: HostCall, release: ReleaseKernels) -> BoundCall:
    """Bind flip of 2.15 and newer: the strides count down, in bytes, from the last place.

    Up to three dimensions are the grid's (https://github.com/pytorch/pytorch/pull/193826).
    """
    source, out = call.arguments["self"], torch.empty(call.outputs[0].shape, dtype=call.outputs[0].dtype)  # fmt: skip
    flipped = {dim % max(source.dim(), 1) for dim in call.arguments["dims"]}
    if not source.dim() or source.element_size() > 8:
        raise UnboundError("no kernel flips a number, or elements of more than 8 bytes")
    width = out.element_size()
    strides = [
        (-step if dim in flipped else step) * width for dim, step in enumerate(source.stride())
    ]
    bound = {
        "output": out, "input": _last_places(source, sorted(flipped)), "ndim": out.dim(),
        "sizes": out.shape[::-1], "output_strides": [step * width for step in out.stride()[::-1]],
        "input_strides": strides[::-1],
    }  # fmt: skip
    is_direct = out.dim() <= _GRID
    kernel = release.first(f"flip_{'direct_' * is_direct}{width * 8}bit")
    grid = out.shape[::-1] if is_direct else (out.numel(),)
    return BoundCall((launch(kernel, bound, grid, (1,) * len(grid)),), (out,))


def bind_safe_softmax(call: HostCall, release: ReleaseKernels) -> BoundCall:
    """Bind _safe_softmax (native/transformers/attention.cpp): a softmax, and zeros for rows without a finite number.

    Raises:
        UnboundError: another dtype is asked for.
    """
    source, dim = call.arguments["self"], call.arguments["dim"]
    if call.outputs[0].dtype != source.dtype:
        raise UnboundError("a softmax in another dtype is not in the table")
    bound = row_calls.bind_softmax(call, release)
    out = bound.results[0]
    assert out is not None
    masked = source.eq(-torch.inf).all(dim, keepdim=True)
    return BoundCall((*bound.launches, HostWork(lambda: out.masked_fill_(masked, 0))), (out,))


BINDERS: dict[str, Callable[[HostCall, ReleaseKernels], BoundCall]] = {
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices", "max_pool3d_with_indices"), bind_max_pool),
    "max_pool3d_with_indices_backward": bind_max_pool_backward,
    "native_dropout_backward": bind_dropout_backward,
    "flip": bind_flip,
    "_safe_softmax": bind_safe_softmax,
}  # fmt: skip
