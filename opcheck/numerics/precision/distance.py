"""How far a result is from float64's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch

#: a float64 result this small beside what it was made of is zero but for float64's own rounding.
_VANISHES = 1e-11


class Distance(NamedTuple):
    """One result beside float64's."""

    #: of the norms: |difference| / |exact|
    relative: float
    #: elements that are infinite, not a number, or all zero where float64 has numbers
    overflow: int = 0
    nan: int = 0
    underflow: int = 0


def distance(found: torch.Tensor, exact: torch.Tensor) -> Distance:
    """The distance of a result from the exact one; what is not finite in both is left out."""
    wide = found.to(exact.dtype)
    difference, size = _norm(wide - exact), _norm(exact)
    if _finite(difference) and _finite(size) and size < 1e30:
        if size and not _norm(wide):
            return Distance(1.0, underflow=found.numel())
        return Distance(_ratio(difference, size))
    good = torch.isfinite(exact)
    # A mask's "as small as can be" would hide all else.
    if found.dtype.is_floating_point:
        good &= exact.abs() < torch.finfo(found.dtype).max / 4
    nan = torch.isnan(wide) & ~torch.isnan(exact)
    infinite = torch.isinf(wide) & torch.isfinite(exact)
    both = good & torch.isfinite(wide)
    relative = _ratio(_norm((wide - exact)[both]), _norm(exact[both]))
    broken = int(infinite.sum()), int(nan.sum())
    return Distance(max(relative, 1.0) if any(broken) else relative, *broken)


def vanishes(exact: torch.Tensor, inputs: Iterable[torch.Tensor], *, products: bool) -> bool:
    """Whether the exact result is zero up to float64's own rounding: no dtype has a digit of it right.

    ``products``: the result is a sum of products of its inputs, not of the inputs themselves.
    """
    if not exact.numel():
        return True
    sizes = [float(tensor.abs().amax()) for tensor in inputs if tensor.numel()]
    scale = max(sizes, default=0.0)
    if products:
        scale = max(scale, math.prod(sizes))
    return float(exact.abs().amax()) <= _VANISHES * scale


def _norm(values: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(values))


def _finite(number: float) -> bool:
    return number - number == 0.0


def _ratio(difference: float, size: float) -> float:
    if not difference:
        return 0.0
    return difference / size if size else 1.0
