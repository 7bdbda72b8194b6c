"""Estimate the memory that a trace takes on MPS.

What is counted: parameters, buffers, inputs and the results of the recorded calls, from the call that makes one to
the moment when the program and autograd let go of it.  What is not: ``memory`` of judge/texts.yaml.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from opcheck.common.text import any_layer, filesize
from opcheck.common.versions import Target
from opcheck.common.vocabulary import MEMORY_USES, PHASES, MemoryUse, Phase, RouteKind
from opcheck.data.environment import HIGH, LOW, watermarks
from opcheck.data.macs import MACS, Mac
from opcheck.judge.memory.replay import Allocations, Taken, highest, replay_run
from opcheck.judge.texts import MEMORY
from opcheck.model import records
from opcheck.model.records import GroupLocation, MacFit, Memory, MemoryCache, MemoryPeak, OpCall, Trace

#: Lines that a report names at the peak.
_HOLDERS = 10

#: column, operator, location, module, phase
_Line = tuple[MemoryUse, str, records.SourceLocation | None, str, Phase]


def estimate(trace: Trace, target: Target, *, asked: int = 0, routes: Sequence[RouteKind] = ()) -> Memory | None:
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
    ratios = ratios_of(trace)
    run = replay_run(trace, target, ratios, routes)
    pieces, workspaces, unlimited = run.pieces, run.workspaces, run.unlimited
    totals = [sum(at.values()) for at in run.sums]
    peak = highest(totals)
    weights = [piece.life.nbytes for piece in pieces if piece.kind in {"parameters", "buffers"}]
    return Memory(
        peaks=(_measure_moved(pieces), *_peaks(trace, run.sums, totals)),
        holders=tuple(_holders(trace, pieces, peak)),
        macs=run.fits,
        allocation=records.MemoryAllocation(
            allocated=unlimited.allocated,
            live=unlimited.live,
            workspace=max(workspaces),
            workspaces=_bound_concurrent(trace.calls, workspaces),
            moved_weight=max(weights, default=0),
            checkpoint=sum(weights),
        ),
        cache=tuple(caches(trace.cache)),
        largest=max(piece.life.nbytes for piece in pieces),
        advice=tuple(advice(trace, pieces, peak, totals[peak])),
        notes=(
            *(() if trace.complete else (MEMORY["broke_off"],)),
            *(MEMORY[name] for name in ("replayed", "working_sets")),
            describe_watermarks(ratios, target, is_set=trace.watermarks is not None),
            *((MEMORY["training"],) if run.keeps_state else ()),
            *_convolution_notes(trace, workspaces, run.fits, asked),
        ),
        asked=asked,
    )


def exceeds(trace: Trace, target: Target, memory: int, routes: Sequence[RouteKind] = ()) -> bool:
    """Return whether a run raises on the Mac that a memory in GB means; quicker than ``estimate``.

    Args:
        trace: what ran.
        target: the target.
        memory: GB.
        routes: as for ``Allocations``.
    """
    figures = _find_mac(MACS.load().sized, memory).on(target.macos)
    return Allocations(trace, target, ratios_of(trace), routes).replay(figures).raised is not None


_AnyMac = TypeVar("_AnyMac", Mac, MacFit)


def _find_mac(macs: Sequence[_AnyMac], memory: int) -> _AnyMac:
    """Return the largest Mac with no more memory than that, in GB; the smallest where all have more."""
    return next((mac for mac in reversed(macs) if mac.memory <= memory), macs[0])


def may_run_out(trace: Trace) -> bool:
    """Return whether the largest Mac could run out of memory: without an estimate, and never falsely False."""
    # A buffer is smaller than the limit on all of them together.
    least = min(figures.buffer for figures in MACS.load().sized[-1].working_sets)
    return sum(life.nbytes for life in trace.lifetimes) >= least


def _convolution_notes(trace: Trace, workspaces: Sequence[int], macs: Sequence[MacFit], asked: int) -> Iterator[str]:
    """Yield a note where the workspaces of convolutions could pass the limit of the Mac that decides."""
    pairs = zip(trace.calls, workspaces, strict=True)
    bound = _bound_concurrent(trace.calls, [nbytes if "convolution" in call.op else 0 for call, nbytes in pairs])
    mac = _find_mac(macs, asked) if asked else macs[-1]
    if mac.state != "raises" and mac.limit and mac.allocated + bound > mac.limit:
        yield MEMORY["convolutions"].format(memory=mac.memory, bound=filesize(bound))


def _bound_concurrent(calls: Sequence[OpCall], workspaces: Sequence[int]) -> int:
    """Return the largest sum of workspaces between two waits of the CPU for the GPU."""
    largest = total = 0
    for call, nbytes in zip(calls, workspaces, strict=True):
        total = 0 if call.waits else total + nbytes
        largest = max(largest, total)
    return largest


def _measure_moved(pieces: Sequence[Taken]) -> MemoryPeak:
    held = dict.fromkeys(MEMORY_USES, 0)
    for piece in pieces:
        held[piece.kind] += piece.life.nbytes if piece.moved else 0
    return MemoryPeak(phase="move", total=sum(held.values()), held=held)


def _peaks(trace: Trace, sums: Sequence[Mapping[MemoryUse, int]], totals: Sequence[int]) -> Iterator[MemoryPeak]:
    for phase in PHASES[1:]:
        calls = [index for index, call in enumerate(trace.calls) if call.phase == phase]
        if calls:
            at = max(calls, key=totals.__getitem__)
            call = trace.calls[at]
            yield MemoryPeak(phase=phase, total=totals[at], held=dict(sums[at]), op=call.op, place=call.place)


def _holders(trace: Trace, pieces: Sequence[Taken], peak: int) -> Iterator[records.MemoryHolder]:
    """Yield the lines with the most memory at the peak; layers of a model that share a line are one entry."""
    lives_by_line: dict[_Line, list[records.Lifetime]] = defaultdict(list)
    for piece in pieces:
        if piece.during(peak):
            lives_by_line[_line(trace, piece)].append(piece.life)
    totals = {line: sum(life.nbytes for life in lives) for line, lives in lives_by_line.items()}
    for line in sorted(totals, key=lambda each: -totals[each])[:_HOLDERS]:
        (kind, op, location, module, phase), lives = line, lives_by_line[line]
        place = GroupLocation.at(location, module=module, phase=phase)
        yield records.MemoryHolder(nbytes=totals[line], tensors=len(lives), kind=kind, op=op, place=place)


def _line(trace: Trace, piece: Taken) -> _Line:
    if piece.moved:
        return (piece.kind, "", None, "", "move")
    call = trace.calls[piece.life.first]
    return (piece.kind, call.op, call.location, any_layer(call.module), call.phase)


# -- Suggest what lowers the peak memory of a run --


def advice(trace: Trace, pieces: Sequence[Taken], peak: int, total: int) -> Iterator[str]:
    """Yield what lowers the peak; each suggestion saves at least a tenth of it.

    Args:
        trace: what ran.
        pieces: its memory.
        peak: index of the call where it is highest.
        total: bytes that are there then.
    """
    worth = total // 10
    there = [piece for piece in pieces if piece.during(peak)]
    activations = [piece.life for piece in there if piece.kind == "activations"]
    grows = sum(life.nbytes for life in activations)
    in_step = trace.calls[peak].phase == "optimizer"
    if in_step and grows > worth:
        yield f"{filesize(grows)} are temporaries of the optimizer's step"
    batch = _batch(trace.inputs)
    if not in_step and batch > 1 and grows // 2 > worth:
        saved = filesize(grows - grows * (batch // 2) // batch)
        yield MEMORY["batch"].format(half=batch // 2, batch=batch, saved=saved)
    single = {spec.storage for call in trace.calls for spec in call.outputs if spec.dtype == "float32"}
    wide = sum(life.nbytes for life in activations if life.storage in single)
    if trace.mode == "train":
        if not in_step and not trace.autocast and wide // 2 > worth:
            yield f"--autocast bfloat16: up to {filesize(wide // 2)} less of activations"
        yield from _checkpointing(trace, pieces, worth)
        return
    if trace.parameters and trace.parameter_bytes == 4 * trace.parameters:
        wide += sum(piece.life.nbytes for piece in there if piece.kind == "parameters")
        if wide // 2 > worth:
            yield f"--dtype float16: about {filesize(wide // 2)} less"
    yield from _held_for_nothing(trace, there, peak, worth)


def _batch(inputs: Sequence[str]) -> int:
    """Return the first dimension if all inputs share it (``x=8x3x224x224:float32``), else 0."""
    firsts = {text.rpartition("=")[2].partition(":")[0].partition("x")[0] for text in inputs}
    first = firsts.pop() if len(firsts) == 1 else ""
    return int(first) if first.isdigit() else 0


def _checkpointing(trace: Trace, pieces: Sequence[Taken], worth: int) -> Iterator[str]:
    """Suggest checkpointing where the forward pass keeps much for the backward pass."""
    first = next((i for i, call in enumerate(trace.calls) if call.phase == "backward"), None)
    if first is None:
        return
    activations = (piece for piece in pieces if piece.kind == "activations")
    kept = sum(piece.life.nbytes for piece in activations if piece.during(first))
    if kept > worth:
        yield MEMORY["checkpoint"].format(kept=filesize(kept))


def _held_for_nothing(trace: Trace, there: Sequence[Taken], peak: int, worth: int) -> Iterator[str]:
    """Report memory that stays allocated at the peak although no later call reads it."""
    calls = enumerate(trace.calls)
    last = {spec.storage: index for index, call in calls for spec in (*call.inputs, *call.outputs)}
    lives = (piece.life for piece in there if piece.kind == "activations")
    idle = sum(life.nbytes for life in lives if last.get(life.storage, peak) < peak)
    if idle > worth:
        yield MEMORY["idle"].format(idle=filesize(idle))


# -- Compute the memory of the key and value cache by the length of the context, for each cache of transformers --


_CONTEXTS = tuple(1024 << power for power in range(0, 11, 2))
#: transformers, QuantizedCache by default: 4 bits, a scale and a zero point in half precision for 64 numbers, and
#: the last 128 tokens as they are.
_BITS, _GROUP, _RESIDUAL = 4, 64, 128


def caches(shape: records.CacheShape | None) -> Iterator[MemoryCache]:
    """Yield the bytes of each kind of cache for usual contexts, up to the longest that the model takes."""
    if shape is None:
        return
    contexts = [each for each in _CONTEXTS if not shape.longest or each <= shape.longest]
    for context in contexts or [shape.longest]:
        yield cache(shape, context)


def cache(shape: records.CacheShape, context: int) -> MemoryCache:
    """Return the bytes that each kind of cache takes for a context of so many tokens."""
    token = 2 * shape.heads * shape.size * shape.itemsize
    full = shape.layers - shape.sliding
    kept = min(context, shape.window) if shape.window else context
    exact = min(context, _RESIDUAL)
    quantized = 2 * shape.heads * shape.size * (_BITS / 8 + 4 / _GROUP)
    dynamic = token * (full * context + shape.sliding * kept)
    return MemoryCache(
        context=context,
        dynamic=dynamic,
        # DynamicLayer.update concatenates: one layer's tensor exists twice for a moment.
        growing=dynamic + token // 2 * (context if full else kept),
        static=dynamic,
        full=token * shape.layers * context,
        quantized=int(shape.layers * (quantized * (context - exact) + token * exact)),
    )


# -- Decide which Macs have enough memory for a run, by Metal's working sets and the watermarks of the release --


def ratios_of(trace: Trace) -> records.Watermarks:
    """Return the ratios of a run: those that it was captured with, else the defaults."""
    return trace.watermarks or watermarks({})


def describe_watermarks(ratios: records.Watermarks, target: Target, *, is_set: bool) -> str:
    """Describe in words how the allocator limits the working set; ``is_set``: the run's environment set the ratios."""
    origin = f"as {HIGH} and {LOW} are set," if is_set else "by default"
    back = MEMORY["gives_back"].format(low=ratios.low) if ratios.low else "keeps cached memory"
    limit = f"raises above {ratios.high:g} times" if ratios.high else "sets no limit"
    names = "" if is_set else f" ({LOW}, {HIGH})"
    return f"{origin} torch {target.torch} {back}, and {limit}{names}"


def smallest(memory: Memory, *states: str) -> MacFit | None:
    """Return the smallest Mac in any of these states."""
    return next((mac for mac in memory.macs if mac.state in states), None)


def deciding(memory: Memory) -> MacFit | None:
    """Return the Mac that decides about a run: the Mac that the user named, else the largest if none is enough.

    None: nothing is known of Macs, or no Mac was named, and some Mac is enough.
    """
    if memory.macs and not memory.asked and smallest(memory, "fits", "pressure") is None:
        return memory.macs[-1]
    return find_asked_mac(memory)


def runs_out(memory: Memory | None) -> bool:
    """Return whether the run raises on the Mac that decides."""
    mac = deciding(memory) if memory else None
    return mac is not None and mac.state == "raises"


def find_asked_mac(memory: Memory) -> MacFit | None:
    """Return the Mac that the user named: the largest known Mac with no more memory than that."""
    return _find_mac(memory.macs, memory.asked) if memory.asked and memory.macs else None
