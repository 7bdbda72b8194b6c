"""Sees every operator call of a run on a device, and holds its results against float64 on the CPU.

Each call is made again from the device's own inputs: what an earlier call lost is not held against a later one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from opcheck.numerics.compare import discrete, reference
from opcheck.numerics.compare.closeness import Measured, judged, measure
from opcheck.numerics.compare.records import BEYOND, TIMES, Outcome
from opcheck.numerics.compare.snapshot import Kept, keep, keep_all, keeps, map_kept
from opcheck.numerics.precision import kernels
from opcheck.tracing.nested_tensors import tensors
from opcheck.tracing.torch_private.dispatch import DispatchMode

aten = torch.ops.aten

#: why a call is not compared
RANDOM = "it draws random numbers, and those of two devices differ"
BLANK = "its memory holds nothing yet"
NOT_UNIQUE = "its result has more than one right form"
LAYOUT = "its tensors are not strided"
NOTHING = "it returns nothing"


class Judged(NamedTuple):
    """One call on the device."""

    func: Any
    outcome: Outcome
    #: why it was not compared
    reason: str = ""
    worst: Measured = Measured()
    #: of the same result, the CPU's in the same dtype; None: not asked, or it has no kernel
    cpu: float | None = None
    #: which of the results, and its dtype
    output: int = 0
    dtype: torch.dtype | None = None
    #: positional and keyword arguments as they were before the call
    kept: Any = ((), {})


class Beside(DispatchMode):
    """Runs each call as it is, and tells of it.

    Args:
        device: where the run is.
        tell: told of each call that has a tensor on the device, and computes.
        views: judge views, too: what is read through them.
        after: called with each such call and its kept arguments, in the dtypes that it has, where it is compared.
    """

    def __init__(
        self,
        device: torch.device,
        tell: Callable[[Judged], None],
        after: Callable[[Any, Any, Any], None] | None = None,
        *,
        views: bool = False,
    ) -> None:
        super().__init__()
        self.device = device
        #: calls with no tensor on the device; views
        self.elsewhere = self.views = 0
        #: the overload that is running: what raised, if something did
        self.running = ""
        self._tell = tell
        self._after = after
        self._views = views

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Make one call."""
        kwargs = kwargs or {}
        self.running = func.name()
        if _moves_nothing(func) or (func.is_view and not (self._views and _alone(func))):
            self.views += 1
            return func(*args, **kwargs)
        given = tensors((args, kwargs))
        reason = _not_comparable(func, given)
        kept = None if reason else keep_all((args, kwargs))
        result = func(*args, **kwargs)
        made = reference.results(func, args, kwargs, result)
        if not any(tensor.device.type == self.device.type for tensor in (*given, *made)):
            self.elsewhere += 1
        elif reason:
            self._tell(Judged(func, "not compared", reason))
        else:
            if not all(map(keeps, made)):
                self._tell(Judged(func, "not compared", LAYOUT))
                return result
            self._tell(_judge(func, kept, made, on_cpu=self.device.type == "cpu"))
            if self._after is not None:
                self._after(func, kept, made)
        return result


def _moves_nothing(func: Any) -> bool:
    """A view that a tensor itself becomes, and a number that is taken out of one."""
    return func is kernels.ITEM or torch.Tag.inplace_view in func.tags


def _alone(func: Any) -> bool:
    """Whether a view can be made of a copy: not where it counts from the storage's start, or reads other bits."""
    return func.overloadpacket is not aten.as_strided and func is not aten.view.dtype


def _not_comparable(func: Any, given: Sequence[torch.Tensor]) -> str:
    if func.overloadpacket in kernels.BLANK:
        return BLANK
    if kernels.is_random(func):
        return RANDOM
    return "" if all(map(keeps, given)) else LAYOUT


def _judge(func: Any, kept: Any, made: list[torch.Tensor], *, on_cpu: bool) -> Judged:
    """Hold the results of one call against float64."""
    like = next(iter(made), None)
    try:
        args, kwargs = kept
        exact = reference.in_float64(func, args, kwargs, like)
    except Exception as error:  # noqa: BLE001 - a kernel that the CPU lacks, or that takes no float64
        text = " ".join(str(error).split())[:120]
        return Judged(func, "not compared", f"the CPU does not compute it in float64: {text}")
    pairs = [
        (number, _read(made[number]), exact[number])
        for number in discrete.determined(func, min(len(made), len(exact)))
        if judged(made[number].dtype) and not _own(number, made[number], exact[number])
    ]
    if not pairs:
        return Judged(func, "not compared", NOT_UNIQUE if made else NOTHING)
    worst = Judged(func, "agrees", kept=kept)
    plain: list[torch.Tensor] | None = None
    for number, tensor, other in pairs:
        measured = _measured(func, kept, tensor, other)
        if measured.error > 1 and plain is None:
            plain = _second_opinion(func, kept, on_cpu=on_cpu)
        seen = _weigh(func, kept, measured, tensor, number, plain, other, on_cpu=on_cpu)
        if _rank(seen) >= _rank(worst):
            worst = seen
    return worst


def _read(tensor: torch.Tensor) -> torch.Tensor:
    """The result on the CPU, by its memory: how a device copies what is strided or conjugated is not judged here."""
    return keep(tensor).tensor().resolve_conj().resolve_neg()


def _own(number: int, found: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether a result that is not the first is what a kernel keeps for its backward, and only one of the two does."""
    empty = not (found.numel() and exact.numel())
    return number > 0 and empty and found.shape != exact.shape


def _measured(func: Any, kept: Any, found: torch.Tensor, exact: torch.Tensor) -> Measured:
    measured = measure(found, exact)
    if measured.error <= 1:
        return measured
    args, kwargs = map_kept(Kept.tensor, kept)
    if found.shape == exact.shape and not (found.is_floating_point() or found.is_complex()):
        if discrete.same_choice(func, args, kwargs, found, exact):
            return Measured()
        outside = discrete.outside(func, args, found)
        if outside is not None:
            return measure(found.masked_fill(outside, 0), exact.masked_fill(outside, 0))
    return measured


def _second_opinion(func: Any, kept: Any, *, on_cpu: bool) -> list[torch.Tensor]:
    """What the CPU makes of it in the same dtype; where the run is on the CPU, that is the run."""
    if on_cpu:
        return []
    return reference.as_it_is(func, *kept) or []


def _weigh(
    func: Any,
    kept: Any,
    measured: Measured,
    found: torch.Tensor,
    number: int,
    plain: list[torch.Tensor] | None,
    exact: torch.Tensor,
    *,
    on_cpu: bool,
) -> Judged:
    """What one result comes to."""
    measurement = Judged(func, "agrees", "", measured, None, number, found.dtype, kept)
    if measured.error <= 1 or plain is None:
        return measurement
    if math.isfinite(measured.error):
        size = reference.sizes(func, *kept)
        if size is not None and number < len(size) and size[number].shape == exact.shape:
            measured = measure(found, exact, size[number])
            measurement = measurement._replace(worst=measured)
            if measured.error <= 1:
                return measurement
    if number < len(plain):
        tensor = plain[number]
        if tensor.dtype == found.dtype and _alike(found, tensor):
            return measurement._replace(outcome="loose", cpu=measured.error)
        cpu = measure(tensor, exact).error
        measurement = measurement._replace(cpu=cpu)
        if math.isfinite(measured.error) and measured.error <= max(BEYOND, TIMES * cpu):
            return measurement._replace(outcome="loose")
    elif measured.error <= (TIMES if on_cpu else BEYOND):
        return measurement._replace(outcome="loose")
    return measurement._replace(outcome="wrong")


def _alike(found: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the CPU comes to the same in this dtype, what is no number included."""
    return found.shape == other.shape and bool(
        torch.equal(found, other)
        if not (found.is_floating_point() or found.is_complex())
        else torch.equal(torch.isfinite(found), torch.isfinite(other))
        and measure(
            found, other.to(torch.complex128 if other.is_complex() else torch.float64)
        ).error
        <= 1
    )


def _rank(seen: Judged) -> tuple[bool, bool, float]:
    return seen.outcome == "wrong", seen.outcome == "loose", seen.worst.error
