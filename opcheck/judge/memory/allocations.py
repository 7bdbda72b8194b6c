"""Classify the memory of a trace, and sum it up for each call."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opcheck.common.versions import Target, Version
from opcheck.common.vocabulary import MEMORY_USES, MemoryOrigin, MemoryUse, Phase
from opcheck.model.records import Lifetime, OpCall, Trace

_PLACED: dict[MemoryOrigin, MemoryUse] = {
    "parameter": "parameters",
    "buffer": "buffers",
    "input": "inputs",
}


class Taken(NamedTuple):
    """A lifetime with the column of the report that counts it."""

    life: Lifetime
    kind: MemoryUse

    @property
    def moved(self) -> bool:
        """Return whether the memory was allocated before the first call."""
        return self.life.kind in _PLACED and self.life.first == 0

    def during(self, call: int) -> bool:
        """Return whether the memory is allocated while that call runs."""
        return self.life.first <= call and (self.life.freed is None or self.life.freed > call)


def list_taken(trace: Trace) -> tuple[Taken, ...]:
    """Return the lifetimes of a trace with their columns."""
    ends = _phase_ends(trace.calls)
    return tuple(
        Taken(life, _use(life, trace.calls[life.first].phase, ends[life.first]))
        if life.kind not in _PLACED
        else Taken(life, _PLACED[life.kind])
        for life in trace.lifetimes
    )


def sweep(pieces: Sequence[Taken], calls: int) -> Iterator[dict[MemoryUse, int]]:
    """Yield the bytes of each column during each call."""
    changes: dict[int, list[tuple[MemoryUse, int]]] = defaultdict(list)
    for life, kind in pieces:
        changes[life.first].append((kind, life.nbytes))
        if life.freed is not None:
            changes[life.freed].append((kind, -life.nbytes))
    now = dict.fromkeys(MEMORY_USES, 0)
    for index in range(calls):
        for kind, change in changes.get(index, ()):
            now[kind] += change
        yield dict(now)


def highest(totals: Sequence[int]) -> int:
    """Return the index of the first call with the highest total."""
    return max(range(len(totals)), key=totals.__getitem__, default=0)


#: What a phase makes and leaves behind: backward its gradients, the optimizer its state.
_LEFT: dict[Phase, MemoryUse] = {"backward": "gradients", "optimizer": "optimizer"}


def _use(life: Lifetime, phase: Phase, end: int) -> MemoryUse:
    """Return the column of the lifetime of a result, by the phase of its call and the end of the phase."""
    survives = life.freed is None or life.freed > end
    return _LEFT.get(phase, "activations") if survives else "activations"


def _phase_ends(calls: Sequence[OpCall]) -> list[int]:
    """Return for each call the index after the last call of its unbroken stretch of one phase."""
    ends = [len(calls)] * len(calls)
    for index in range(len(calls) - 2, -1, -1):
        same = calls[index].phase == calls[index + 1].phase
        ends[index] = ends[index + 1] if same else index + 1
    return ends


_OP = "aten::_scaled_dot_product_attention_math_for_mps"

#: Attention.mm: the prefill kernels hand the output back in place of the weights.  The releases and the head sizes
#: are those of the kernels named in the wheels of 2.13 to 2.15; the conditions were read in the source after 2.13.
_SINCE = Version(2, 13)
_HEADS = frozenset({32, 64, 72, 80, 96, 128, 256})
_DTYPES = frozenset({"float32", "float16", "bfloat16"})
#: Up to so many queries, other kernels run, which do take memory for the weights.
_SHORT = 8


def never_written(trace: Trace, target: Target) -> frozenset[int]:
    """Return the storages of the attention weights that the kernel does not write."""
    calls = (call for call in trace.calls if call.op == _OP and len(call.outputs) == 2)
    weights = (call.outputs[1].storage for call in calls if _is_prefill(call))
    return frozenset(weights) if target.torch >= _SINCE else frozenset()


def _is_prefill(call: OpCall) -> bool:
    named = {spec.argument: spec for spec in call.inputs}
    query, value, mask = named["query"], named["value"], named.get("attn_mask")
    return (
        query.dtype in _DTYPES
        and query.shape[-1] in _HEADS
        and query.shape[-1] == value.shape[-1]
        and query.shape[-2] > _SHORT
        and value.shape[-2] > 0
        and (mask is None or mask.dtype in {"bool", query.dtype})
    )
