"""Classify the memory that a trace holds, and sum it up for each call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opcheck.common.vocabulary import MEMORY_USES, MemoryOrigin, MemoryUse
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
        return self.life.kind in _PLACED

    def during(self, call: int) -> bool:
        """Return whether the memory is allocated while that call runs."""
        return self.life.first <= call and (self.life.freed is None or self.life.freed > call)


def taken(trace: Trace) -> tuple[Taken, ...]:
    """Return the lifetimes of a trace with their columns."""
    return tuple(
        Taken(life, kind) for life, kind in zip(trace.lifetimes, _kinds(trace), strict=True)
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
    """Return the index of the first call at which the total is highest."""
    return max(range(len(totals)), key=totals.__getitem__, default=0)


def _kinds(trace: Trace) -> Iterator[MemoryUse]:
    """Yield the column of each lifetime.

    What backward makes and leaves behind are gradients, what the optimizer leaves behind is its state.
    """
    ends = _phase_ends(trace.calls)
    for life in trace.lifetimes:
        if life.kind in _PLACED:
            yield _PLACED[life.kind]
            continue
        phase = trace.calls[life.first].phase
        survives = life.freed is None or life.freed > ends[life.first]
        if phase == "backward" and survives:
            yield "gradients"
        elif phase == "optimizer" and survives:
            yield "optimizer"
        else:
            yield "activations"


def _phase_ends(calls: Sequence[OpCall]) -> list[int]:
    """Return for each call the index after the last call of its unbroken stretch of one phase."""
    ends = [len(calls)] * len(calls)
    for index in range(len(calls) - 2, -1, -1):
        same = calls[index].phase == calls[index + 1].phase
        ends[index] = ends[index + 1] if same else index + 1
    return ends
