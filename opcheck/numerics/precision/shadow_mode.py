"""Sees every operator call of a run, and makes it again in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from opcheck.capture.train_loss import NothingToTrainError, loss_of
from opcheck.numerics.precision import kernels
from opcheck.numerics.precision.distance import Distance, distance, vanishes
from opcheck.numerics.precision.shadows import WIDE, Shadows, followed, memory
from opcheck.numerics.precision.tally import Seen, Tally
from opcheck.tracing.call_sites import CallSites
from opcheck.tracing.nested_tensors import tensors
from opcheck.tracing.torch_private.dispatch import DispatchMode
from opcheck.tracing.torch_private.trees import tree_iter


class Places(CallSites):
    """Where calls are made, and the backward of a training step."""

    #: what a training step took backward; empty: there was none
    loss = ""

    def backward(self, output: Any) -> None:
        """Take the loss of an output backward, if it has one."""
        try:
            with self.modules.inside("loss"):
                loss = loss_of(output)
        except NothingToTrainError as error:
            self.loss = f"none: {error}"
            return
        self.loss = loss.said
        self.phase = "backward"
        torch.autograd.backward(loss.value)


class Follow(DispatchMode):
    """Runs each call as it is, and beside it in float64, and hands what differs to the tally.

    Whole numbers and truth values are this run's in both: a comparison that comes out otherwise is counted, and
    both then go the same way.  So are numbers that the program takes out of tensors, and random numbers.
    """

    def __init__(self, shadows: Shadows, places: Places, tally: Tally) -> None:
        super().__init__()
        self._shadows = shadows
        self._places = places
        self._tally = tally

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Make one call."""
        kwargs = kwargs or {}
        writes = kernels.written(func, args, kwargs)
        if not writes:
            plain = args, kwargs
            args, kwargs = kernels.narrowed(func, args, kwargs)
            if func.is_view:
                return func(*plain[0], **plain[1])
        reads = [tensor for tensor in tensors((args, kwargs)) if followed(tensor)]
        if func.overloadpacket in kernels.BLANK:
            return func(*args, **kwargs)
        if kernels.is_random(func):
            return self._random(func, args, kwargs, reads, writes)
        if func is kernels.ITEM or torch.Tag.inplace_view in func.tags:
            return func(*args, **kwargs)
        return self._compared(func, args, kwargs, reads, writes)

    def _random(self, func: Any, args: Any, kwargs: Any, reads: Any, writes: Any) -> Any:
        """The same random numbers for float64."""
        result = func(*args, **kwargs)
        if func is kernels.DROPOUT and reads:
            kept, probability = result[1], args[1]
            exact = self._shadows.of(args[0]) * kept / (1 - probability)
            self._shadows.keep(result[0], exact)
            self._shadows.note(result[0], self._shadows.error(args[0]))
            return result
        for tensor in filter(followed, (*writes, *tensors(result))):
            self._shadows.forget(tensor)
        return result

    def _compared(
        self,
        func: Any,
        args: Any,
        kwargs: Any,
        reads: Sequence[torch.Tensor],
        writes: Sequence[torch.Tensor],
    ) -> Any:
        shadows = self._shadows
        inherited = max(map(shadows.error, reads), default=0.0)
        alone_args, alone_kwargs = kernels.rounded(args, kwargs, shadows, copy=bool(writes))
        exact_inputs = [shadows.of(read).clone() if writes else shadows.of(read) for read in reads]
        # In place, float64's own numbers are written: they must be read before this run overwrites its.
        exact = self._exact(func, args, kwargs) if writes else None
        result = kernels.as_run(func, args, kwargs)
        made = list(writes) or tensors(result)
        sources = {memory(one) for one in tensors((args, kwargs))}
        if not writes and all(memory(one) in sources for one in made):
            return result  # a view that its schema does not call one
        if not reads and not any(map(followed, made)):
            return result
        if not writes:
            exact = self._exact(func, args, kwargs, like=next(iter(made), None))
        if exact is None:
            for tensor in filter(followed, made):
                shadows.forget(tensor)
            return result
        alone = self._alone(func, alone_args, alone_kwargs, writes=bool(writes))
        seen = Seen(func.name(), *self._places.here(), inherited)
        for tensor, wide, again in zip(made, exact, alone, strict=False):
            if followed(tensor):
                self._floating(seen, tensor, wide, again, exact_inputs, written=bool(writes))
            elif reads and not tensor.dtype.is_floating_point:
                seen.flip(_flips(tensor, wide), tensor.numel())
        if seen.floating or seen.events:
            self._tally.add(seen)
        return result

    def _exact(
        self, func: Any, args: Any, kwargs: Any, like: torch.Tensor | None = None
    ) -> list[torch.Tensor] | None:
        wide = WIDE.get(like.dtype) if like is not None else None
        try:
            return kernels.in_float64(func, args, kwargs, self._shadows, wide)
        except Exception:  # noqa: BLE001 - a kernel that has no float64, or none for this mixture
            self._tally.not_followed(func.name())
            return None

    def _alone(self, func: Any, args: Any, kwargs: Any, *, writes: bool) -> list[torch.Tensor]:
        result = kernels.as_run(func, args, kwargs)
        return kernels.written(func, args, kwargs) if writes else tensors(result)

    def _floating(
        self,
        seen: Seen,
        tensor: torch.Tensor,
        wide: torch.Tensor,
        again: torch.Tensor,
        inputs: Sequence[torch.Tensor],
        *,
        written: bool,
    ) -> None:
        if wide.shape != tensor.shape or wide.dtype not in WIDE:
            self._shadows.forget(tensor)
            return
        wide = wide.to(WIDE[tensor.dtype])
        total, local = distance(tensor, wide), distance(again, wide)
        if local.relative >= self._tally.limit or total.relative >= self._tally.limit:
            if vanishes(wide, inputs, products=seen.op.startswith(kernels.PRODUCTS)):
                # Zero, so that a sum of such results is not held against float64's noise either.
                total, local, wide = Distance(0.0), Distance(0.0), torch.zeros_like(wide)
                self._shadows.keep(tensor, wide)
            elif total.underflow and not local.underflow:
                total = Distance(total.relative)
        seen.measure(total, local, tensor.numel())
        if not written:
            self._shadows.keep(tensor, wide)
        self._shadows.note(tensor, total.relative)


def _flips(found: torch.Tensor, exact: torch.Tensor) -> int:
    """How many elements of a discrete result come out otherwise; all where even their number does."""
    if found.shape != exact.shape:
        return max(found.numel(), 1)
    return int((found != exact).sum())


def detached(value: Any) -> list[torch.Tensor]:
    """The followed tensors in what a program returned."""
    return [leaf for leaf in tree_iter(value) if followed(leaf)]
