"""Runs each call of a program, and follows the numbers that a float64 run would have."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from opcheck.numerics.child.closeness import Distance, distance, vanishes
from opcheck.numerics.child.float64 import BLANK, PRODUCTS, WIDE, Float64Call, Float64Mode, is_random, widen_dtype
from opcheck.numerics.precision.child.precision_tally import PrecisionTally, ShadowedCall
from opcheck.tracing.call_sites import CallSites
from opcheck.tracing.torch_private.tensors import negative_view, storage_address
from opcheck.tracing.torch_private.trees import tensors

aten = torch.ops.aten

# -- float64's numbers -----------------------------------------------------------------------------
#
# They belong to the memory of a tensor, not to the tensor: views, writes in place, detached tensors and those that
# autograd saves all find them again.

#: a complex number is two of these in memory.
_PARTS = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}

#: after so many calls the values of dead memory are dropped.
_SWEEP = 64


def memory(tensor: Tensor) -> int:
    """Return which memory is behind a tensor, while that exists."""
    return storage_address(tensor.untyped_storage())


class _Beside:
    """The float64 values and errors kept for one piece of memory."""

    __slots__ = ("error", "numbers", "part", "weak")

    def __init__(self, storage: Any, part: torch.dtype) -> None:
        flat = torch.empty(0, dtype=part).set_(storage)
        self.numbers = flat.to(torch.float64, copy=True)
        self.part = part
        # While it exists no other memory gets this address.
        self.weak = StorageWeakRef(storage)
        self.error = 0.0


class Shadows:
    """The table from memory to its numbers in float64."""

    def __init__(self) -> None:
        self._beside: dict[int, _Beside] = {}
        self._asked = 0

    def view(self, tensor: Tensor) -> Tensor:
        """Return the tensor's values in a float64 run: a view, so that a write reaches the table.

        Memory that no call has written to yet is the same in both runs.
        """
        numbers = self._entry(tensor).numbers
        if tensor.dtype.is_complex:
            numbers = torch.view_as_complex(numbers.view(-1, 2))
        view = numbers.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        view = view.conj() if tensor.is_conj() else view
        return negative_view(view) if tensor.is_neg() else view

    def error(self, tensor: Tensor) -> float:
        """Return the relative error that was last seen in this memory."""
        return self._entry(tensor).error

    def note(self, tensor: Tensor, error: float) -> None:
        """Keep the relative error of the values that were just written to this memory."""
        self._entry(tensor).error = error

    def keep(self, tensor: Tensor, exact: Tensor) -> None:
        """Record ``exact`` as the tensor's values in a float64 run from now on."""
        self.view(tensor).copy_(exact)

    def forget(self, tensor: Tensor) -> None:
        """Take this run's values for those of a float64 run, which are unknown."""
        self._beside.pop(memory(tensor), None)

    def _entry(self, tensor: Tensor) -> _Beside:
        self._asked += 1
        if self._asked % _SWEEP == 0:
            for key in [key for key, entry in self._beside.items() if entry.weak.expired()]:
                del self._beside[key]
        storage = tensor.untyped_storage()
        part = _PARTS.get(tensor.dtype, tensor.dtype)
        beside = self._beside.get(storage_address(storage))
        if beside is None or beside.part != part or beside.numbers.numel() != storage.nbytes() // part.itemsize:
            beside = self._beside[storage_address(storage)] = _Beside(storage, part)
        return beside


def is_followed(value: Any) -> bool:
    """Return whether this is a tensor with a float64 value of its own."""
    return (
        isinstance(value, Tensor)
        and value.dtype in WIDE
        and value.layout == torch.strided
        and value.device.type == "cpu"
    )


# -- sums without a double -------------------------------------------------------------------------
#
# The CPU's kernels of these operators sum in float64 whatever the dtype is; a GPU has none, so
# another sum runs. aten/src/ATen/native/cpu/ReduceOpsKernel.cpp, ``cumsum_cpu_kernel``:
# ``at::acc_type<scalar_t, false>``, which is double for float (aten/src/ATen/AccumulateType.h).


def _one_by_one(operation: np.ufunc, self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Accumulate the elements one after the other in the tensor's own dtype."""
    wanted = self.detach().to(dtype or self.dtype)
    # Kernels for 16 bits keep float32 while they sum.
    values = wanted.to(torch.float32) if wanted.dtype.itemsize < 4 else wanted
    if not values.dim():
        return wanted.clone()
    summed = operation.accumulate(values.numpy(), axis=dim, dtype=values.numpy().dtype)
    return torch.from_numpy(np.ascontiguousarray(summed)).to(wanted.dtype)


#: What is run instead.
WITHOUT_DOUBLE: dict[Any, Callable[..., Tensor]] = {
    aten.cumsum.default: functools.partial(_one_by_one, np.add),
    aten.cumprod.default: functools.partial(_one_by_one, np.multiply),
}

NOTE = (
    "cumsum and cumprod were summed one after the other in this dtype (float32 for 16 bits): the CPU's own kernel "
    "uses float64 inside, which no GPU of Apple's has; a Mac's kernel may sum in another order, and lose less"
)


# -- the mode --------------------------------------------------------------------------------------

#: What no float64 may become in the run: a Mac has none.
_NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}


class _Before(NamedTuple):
    """The state of a call before it writes to its arguments."""

    #: the followed tensors among its arguments, and float64's values of them
    reads: list[Tensor]
    exact_reads: list[Tensor]
    #: the largest error among them
    inherited: float
    #: the call with float64's values of its arguments, each rounded to the dtype that it has in the run
    alone: Float64Call
    #: what an in-place call makes in float64: it writes float64's own numbers, which must be read before
    exact: list[Tensor] | None


class ShadowMode(Float64Mode):
    """Runs each call as it is and in float64, and passes what differs to the tally.

    Whole numbers and truth values are this run's in both: a comparison that comes out otherwise is counted, and
    both then go the same way.  So are numbers that the program takes out of tensors, and random numbers.
    """

    def __init__(self, shadows: Shadows, sites: CallSites, tally: PrecisionTally) -> None:
        super().__init__()
        self._shadows = shadows
        self._sites = sites
        self._tally = tally

    def prepare(self, call: Float64Call) -> Float64Call:
        """Return the call without float64, where it writes to none of its arguments."""
        if call.func.is_view or call.written_tensors():
            return call

        def narrow(value: Any) -> Any:
            if isinstance(value, torch.dtype):
                return _NARROW.get(value, value)
            if isinstance(value, Tensor) and value.dtype in _NARROW:
                return value.to(_NARROW[value.dtype])
            return value

        return call.with_changed(narrow)

    def passes(self, call: Float64Call) -> bool:
        """Return whether the call makes no number: views and writes of such find float64's values by their memory."""
        return call.func.is_view or call.func.overloadpacket in BLANK or call.moves_nothing

    def before_call(self, call: Float64Call) -> _Before:
        """Return the float64 values of the call's operands."""
        shadows = self._shadows
        writes = bool(call.written_tensors())
        reads = [tensor for tensor in tensors((call.args, call.kwargs)) if is_followed(tensor)]
        if is_random(call.func):
            return _Before(reads, [], 0.0, call, None)

        def round_value(value: Any) -> Any:
            if not is_followed(value):
                copies = writes and isinstance(value, Tensor)
                return value.clone() if copies else value
            return shadows.view(value).to(_NARROW.get(value.dtype, value.dtype), copy=True)

        return _Before(
            reads,
            [shadows.view(read).clone() if writes else shadows.view(read) for read in reads],
            max(map(shadows.error, reads), default=0.0),
            call.with_changed(round_value),
            self._exact(call) if writes else None,
        )

    def compute(self, call: Float64Call) -> Any:
        """Return the result of the call in the run's dtype."""
        return super().compute(call) if is_random(call.func) else _compute_call(call)

    def after_call(self, call: Float64Call, before: _Before, result: Any) -> None:
        """Compare what the call made with float64."""
        if is_random(call.func):
            self._take_random(call, before, result)
            return
        shadows = self._shadows
        results = call.result_tensors(result)
        written = {id(tensor) for tensor in call.written_tensors()}
        sources = {memory(tensor) for tensor in tensors((call.args, call.kwargs))}
        if not written and all(memory(tensor) in sources for tensor in results):
            return  # a view that its schema does not call one
        if not before.reads and not any(map(is_followed, results)):
            return
        exact = before.exact if written else self._exact(call, like=next(iter(results), None))
        if exact is None:
            for tensor in filter(is_followed, results):
                shadows.forget(tensor)
            return
        alone = before.alone.result_tensors(_compute_call(before.alone))
        seen = ShadowedCall(call.func.name(), self._sites.here(), before.inherited)
        for tensor, wide, again in zip(results, exact, alone, strict=False):
            if is_followed(tensor):
                writes = id(tensor) in written
                self._take_floating(seen, tensor, wide, again, before.exact_reads, written=writes)
            elif before.reads and not tensor.dtype.is_floating_point:
                seen.flip(_flips(tensor, wide), tensor.numel())
        if seen.floating or seen.events:
            self._tally.add(seen)

    def _take_random(self, call: Float64Call, before: _Before, result: Any) -> None:
        """Let float64 take the same random numbers."""
        shadows = self._shadows
        if call.func is aten.native_dropout.default and before.reads:
            source, probability = call.args[:2]
            shadows.keep(result[0], shadows.view(source) * result[1] / (1 - probability))
            shadows.note(result[0], shadows.error(source))
            return
        for tensor in filter(is_followed, call.result_tensors(result)):
            shadows.forget(tensor)

    def _exact(self, call: Float64Call, like: Tensor | None = None) -> list[Tensor] | None:
        """Return what the call makes of float64's values, or makes them; None: no kernel does."""
        writes = bool(call.written_tensors())

        def widen(value: Any) -> Any:
            if is_followed(value):
                return self._shadows.view(value)
            return value.clone() if writes and isinstance(value, Tensor) else widen_dtype(value)

        try:
            return call.with_changed(widen).for_wide_results(like).run()
        except Exception:  # noqa: BLE001 - a kernel that has no float64, or none for this mixture
            self._tally.missed.add(call.func.name())
            return None

    def _take_floating(
        self, seen: ShadowedCall, tensor: Tensor, wide: Tensor, again: Tensor, reads: list[Tensor], *, written: bool
    ) -> None:
        if wide.shape != tensor.shape or wide.dtype not in WIDE:
            self._shadows.forget(tensor)
            return
        wide = wide.to(WIDE[tensor.dtype])
        total, local = distance(tensor, wide), distance(again, wide)
        if local.relative >= self._tally.limit or total.relative >= self._tally.limit:
            if vanishes(wide, reads, products=seen.op.startswith(PRODUCTS)):
                # Zero, so that a sum of such results is not compared with float64's noise either.
                total, local, wide = Distance(0.0), Distance(0.0), torch.zeros_like(wide)
                self._shadows.keep(tensor, wide)
            elif total.underflow and not local.underflow:
                total = Distance(total.relative)
        seen.measure(total, local, tensor.numel())
        if not written:
            self._shadows.keep(tensor, wide)
        self._shadows.note(tensor, total.relative)


def _compute_call(call: Float64Call) -> Any:
    """Return the result of the call in the run's dtype, without a double inside."""
    kernel: Callable[..., Any] = WITHOUT_DOUBLE.get(call.func, call.func)
    if kernel is not call.func and not all(map(is_followed, tensors(call.args))):
        kernel = call.func
    try:
        return kernel(*call.args, **call.kwargs)
    except RuntimeError as error:
        # "... not implemented for 'Half'": the CPU lacks it; as exact as float32, then rounded.
        if "not implemented for 'Half'" not in str(error) or call.written_tensors():
            raise
    single = call.with_changed(_cast_to(torch.float32))
    result = call.func(*single.args, **single.kwargs)
    return Float64Call(call.func, (result,), {}).with_changed(_cast_to(torch.float16)).args[0]


def _cast_to(dtype: torch.dtype) -> Callable[[Any], Any]:
    def cast(value: Any) -> Any:
        real = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.float32)
        return value.to(dtype) if real else value

    return cast


def _flips(result: Tensor, exact: Tensor) -> int:
    """Return how many elements of a discrete result come out otherwise; all where even their number does."""
    if result.shape != exact.shape:
        return max(result.numel(), 1)
    return int((result != exact).sum())
