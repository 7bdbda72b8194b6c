"""Handles results with several right answers: ties, bases of a space, floating numbers that no integer represents."""

from collections.abc import Sequence
from typing import Any

import torch

from opcheck.numerics.child.float64 import Float64Call

aten = torch.ops.aten

#: The operators whose whole-number result chooses an element of the first argument.
_CHOOSING = {
    aten.argmax, aten.argmin, aten.argsort, aten.max, aten.min, aten.sort, aten.topk, aten.kthvalue,
    aten.median, aten.nanmedian, aten.cummax, aten.cummin,
}  # fmt: skip
_POOLS = {aten.max_pool2d_with_indices: 2, aten.max_pool3d_with_indices: 3}
_POOLS |= {aten.adaptive_max_pool2d: 2, aten.adaptive_max_pool3d: 3}

#: The results that are determined: of a decomposition, a sign, a phase or an order is free; of others, what comes after
#: is the kernel's own.
DETERMINED = {
    **dict.fromkeys(
        (aten._linalg_eigh, aten._linalg_solve_ex, aten._linalg_det, aten._embedding_bag,
         aten._embedding_bag_forward_only, aten._ctc_loss, aten._cudnn_ctc_loss, aten.cudnn_batch_norm,
         aten._batch_norm_with_update), (0,)),
    aten._linalg_svd: (1,),
    aten._linalg_slogdet: (0, 1),
    # The rank of a pinv is decided by the dtype's own precision; and torch 2.11 gives other complex numbers below a
    # dispatch mode.
    **dict.fromkeys(
        (aten.linalg_eig, aten._linalg_eigvals, aten.linalg_eigvals, aten.linalg_qr, aten.geqrf, aten.mode,
         aten.linalg_pinv), ()),
}  # fmt: skip


def determined_results(func: Any, count: int) -> Sequence[int]:
    """Return the positions of the results that have one right answer, of the first so many."""
    positions = DETERMINED.get(func.overloadpacket)
    return range(count) if positions is None else [position for position in positions if position < count]


def same_choice(call: Float64Call, result: torch.Tensor, exact: torch.Tensor) -> bool:
    """Return whether two whole-number results choose equal elements: the operator leaves open which of them it is.

    Args:
        call: its arguments on the CPU, the first of them in its own dtype.
        result: the indices of the device.
        exact: those of the CPU.
    """
    func, args = call.func, call.args
    if result.shape != exact.shape or result.dtype != torch.int64 or not args:
        return False
    source = args[0]
    dims = _POOLS.get(func.overloadpacket)
    if dims is not None:
        flat, shape = source.flatten(-dims), result.flatten(-dims)
        return _equal(flat, -1, shape, exact.flatten(-dims))
    if func.overloadpacket not in _CHOOSING or not source.dim():
        return False
    dim = call.arguments().get("dim")
    if dim is None:
        return _equal(source.flatten(), 0, result.flatten(), exact.flatten())
    if result.dim() < source.dim():
        result, exact = result.unsqueeze(dim), exact.unsqueeze(dim)
    if result.dim() != source.dim():
        return False
    # An element that is chosen twice has pushed another one out.
    if func.overloadpacket in {aten.sort, aten.argsort, aten.topk} and _repeats(result, dim):
        return False
    return _equal(source, dim, result, exact)


def outside(call: Float64Call, result: torch.Tensor) -> torch.Tensor | None:
    """Return where a floating number was converted to an integer that cannot represent it, undefined in C++."""
    func, args = call.func, call.args
    if func.overloadpacket not in {aten._to_copy, aten.copy_} or not args:
        return None
    source = args[0] if func.overloadpacket is aten._to_copy else args[1]
    if not isinstance(source, torch.Tensor) or not source.dtype.is_floating_point:
        return None
    if result.dtype.is_floating_point or result.dtype.is_complex or result.dtype == torch.bool:
        return None
    info = torch.iinfo(result.dtype)
    wide = source.double()
    bad = ~torch.isfinite(wide) | (wide >= float(info.max) + 1) | (wide <= float(info.min) - 1)
    return bad.expand(result.shape) if bad.any() else None


def _equal(source: torch.Tensor, dim: int, result: torch.Tensor, exact: torch.Tensor) -> bool:
    length = source.shape[dim]
    if result.numel() and (int(result.min()) < 0 or int(result.max()) >= length):
        return False
    tensor, expected = source.gather(dim, result), source.gather(dim, exact)
    both_nan = tensor.isnan() & expected.isnan()
    return bool(((tensor == expected) | both_nan).all())


def _repeats(indices: torch.Tensor, dim: int) -> bool:
    ordered = indices.sort(dim).values
    return bool((ordered.diff(dim=dim) == 0).any()) if ordered.shape[dim] > 1 else False
