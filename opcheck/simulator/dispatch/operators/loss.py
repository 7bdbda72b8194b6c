"""Losses and distances: aten/src/ATen/native/Loss.cpp, LossCTC.cpp, Distance.cpp."""

from typing import Any

import torch

from opcheck.simulator.dispatch.operators.operator import fact

aten = torch.ops.aten
Tensor = torch.Tensor


@fact("branch", "aten::ctc_loss.IntList", "aten::ctc_loss.Tensor")
def _ctc_loss(
    _context: Any,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    # LossCTC.cpp: a subclass takes another way, with lengths that stay tensors, as no plain tensor
    # does.
    lengths = [
        value.cpu().reshape(-1).tolist() if isinstance(value, torch.Tensor) else list(value)
        for value in (input_lengths, target_lengths)
    ]
    batched = log_probs.dim() == 3
    if not batched:
        log_probs = log_probs.unsqueeze(1)
    targets = targets.to(device=log_probs.device, dtype=torch.int64)
    result = aten._ctc_loss.default(log_probs, targets, *lengths, blank, zero_infinity)[0]
    if zero_infinity:
        nothing = torch.zeros((), dtype=result.dtype, device=result.device)
        result = torch.where(result == float("inf"), nothing, result)
    if reduction == 1:
        sizes = torch.tensor(lengths[1], dtype=result.dtype).to(result.device)
        return (result / sizes.clamp_min_(1)).mean()
    if reduction == 2:
        return result.sum()
    return result if batched else result.squeeze(0)


@fact("branch", "aten::kl_div")
def _kl_div(
    _context: Any, x: Tensor, target: Tensor, reduction: int = 1, *, log_target: bool = False
) -> Tensor:
    # Loss.cpp of 1.13 and 2.0, which had no xlogy on MPS
    loss = torch.exp(target) * (target - x) if log_target else target * (torch.log(target) - x)
    if reduction == 0:
        return loss
    return loss.mean() if reduction == 1 else loss.sum()


@fact("branch", "aten::cosine_similarity")
def cosine_similarity(
    _context: Any, x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8
) -> Tensor:
    """Compute as 1.13 and 2.0 do: the norms from squares, not by linalg_vector_norm (Distance.cpp)."""
    dtype = torch.result_type(x1, x2)
    shape = torch.broadcast_shapes(x1.shape, x2.shape)
    x1, x2 = x1.to(dtype).expand(shape), x2.to(dtype).expand(shape)
    squares = [x.pow(2).sum(dim, keepdim=True) for x in (x1, x2)]
    with torch.no_grad():
        for square in squares:
            square.clamp_min_(eps * eps)
    norms = [square.sqrt_() for square in squares]
    return ((x1 / norms[0]) * (x2 / norms[1])).sum(dim)
