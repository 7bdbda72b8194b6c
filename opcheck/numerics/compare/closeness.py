"""How far a result is from float64's, in tolerances."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from opcheck.numerics.compare.records import TOLERANCES, Fault


class Measured(NamedTuple):
    """The worst element of one result."""

    #: the distance from float64; 1.0 is just allowed, infinite is what no tolerance is for
    error: float = 0.0
    kind: Fault = "value"
    element: tuple[int, ...] = ()
    found: str = ""
    exact: str = ""


def dtype_name(dtype: torch.dtype) -> str:
    """``float32``."""
    return str(dtype).removeprefix("torch.")


def judged(dtype: torch.dtype) -> bool:
    """Whether results of a dtype can be held against float64: floating ones that have a tolerance, and discrete ones."""
    floating = dtype.is_floating_point or dtype.is_complex
    return not floating or dtype_name(dtype) in TOLERANCES


def measure(found: torch.Tensor, exact: torch.Tensor, size: torch.Tensor | None = None) -> Measured:
    """The distance of a result on the CPU from the exact one.

    Args:
        found: the result, in its own dtype.
        exact: in float64 or complex128; of a discrete result, in its own dtype.
        size: what was summed for each element without its sign, where that is known: no dtype can do better than its own
            share of it.
    """
    if found.shape != exact.shape:
        return Measured(math.inf, "shape", (), str(tuple(found.shape)), str(tuple(exact.shape)))
    if not (found.dtype.is_floating_point or found.dtype.is_complex):
        return _discrete(found, exact)
    dtype = found.dtype
    if dtype.is_complex:
        found = torch.view_as_real(found.to(torch.complex128).resolve_conj())
        exact = torch.view_as_real(exact.to(torch.complex128).resolve_conj())
        size = None if size is None else size.unsqueeze(-1)
    wide, exact = found.double(), exact.double()
    broken = _broken(wide, exact, dtype)
    if broken is not None:
        return broken
    both = torch.isfinite(exact) & torch.isfinite(wide)
    if not both.any():
        return Measured()
    share, of_all = TOLERANCES[dtype_name(dtype)]
    scale = exact[both].square().mean().sqrt()
    large = exact.abs() if size is None else torch.maximum(exact.abs(), size.double())
    error = (wide - exact).abs() / (share * large + of_all * scale + _smallest(dtype))
    return _worst(error.where(both, 0.0), wide, exact, "value")


def _discrete(found: torch.Tensor, exact: torch.Tensor) -> Measured:
    if exact.dtype.is_floating_point or exact.dtype.is_complex:
        found = found.to(exact.dtype)
    differs = found != exact
    if not differs.any():
        return Measured()
    return _worst(differs.double() * math.inf, found, exact, "whole number", differs)


def _broken(wide: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> Measured | None:
    """Where one has a number and the other has none."""
    differs = torch.isnan(wide) != torch.isnan(exact)
    if differs.any():
        return _worst(differs.double(), wide, exact, "nan", differs)
    infinite = torch.isinf(wide) | torch.isinf(exact)
    # What is too large for the dtype is infinite in it.
    largest = torch.finfo(dtype).max
    limited = exact.where(exact.abs() < largest, exact.sign() * math.inf)
    differs = infinite & (wide != exact) & (wide != limited)
    if differs.any():
        return _worst(differs.double(), wide, exact, "infinite", differs)
    return None


def _worst(
    error: torch.Tensor,
    found: torch.Tensor,
    exact: torch.Tensor,
    kind: Fault,
    broken: torch.Tensor | None = None,
) -> Measured:
    where = error if broken is None else broken.double()
    index = int(where.flatten().argmax())
    element = tuple(int(tensor) for tensor in torch.unravel_index(torch.tensor(index), error.shape))
    return Measured(
        math.inf if broken is not None else float(error.flatten()[index]),
        kind,
        element,
        _number(found, index),
        _number(exact, index),
    )


def _number(values: torch.Tensor, index: int) -> str:
    value = values.flatten()[index].item()
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _smallest(dtype: torch.dtype) -> float:
    """What may be flushed to zero: numbers below the smallest normal one; of float16, only what it cannot write."""
    info = torch.finfo(dtype)
    half = info.bits == 16 and info.max < 1e5
    return float(info.smallest_normal * info.eps if half else info.smallest_normal)
