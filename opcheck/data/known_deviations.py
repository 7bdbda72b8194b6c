"""Known deviations of recorded calls from the calls on a Mac that the simulator cannot correct.

Most come from ``at::isTensorSubclassLike``, which is true for every simulated tensor:
FunctionsManual.cpp and some composites then skip the steps that read values on the host, and Python
cannot add a branch inside a C++ formula.  The list is the result of running PyTorch's operator
database on plain CPU tensors with and without a dispatch mode (torch 2.13.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from opcheck.common.versions import Span, Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Difference(NamedTuple):
    """A set of operators whose recorded calls differ from the calls on a Mac, and how they differ."""

    #: overloads; a call of any of them is enough
    ops: frozenset[str]
    #: only where the program ran backward
    backward: bool
    torch: Span
    text: str


def _overloads(*names: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in names)


_EVERY = Span()

DIFFERENCES = (
    Difference(
        _overloads("prod", "prod.dim_int"),
        backward=True,
        torch=_EVERY,
        text="the calls of prod's gradient on a Mac: it reads on the host whether the input has zeros and divides "
        "where it has none; the way for zeros is recorded (cat, cumprod, flip)",
    ),
    Difference(
        _overloads("cumprod", "cumprod_"),
        backward=True,
        torch=_EVERY,
        text="the calls of cumprod's gradient on a Mac: it reads on the host whether the input has zeros and does "
        "little where it has none; the way for zeros is recorded",
    ),
    Difference(
        _overloads("max", "min", "median", "nanmedian"),
        backward=True,
        torch=_EVERY,
        text="the calls of the gradient of max, min or median of all elements on a Mac: it reads on the host "
        "whether the result is NaN",
    ),
    Difference(
        _overloads("masked_fill.Tensor", "masked_fill_.Tensor"),
        backward=True,
        torch=_EVERY,
        text="the calls of the gradient of masked_fill's value on a Mac: masked_select, whose size is read on the "
        "host; where is recorded",
    ),
    Difference(
        _overloads("masked_scatter", "masked_scatter_"),
        backward=True,
        torch=Span(until=Version(2, 2)),
        text="the calls of masked_scatter's gradient: before 2.2 it took masked_select, and masked_scatter_backward, "
        "which is recorded, did not exist",
    ),
    Difference(
        _overloads("max_pool2d_with_indices"),
        backward=False,
        torch=Span(until=Version(2, 0)),
        text="_mps_max_pool2d, which max_pool2d of torch 1.13 calls on a Mac and no later torch has: "
        "max_pool2d_with_indices is recorded",
    ),
)


def differing(ops: Iterable[tuple[str, str]], torch: Version) -> Iterator[str]:
    """Yield the texts of the deviations that apply to a program's calls, given as (overload, phase)."""
    calls = set(ops)
    backward = any(phase == "backward" for _, phase in calls)
    # The program itself did not make the calls of a gradient.
    names = {name for name, phase in calls if phase != "backward"}
    for difference in DIFFERENCES:
        if (
            torch in difference.torch
            and (backward or not difference.backward)
            and not names.isdisjoint(difference.ops)
        ):
            yield difference.text
