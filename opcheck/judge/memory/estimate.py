"""Estimate the memory that a trace takes on MPS.

What is counted: parameters, buffers, inputs and the results of the recorded calls, from the call that makes one to
the moment when the program and autograd let go of it.  What is not: see NOTES.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from opcheck.common.text import any_layer
from opcheck.common.versions import Target
from opcheck.common.vocabulary import MEMORY_USES, PHASES, MemoryUse, Phase
from opcheck.data.macs import load_macs
from opcheck.judge.memory.advice import advice
from opcheck.judge.memory.allocations import Taken, highest, list_taken, never_written, sweep
from opcheck.judge.memory.mac_fits import MemoryMoment, fits, watermarks
from opcheck.model.records import (
    GroupLocation,
    Lifetime,
    MacFit,
    Memory,
    MemoryHolder,
    MemoryPeak,
    OpCall,
    SourceLocation,
    Trace,
)

#: Lines that a report names at the peak.
_HOLDERS = 10

NOTES = (
    (
        "not observed on a Mac, and not counted: workspaces of kernels, MPSGraph's constants and caches, the rest of "
        "the process, and what the allocator takes beyond the tensors: it cuts them from heaps of 8 MiB, 32 MiB or "
        "1 GiB and keeps what is freed (aten/src/ATen/mps/MPSAllocator.h)"
    ),
    "the working sets of Macs are reported ones or estimates (op_lists/macs.yaml)",
)
_TRAINING = (
    "the optimizer's state is counted as from the second step on; gradients as freed before the "
    "next forward pass"
)

_BROKE_OFF = "the run broke off: what follows may take more"

#: column, operator, location, module, phase
_Line = tuple[MemoryUse, str, SourceLocation | None, str, Phase]


def estimate(trace: Trace, target: Target, *, asked: int = 0) -> Memory | None:
    """Return the estimate for a trace; None if the trace does not record how long tensors lived.

    Args:
        trace: what ran.
        target: the target, for its watermarks and texts.
        asked: the memory of the Mac that the user named, in GB; 0: none.

    Raises:
        OpListError: macs.yaml or environment.yaml is damaged.
    """
    if not trace.lifetimes or not trace.calls:
        return None
    unwritten = never_written(trace, target)
    pieces = [
        allocation for allocation in list_taken(trace) if allocation.life.storage not in unwritten
    ]
    kept = (piece.life for piece in pieces if piece.kind == "optimizer")
    state = sum(life.nbytes for life in kept if life.freed is None)
    sums = [
        {**at, "optimizer": max(at["optimizer"], state)} for at in sweep(pieces, len(trace.calls))
    ]
    totals = [sum(at.values()) for at in sums]
    peak = highest(totals)
    return Memory(
        peaks=(_measure_moved(pieces), *_peaks(trace, sums, totals)),
        holders=tuple(_holders(trace, pieces, peak)),
        macs=tuple(_macs(trace, target, pieces, totals)),
        largest=max(piece.life.nbytes for piece in pieces),
        advice=tuple(advice(trace, pieces, peak, totals[peak])),
        notes=(
            *(() if trace.complete else (_BROKE_OFF,)),
            *NOTES,
            watermarks(target),
            *((_TRAINING,) if state else ()),
        ),
        asked=asked,
    )


def may_run_out(trace: Trace) -> bool:
    """Return whether the largest Mac could run out of memory: without an estimate, and never falsely False."""
    # A buffer is smaller than the limit on all of them together.
    least = min(figures.buffer for figures in load_macs()[-1].working_sets)
    return sum(life.nbytes for life in trace.lifetimes) >= least


def _measure_moved(pieces: Sequence[Taken]) -> MemoryPeak:
    held = dict.fromkeys(MEMORY_USES, 0)
    for piece in pieces:
        held[piece.kind] += piece.life.nbytes if piece.moved else 0
    return MemoryPeak(phase="move", total=sum(held.values()), held=held)


def _peaks(
    trace: Trace, sums: Sequence[Mapping[MemoryUse, int]], totals: Sequence[int]
) -> Iterator[MemoryPeak]:
    for phase in PHASES[1:]:
        calls = [index for index, call in enumerate(trace.calls) if call.phase == phase]
        if calls:
            at = max(calls, key=totals.__getitem__)
            call = trace.calls[at]
            yield MemoryPeak(
                phase=phase, total=totals[at], held=dict(sums[at]), op=call.op, place=_place(call)
            )


def _place(call: OpCall) -> GroupLocation:
    return GroupLocation.at(call.location, module=call.module, count=1, phase=call.phase)


def _holders(trace: Trace, pieces: Sequence[Taken], peak: int) -> Iterator[MemoryHolder]:
    """Yield the lines with the most memory at the peak; layers of a model that share a line are one entry."""
    lives_by_line: dict[_Line, list[Lifetime]] = defaultdict(list)
    for piece in pieces:
        if piece.during(peak):
            lives_by_line[_line(trace, piece)].append(piece.life)
    totals = {line: sum(life.nbytes for life in lives) for line, lives in lives_by_line.items()}
    for line in sorted(totals, key=lambda each: -totals[each])[:_HOLDERS]:
        (kind, op, location, module, phase), lives = line, lives_by_line[line]
        yield MemoryHolder(
            nbytes=totals[line],
            tensors=len(lives),
            kind=kind,
            op=op,
            place=GroupLocation.at(location, module=module, count=1, phase=phase),
        )


def _line(trace: Trace, piece: Taken) -> _Line:
    if piece.moved:
        return (piece.kind, "", None, "", "move")
    call = trace.calls[piece.life.first]
    return (piece.kind, call.op, call.location, any_layer(call.module), call.phase)


def _macs(
    trace: Trace, target: Target, pieces: Sequence[Taken], totals: Sequence[int]
) -> Iterator[MacFit]:
    """Yield for each Mac whether the run fits, and where it does not; the first moment is that of the move."""
    new = [0] * (len(totals) + 1)
    for piece in pieces:
        at = 0 if piece.moved else piece.life.first + 1
        new[at] = max(new[at], piece.life.nbytes)
    moved = sum(piece.life.nbytes for piece in pieces if piece.moved)
    moments = [MemoryMoment(*both) for both in zip((moved, *totals), new, strict=True)]
    for fit, broken in fits(target, moments):
        place = _place(trace.calls[broken - 1]) if broken else None
        yield msgspec.structs.replace(fit, place=place)
