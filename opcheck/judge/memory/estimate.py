"""Estimate the memory that a trace takes on MPS.

What is counted: parameters, buffers, inputs and the results of the recorded calls, from the call that makes one to
the moment when the program and autograd let go of it.  What is not: see NOTES.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from opcheck.common.text import any_layer, filesize
from opcheck.common.versions import Target
from opcheck.common.vocabulary import MEMORY_USES, PHASES, MemoryUse, Phase, RouteKind
from opcheck.data.macs import load_macs
from opcheck.judge.memory.advice import advice
from opcheck.judge.memory.allocations import Taken, highest, list_taken, never_written, sweep
from opcheck.judge.memory.kv_cache import caches
from opcheck.judge.memory.mac_fits import describe_watermarks, ratios_of
from opcheck.judge.memory.replay import MOVE, Allocations, fits
from opcheck.judge.memory.workspaces import concurrent, temporaries, workspace
from opcheck.model.records import (
    GroupLocation,
    Lifetime,
    MacFit,
    Memory,
    MemoryAllocation,
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
        "not observed on a Mac: the allocator of the release is replayed over the tensors "
        "(aten/src/ATen/mps/MPSAllocator.mm); workspaces of convolutions and attention are a "
        "bound; MPSGraph's constants and caches and the rest of the process are not counted"
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


def estimate(
    trace: Trace, target: Target, *, asked: int = 0, routes: Sequence[RouteKind] = ()
) -> Memory | None:
    """Return the estimate for a trace; None if the trace does not record how long tensors lived.

    Args:
        trace: what ran.
        target: the target, for its limits and texts.
        asked: the memory of the Mac that the user named, in GB; 0: none.
        routes: what computes each call; without them no workspace is counted.

    Raises:
        OpListError: macs.yaml or environment.yaml is damaged.
    """
    if not trace.lifetimes or not trace.calls:
        return None
    allocations, pieces, workspaces = _allocations(trace, target, routes)
    kept = (piece.life for piece in pieces if piece.kind == "optimizer")
    state = sum(life.nbytes for life in kept if life.freed is None)
    sums = [
        {**at, "optimizer": max(at["optimizer"], state)} for at in sweep(pieces, len(trace.calls))
    ]
    totals = [sum(at.values()) for at in sums]
    peak = highest(totals)
    unlimited = allocations.replay(target)
    weights = [piece.life.nbytes for piece in pieces if piece.kind in {"parameters", "buffers"}]
    most = max(map(sum, zip(totals, workspaces, strict=True)))
    macs = tuple(_with_place(trace, *each) for each in fits(target, allocations, unlimited, most))
    return Memory(
        peaks=(_measure_moved(pieces), *_peaks(trace, sums, totals)),
        holders=tuple(_holders(trace, pieces, peak)),
        macs=macs,
        allocation=MemoryAllocation(
            allocated=unlimited.allocated,
            live=unlimited.live,
            workspace=max(workspaces),
            workspaces=concurrent(trace.calls, workspaces),
            moved_weight=max(weights, default=0),
            checkpoint=sum(weights),
        ),
        cache=tuple(caches(trace.cache)),
        largest=max(piece.life.nbytes for piece in pieces),
        advice=tuple(advice(trace, pieces, peak, totals[peak])),
        notes=(
            *(() if trace.complete else (_BROKE_OFF,)),
            *NOTES,
            describe_watermarks(trace, target),
            *((_TRAINING,) if state else ()),
            *_convolution_notes(trace, workspaces, macs, asked),
        ),
        asked=asked,
    )


def exceeds(trace: Trace, target: Target, memory: int, routes: Sequence[RouteKind] = ()) -> bool:
    """Return whether a run raises on the Mac that a memory in GB means; quicker than ``estimate``.

    Args:
        trace: what ran.
        target: the target.
        memory: GB.
        routes: as for ``estimate``.
    """
    macs = load_macs()
    figures = next((m for m in reversed(macs) if m.memory <= memory), macs[0]).on(target.macos)
    return _allocations(trace, target, routes)[0].replay(target, figures).raised is not None


def _allocations(
    trace: Trace, target: Target, routes: Sequence[RouteKind]
) -> tuple[Allocations, list[Taken], list[int]]:
    """Return the allocations of a run, its pieces, and the workspace of each call."""
    unwritten = never_written(trace, target)
    pieces = [each for each in list_taken(trace) if each.life.storage not in unwritten]
    workspaces = [workspace(call, route) for call, route in zip(trace.calls, routes, strict=False)]
    workspaces += [0] * (len(trace.calls) - len(workspaces))
    temporary = [temporaries(call) for call in trace.calls]
    ratios = ratios_of(trace, target)
    return Allocations(pieces, workspaces, temporary, ratios), pieces, workspaces


def may_run_out(trace: Trace) -> bool:
    """Return whether the largest Mac could run out of memory: without an estimate, and never falsely False."""
    # A buffer is smaller than the limit on all of them together.
    least = min(figures.buffer for figures in load_macs()[-1].working_sets)
    return sum(life.nbytes for life in trace.lifetimes) >= least


def _convolution_notes(
    trace: Trace, workspaces: Sequence[int], macs: Sequence[MacFit], asked: int
) -> Iterator[str]:
    """Yield a note where the workspaces of convolutions could pass the limit of the Mac that decides."""
    of_convolutions = [
        nbytes if "convolution" in call.op else 0
        for call, nbytes in zip(trace.calls, workspaces, strict=True)
    ]
    bound = concurrent(trace.calls, of_convolutions)
    mac = next((mac for mac in reversed(macs) if mac.memory <= asked), macs[0 if asked else -1])
    if mac.state != "raises" and mac.limit and mac.allocated + bound > mac.limit:
        yield (
            f"convolutions could pass the limit of a Mac of {mac.memory} GB: their workspaces are at most "
            f"{filesize(bound)} if all between two waits exist at once, a bound; decoders of videos "
            "raised so (https://github.com/Comfy-Org/ComfyUI/issues/9308: 139.74 GiB, "
            "https://github.com/Comfy-Org/ComfyUI/issues/11584: 141.24 GiB); tile the VAE"
        )


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


def _with_place(trace: Trace, fit: MacFit, raised: int | None) -> MacFit:
    place = None if raised in {None, MOVE} else _place(trace.calls[raised or 0])
    return msgspec.structs.replace(fit, place=place)
