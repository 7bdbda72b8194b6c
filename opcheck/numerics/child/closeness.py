"""Measures how far a result is from float64's: in tolerances, by its worst element, and as a share of it."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch

from opcheck.numerics.compare.comparison_records import TOLERANCES, Fault

#: A float64 result this small, relative to its operands, is zero but for float64's own rounding.
_VANISHES = 1e-11


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype as in ``float32``."""
    return str(dtype).removeprefix("torch.")


# -- in tolerances ----------------------------------------------------------------------------------------------------


class WorstElement(NamedTuple):
    """The worst element of one result."""

    #: the distance from float64; 1.0 is just allowed, infinite is what no tolerance is for
    error: float = 0.0
    kind: Fault = "value"
    element: tuple[int, ...] = ()
    found: str = ""
    exact: str = ""


def has_tolerance(dtype: torch.dtype) -> bool:
    """Return whether results of a dtype can be compared: discrete ones, and floating ones that have a tolerance."""
    floating = dtype.is_floating_point or dtype.is_complex
    return not floating or dtype_name(dtype) in TOLERANCES


def measure(result: torch.Tensor, exact: torch.Tensor, size: torch.Tensor | None = None) -> WorstElement:
    """Return the distance of a result on the CPU from the exact result.

    Args:
        result: in its own dtype.
        exact: in float64 or complex128; of a discrete result, in its own dtype.
        size: what was summed for each element without its sign, where that is known: no dtype can
            do better than its own
            share of it.
    """
    if result.shape != exact.shape:
        return WorstElement(math.inf, "shape", (), str(tuple(result.shape)), str(tuple(exact.shape)))
    if not (result.dtype.is_floating_point or result.dtype.is_complex):
        return _discrete(result, exact)
    dtype = result.dtype
    if dtype.is_complex:
        result = torch.view_as_real(result.to(torch.complex128).resolve_conj())
        exact = torch.view_as_real(exact.to(torch.complex128).resolve_conj())
        size = None if size is None else size.unsqueeze(-1)
    wide, exact = result.double(), exact.double()
    broken = _broken_element(wide, exact, dtype)
    if broken is not None:
        return broken
    both = torch.isfinite(exact) & torch.isfinite(wide)
    if not both.any():
        return WorstElement()
    share, targets_of = TOLERANCES[dtype_name(dtype)]
    # No index: an emulated Mac would judge it as the program's.
    scale = (exact.where(both, 0.0).square().sum() / both.sum()).sqrt()
    large = exact.abs() if size is None else torch.maximum(exact.abs(), size.double())
    error = (wide - exact).abs() / (share * large + targets_of * scale + _smallest(dtype))
    return _worst(error.where(both, 0.0), wide, exact, "value")


def _discrete(result: torch.Tensor, exact: torch.Tensor) -> WorstElement:
    if exact.dtype.is_floating_point or exact.dtype.is_complex:
        result = result.to(exact.dtype)
    differs = result != exact
    return _worst(differs, result, exact, "whole number") if differs.any() else WorstElement()


def _broken_element(wide: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> WorstElement | None:
    """Return where only the result, or only the exact value, is a number."""
    differs = torch.isnan(wide) != torch.isnan(exact)
    if differs.any():
        return _worst(differs, wide, exact, "nan")
    infinite = torch.isinf(wide) | torch.isinf(exact)
    # What is too large for the dtype is infinite in it.
    limited = exact.where(exact.abs() < torch.finfo(dtype).max, exact.sign() * math.inf)
    differs = infinite & (wide != exact) & (wide != limited)
    return _worst(differs, wide, exact, "infinite") if differs.any() else None


def _worst(error: torch.Tensor, result: torch.Tensor, exact: torch.Tensor, kind: Fault) -> WorstElement:
    """Return the element of the largest error; where ``error`` is a truth value, the first that is broken."""
    index = int(error.double().flatten().argmax())
    element = tuple(map(int, torch.unravel_index(torch.tensor(index), error.shape)))
    largest = math.inf if error.dtype == torch.bool else float(error.flatten()[index])
    return WorstElement(largest, kind, element, _number(result, index), _number(exact, index))


def _number(values: torch.Tensor, index: int) -> str:
    value = values.flatten()[index].item()
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _smallest(dtype: torch.dtype) -> float:
    """Return the bound below which numbers may be flushed to zero: the smallest normal number (of all in float16)."""
    info = torch.finfo(dtype)
    half = info.bits == 16 and info.max < 1e5
    return float(info.smallest_normal * info.eps if half else info.smallest_normal)


# -- as a share -------------------------------------------------------------------------------------------------------


class Distance(NamedTuple):
    """The distance of a result from float64's."""

    #: of the norms: |difference| / |exact|
    relative: float
    #: elements that are infinite, not a number, or all zero where float64 has numbers
    overflow: int = 0
    nan: int = 0
    underflow: int = 0


def distance(result: torch.Tensor, exact: torch.Tensor) -> Distance:
    """Return the distance of a result from the exact result; what is not finite in both is left out."""
    wide = result.to(exact.dtype)
    difference, size = _norm(wide - exact), _norm(exact)
    if math.isfinite(difference) and size < 1e30:
        if size and not _norm(wide):
            return Distance(1.0, underflow=result.numel())
        return Distance(_ratio(difference, size))
    good = torch.isfinite(exact)
    # A mask's "as small as can be" would hide all else.
    if result.dtype.is_floating_point:
        good &= exact.abs() < torch.finfo(result.dtype).max / 4
    nan = torch.isnan(wide) & ~torch.isnan(exact)
    infinite = torch.isinf(wide) & torch.isfinite(exact)
    both = good & torch.isfinite(wide)
    relative = _ratio(_norm((wide - exact)[both]), _norm(exact[both]))
    broken = int(infinite.sum()), int(nan.sum())
    return Distance(max(relative, 1.0) if any(broken) else relative, *broken)


def vanishes(exact: torch.Tensor, inputs: Iterable[torch.Tensor], *, products: bool) -> bool:
    """Return whether the exact result is zero up to float64's own rounding: no dtype has a digit of it right.

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


def _ratio(difference: float, size: float) -> float:
    if not difference:
        return 0.0
    return difference / size if size else 1.0
