"""Simulate sparse tensors on ``mps``: the reads and creations that C++ would do on the wrapper's own device."""

from __future__ import annotations

from typing import Any

import torch

from opcheck.simulator.tensor import MPS_DEVICE, is_on_mps


def sparse_coo_tensor(
    indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
    **rest: Any,
) -> torch.Tensor:
    """Run ``torch.sparse_coo_tensor``: the values decide the device, and the indices move there."""
    del check_invariants, rest
    place = torch.device(device) if device is not None else getattr(values, "device", None)
    if (place is None or place.type != "mps") and not is_on_mps(indices):
        options = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
        make: Any = torch.sparse_coo_tensor
        made: torch.Tensor = make(indices, values, *(() if size is None else (size,)), **options)
        return made
    place = place or MPS_DEVICE
    values = torch.as_tensor(values, dtype=dtype).to(place)
    indices = torch.as_tensor(indices, dtype=torch.int64).to(place)
    if size is None:
        # Their maximum is read on the host (SparseTensor.cpp, sparse_coo_tensor).
        ends = indices.amax(1).cpu() + 1 if indices.numel() else torch.zeros(len(indices))
        size = (*(int(end) for end in ends), *values.shape[1:])
    result: torch.Tensor = torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors.default(
        len(indices),
        values.dim() - 1,
        tuple(size),
        indices,
        values,
        dtype=values.dtype,
        layout=torch.sparse_coo,
        device=place,
        pin_memory=False,
        is_coalesced=is_coalesced,
    )
    return result.requires_grad_(requires_grad) if requires_grad else result


REPLACED = {torch.sparse_coo_tensor: sparse_coo_tensor}
