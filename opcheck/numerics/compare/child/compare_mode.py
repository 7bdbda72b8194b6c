"""Sees every operator call of a run on a device, and compares its results with float64 on the CPU.

Each call is made again from the device's own inputs: the loss of an earlier call does not count against a later call.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from opcheck.numerics.child.closeness import WorstElement, has_tolerance, measure
from opcheck.numerics.child.float64 import BLANK, Float64Call, Float64Mode, is_random
from opcheck.numerics.child.kept_tensors import can_keep, keep, keep_all, restore
from opcheck.numerics.compare.child import cpu_reference
from opcheck.numerics.compare.comparison_records import BEYOND, TIMES, Outcome
from opcheck.tracing.torch_private.trees import tensors

aten = torch.ops.aten

#: why a call is not compared
IS_RANDOM = "it draws random numbers, and those of two devices differ"
IS_BLANK = "its memory is not initialized"
NOT_UNIQUE = "its result has more than one right form"
LAYOUT = "its tensors are not strided"
NOTHING = "it returns nothing"


class ComparedCall(NamedTuple):
    """One call on the device."""

    #: with its arguments as they were before it; without arguments where it was not compared
    call: Float64Call
    outcome: Outcome
    #: why it was not compared
    reason: str = ""
    worst: WorstElement = WorstElement()
    #: of the same result, the CPU's in the same dtype; None: not computed, or the CPU has no kernel
    cpu: float | None = None
    #: which of the results, and its dtype
    output: int = 0
    dtype: torch.dtype | None = None

    @property
    def op(self) -> str:
        """The overload."""
        return str(self.call.func.name())


class CompareMode(Float64Mode):
    """Runs each call as it is, and judges it.

    Args:
        device: where the run is.
        judged: called with each call that has a tensor on the device, and computes.
        views: judge views, too: what is read through them.
        compared: called with each call that can be compared, its arguments kept in the dtypes that they have.
    """

    def __init__(
        self,
        device: torch.device,
        judged: Callable[[ComparedCall], None],
        compared: Callable[[Float64Call], None] | None = None,
        *,
        views: bool = False,
    ) -> None:
        super().__init__()
        self.device = device
        #: calls with no tensor on the device; views
        self.elsewhere = self.views = 0
        self._judged = judged
        self._compared = compared
        self._views = views

    def passes(self, call: Float64Call) -> bool:
        """Return whether the call only looks at its tensors in another way."""
        func = call.func
        is_view = call.moves_nothing or (func.is_view and not (self._views and _alone(func)))
        self.views += is_view
        return is_view

    def before_call(self, call: Float64Call) -> Float64Call | str:
        """Return the call with its tensors kept, or why it cannot be compared."""
        if call.func.overloadpacket in BLANK:
            return IS_BLANK
        if is_random(call.func):
            return IS_RANDOM
        args, kwargs = call.args, call.kwargs
        if not all(map(can_keep, tensors((args, kwargs)))):
            return LAYOUT
        return Float64Call(call.func, *keep_all((args, kwargs)))

    def after_call(self, call: Float64Call, before: Float64Call | str, result: Any) -> None:
        """Judge the call, if the device computes it."""
        results = call.result_tensors(result)
        there = (*tensors((call.args, call.kwargs)), *results)
        if not any(tensor.device.type == self.device.type for tensor in there):
            self.elsewhere += 1
        elif isinstance(before, str) or not all(map(can_keep, results)):
            self._judged(_not_compared(call, before if isinstance(before, str) else LAYOUT))
        else:
            self._judged(_Judge(before, on_cpu=self.device.type == "cpu").judge(results))
            if self._compared is not None:
                self._compared(before)


def _alone(func: Any) -> bool:
    """Return whether a view can be taken of a copy: as_strided and view.dtype read the storage itself."""
    return func.overloadpacket is not aten.as_strided and func is not aten.view.dtype


def _not_compared(call: Float64Call, reason: str) -> ComparedCall:
    return ComparedCall(Float64Call(call.func, (), {}), "not compared", reason)


class _Judge:
    """Compares the results of one call.

    Args:
        call: with its tensors kept.
        on_cpu: the run is on the CPU itself.
    """

    def __init__(self, call: Float64Call, *, on_cpu: bool) -> None:
        self._call = call
        self._on_cpu = on_cpu

    def judge(self, made: list[torch.Tensor]) -> ComparedCall:
        """Return the worst of the results."""
        call = self._call
        try:
            exact = cpu_reference.in_float64(call, next(iter(made), None))
        except Exception as error:  # noqa: BLE001 - a kernel that the CPU lacks, or that takes no float64
            text = " ".join(str(error).split())[:120]
            return _not_compared(call, f"the CPU does not compute it in float64: {text}")
        judged = [
            self._weigh(number, _read(made[number]), exact[number])
            for number in cpu_reference.determined_results(call.func, min(len(made), len(exact)))
            if has_tolerance(made[number].dtype) and not _own(number, made[number], exact[number])
        ]
        if not judged:
            return _not_compared(call, NOT_UNIQUE if made else NOTHING)
        # The last of equal ones.
        return max(reversed(judged), key=_rank)

    def _weigh(self, number: int, result: torch.Tensor, exact: torch.Tensor) -> ComparedCall:
        """Judge one result."""
        measured = self._measure(result, exact)
        judged = ComparedCall(self._call, "agrees", "", measured, None, number, result.dtype)
        if measured.error <= 1:
            return judged
        if math.isfinite(measured.error):
            size = cpu_reference.sizes(self._call)
            if size is not None and number < len(size) and size[number].shape == exact.shape:
                measured = measure(result, exact, size[number])
                judged = judged._replace(worst=measured)
                if measured.error <= 1:
                    return judged
        opinion = self._second_opinion
        if number < len(opinion):
            tensor = opinion[number]
            if tensor.dtype == result.dtype and _alike(result, tensor):
                return judged._replace(outcome="loose", cpu=measured.error)
            cpu = measure(tensor, exact).error
            judged = judged._replace(cpu=cpu)
            if math.isfinite(measured.error) and measured.error <= max(BEYOND, TIMES * cpu):
                return judged._replace(outcome="loose")
        elif measured.error <= (TIMES if self._on_cpu else BEYOND):
            return judged._replace(outcome="loose")
        return judged._replace(outcome="wrong")

    def _measure(self, result: torch.Tensor, exact: torch.Tensor) -> WorstElement:
        measured = measure(result, exact)
        floating = result.is_floating_point() or result.is_complex()
        if measured.error <= 1 or floating or result.shape != exact.shape:
            return measured
        call = Float64Call(self._call.func, *restore((self._call.args, self._call.kwargs)))
        if cpu_reference.same_choice(call, result, exact):
            return WorstElement()
        outside = cpu_reference.outside(call, result)
        if outside is not None:
            return measure(result.masked_fill(outside, 0), exact.masked_fill(outside, 0))
        return measured

    @functools.cached_property
    def _second_opinion(self) -> list[torch.Tensor]:
        """What the CPU makes of it in the same dtype; where the run is on the CPU, that is the run."""
        return [] if self._on_cpu else cpu_reference.in_its_dtype(self._call) or []


def _read(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a result to the CPU by its memory: the device's copies of strided or conjugated tensors are not judged."""
    return keep(tensor).tensor().resolve_conj().resolve_neg()


def _own(number: int, result: torch.Tensor, exact: torch.Tensor) -> bool:
    """Return whether a later result is a buffer for backward that a single kernel of the two fills."""
    return number > 0 and not (result.numel() and exact.numel()) and result.shape != exact.shape


def _alike(result: torch.Tensor, counterpart: torch.Tensor) -> bool:
    """Return whether the CPU's result in this dtype is the same; NaN equals NaN."""
    if result.shape != counterpart.shape:
        return False
    if not (result.is_floating_point() or result.is_complex()):
        return torch.equal(result, counterpart)
    wide = counterpart.to(torch.complex128 if counterpart.is_complex() else torch.float64)
    same = torch.equal(torch.isfinite(result), torch.isfinite(counterpart))
    return same and measure(result, wide).error <= 1


def _rank(judged: ComparedCall) -> tuple[bool, bool, float]:
    return judged.outcome == "wrong", judged.outcome == "loose", judged.worst.error
