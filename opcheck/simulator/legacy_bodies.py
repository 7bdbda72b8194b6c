"""Bodies of composites as earlier releases had them, where autograd goes through them: twins.py says until when."""

from __future__ import annotations

import torch

aten = torch.ops.aten
Tensor = torch.Tensor


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Distance.cpp of 1.13 and 2.0: the norms from squares, not by linalg_vector_norm."""
    dtype = torch.result_type(x1, x2)
    shape = torch.broadcast_shapes(x1.shape, x2.shape)
    x1, x2 = x1.to(dtype).expand(shape), x2.to(dtype).expand(shape)
    squares = [x.pow(2).sum(dim, keepdim=True) for x in (x1, x2)]
    with torch.no_grad():
        for square in squares:
            square.clamp_min_(eps * eps)
    norms = [square.sqrt_() for square in squares]
    return ((x1 / norms[0]) * (x2 / norms[1])).sum(dim)


def take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """TensorAdvancedIndexing.cpp up to 2.9: negative indices are not wrapped by remainder."""
    if dim is None:
        return aten.gather.default(x.view(-1), 0, indices.view(-1))
    dim %= x.dim()
    both = torch.broadcast_shapes(
        *([1 if i == dim else n for i, n in enumerate(t.shape)] for t in (x, indices))
    )
    x, indices = (
        t.broadcast_to([t.shape[i] if i == dim else n for i, n in enumerate(both)])
        for t in (x, indices)
    )
    return aten.gather.default(x, dim, indices)
