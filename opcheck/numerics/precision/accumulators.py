"""Operators whose CPU kernel sums in float64 whatever the dtype: a GPU has none, so theirs is run without.

aten/src/ATen/native/cpu/ReduceOpsKernel.cpp, ``cumsum_cpu_kernel``: ``at::acc_type<scalar_t, false>``, which is double
for float (aten/src/ATen/AccumulateType.h).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

aten = torch.ops.aten


def _cumsum(self: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """One after the other in the tensor's own dtype."""
    return _one_by_one(np.add.accumulate, self, dim, dtype)


def _cumprod(self: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    return _one_by_one(np.multiply.accumulate, self, dim, dtype)


def _one_by_one(
    accumulate: Callable[..., Any], self: torch.Tensor, dim: int, dtype: torch.dtype | None
) -> torch.Tensor:
    wanted = self.detach().to(dtype or self.dtype)
    # Kernels for 16 bits keep float32 while they sum.
    values = wanted.to(torch.float32) if wanted.dtype.itemsize < 4 else wanted
    if not values.dim():
        return wanted.clone()
    summed = accumulate(values.numpy(), axis=dim, dtype=values.numpy().dtype)
    return torch.from_numpy(np.ascontiguousarray(summed)).to(wanted.dtype)


#: What is run instead.
WITHOUT_DOUBLE: dict[Any, Callable[..., torch.Tensor]] = {
    aten.cumsum.default: _cumsum,
    aten.cumprod.default: _cumprod,
}

NOTE = (
    "cumsum and cumprod were summed one after the other in this dtype (float32 for 16 bits): the CPU's own kernel "
    "uses float64 inside, which no GPU of Apple's has; a Mac's kernel may sum in another order, and lose less"
)
