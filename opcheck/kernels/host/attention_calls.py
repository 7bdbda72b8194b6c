"""Attention of few queries over less than 1,024 keys: Attention.mm, sdpa_vector_fast_mps."""

from typing import Any

import torch
from torch import Tensor

from opcheck.common.versions import Version
from opcheck.kernels.host.host_call import (
    BoundCall,
    HostCall,
    UnboundError,
    launch,
    metal_type,
)
from opcheck.kernels.host.release_kernels import ReleaseKernels

#: Queries and keys of the kernel that reads the keys once, the sizes of its heads, and its threads.
_QUERIES, _KEYS, _SIZES, _THREADS = 8, 1024, (64, 96, 128), 1024
#: The first release whose way of reading a mask is in the table, and that with kernels by the dtype of the mask.
_STRIDED_MASK = Version.parse("2.12")
_BY_MASK = Version.parse("2.13")


def bind_attention(call: HostCall, release: ReleaseKernels) -> BoundCall:
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
        raise UnboundError(
            "attention of many queries or keys: MPSGraph, or a kernel that is not in the table"
        )
    if mask is not None and (mask.dim() != 4 or not _is_read(mask, q, release)):
        raise UnboundError("attention with a mask of this form is not in the table")
    if mask is not None and release.torch < _STRIDED_MASK:
        raise UnboundError("attention with a mask is not in the table for this release")
    if k.shape[1] != q.shape[1] and release.torch < _BY_MASK:
        raise UnboundError("attention of grouped queries is not in the table")
    name = f"sdpa_vector_{metal_type(q)}_{q.shape[3]}_{v.shape[3]}"
    word = "none" if mask is None else metal_type(mask)
    word = f"_mask{word}{'_causal' * bool(call.arguments['is_causal'])}"
    found = release.find(name if release.torch < _BY_MASK else f"{name}{word}")
    if not found:
        raise UnboundError(f"the release has no kernel for it: {name}{word}")
    heads, batch = q.shape[1], q.shape[0]
    for tensor in (q, k, v):
        _require_inside(tensor, batch * heads)
    out = torch.empty(q.shape[:3] + v.shape[3:], dtype=q.dtype)
    strides = (
        [0, 0, 0, 0]
        if mask is None
        else [mask.stride(dim) * (mask.shape[dim] > 1) for dim in (3, 2, 1, 0)]
    )
    bound: dict[str, Any] = {
        "queries": q, "keys": k, "values": v, "out": out, "gqa_factor": heads // k.shape[1], "N": k.shape[2],
        "qkv_head_strides": [q.stride(1), k.stride(1), v.stride(1), 0],
        "qkv_seq_strides": [q.stride(2), k.stride(2), v.stride(2), 0],
        "k_head_seq_stride": [k.stride(1), k.stride(2)], "v_head_seq_stride": [v.stride(1), v.stride(2)],
        "qkv_batch_strides_heads": [q.stride(0), k.stride(0), v.stride(0), heads],
        "scale": q.shape[3] ** -0.5 if scale is None else scale, "mask": mask, "mask_strides": strides,
        "has_mask": int(mask is not None),
    }  # fmt: skip
    grid = (batch * heads * _THREADS, q.shape[2], 1)
    launched = launch(release.kernel(found), bound, grid, (_THREADS, 1, 1))
    return BoundCall(
        (launched,), (out.view(call.outputs[0].shape), *(None for _ in call.outputs[1:]))
    )


def _is_read(mask: Tensor, query: Tensor, release: ReleaseKernels) -> bool:
    """Return whether the kernels of few queries read a mask of this dtype."""
    return mask.dtype == torch.bool or (mask.dtype == query.dtype and release.torch >= _BY_MASK)


def _require_inside(tensor: Tensor, heads: int) -> None:
    """Refuse operands whose strides would lead the kernel out of their memory, as it may on a Mac."""
    last = (
        (heads - 1) * tensor.stride(1) + (tensor.shape[2] - 1) * tensor.stride(2) + tensor.shape[3]
    )
    room = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    if last > room or tensor.stride(3) != 1:
        raise UnboundError("the strides lead the kernel out of the operand's memory")


BINDERS = {"_scaled_dot_product_attention_math_for_mps": bind_attention}
