"""Classify the memory of a run, replay its allocations, and decide which Macs have enough memory for it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from opcheck.common.versions import Target, Version
from opcheck.common.vocabulary import MEMORY_USES, FitState, MemoryOrigin, MemoryUse, Phase
from opcheck.data.macs import MACS, WorkingSet, chips_by_memory
from opcheck.data.messages import invalid_buffer_size, out_of_memory
from opcheck.judge.memory.allocator import Allocator, HeapBlock, LimitExceededError
from opcheck.model.records import Lifetime, MacFit, OpCall, Trace, Watermarks

_PLACED: dict[MemoryOrigin, MemoryUse] = {"parameter": "parameters", "buffer": "buffers", "input": "inputs"}


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

    def use(life: Lifetime) -> MemoryUse:
        if life.kind in _PLACED:
            return _PLACED[life.kind]
        survives = life.freed is None or life.freed > ends[life.first]
        return _LEFT.get(trace.calls[life.first].phase, "activations") if survives else "activations"

    return tuple(Taken(life, use(life)) for life in trace.lifetimes)


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


# -- the replay --

#: The moment before the first call, when the model is moved.
MOVE = -1


class Replayed(NamedTuple):
    """The end of a replay, with the figures at its highest moment or where it raises; in bytes."""

    allocated: int
    live: int
    other: int
    #: the call where it raises, and the size that is tried; None: it comes to its end
    raised: int | None = None
    tried: int = 0


class Allocations:
    """The allocations of a run in their order.

    A training step whose optimizer keeps state is replayed twice: the first step allocates the state in memory that
    activations left, up to 2.13 in buffers that may be 32 MiB larger, and the second needs its activations besides.

    Args:
        pieces: the memory of the run.
        workspaces: the bytes of each call outside of the allocator.
        temporaries: the bytes of each tensor that a call has for itself.
        ratios: of the allocator.
    """

    def __init__(
        self,
        pieces: Sequence[Taken],
        workspaces: Sequence[int],
        temporaries: Sequence[tuple[int, ...]],
        ratios: Watermarks,
    ) -> None:
        self.ratios = ratios
        self._new: dict[int, list[Taken]] = defaultdict(list)
        self._freed: dict[int, list[int]] = defaultdict(list)
        self._workspaces, self._temporaries = workspaces, temporaries
        #: what outlives a step
        self._kept: set[int] = set()
        self._has_state = False
        self.largest = max((piece.life.nbytes for piece in pieces), default=0)
        for piece in pieces:
            life = piece.life
            stays = piece.kind == "optimizer" and life.freed is None
            self._new[MOVE if piece.moved else life.first].append(piece)
            self._has_state |= stays
            if stays or (piece.moved and life.freed is None):
                self._kept.add(life.storage)
            if life.freed is not None:
                self._freed[life.freed].append(life.storage)

    def replay(self, target: Target, figures: WorkingSet | None = None) -> Replayed:
        """Return how the run ends on a Mac with these figures; without figures nothing limits it."""
        limit, low = (int(ratio * figures.nbytes) if figures else 0 for ratio in self.ratios)
        allocator = Allocator(target.torch, limit=limit, low=low)
        blocks: dict[int, HeapBlock] = {}
        result = self._step(allocator, blocks, figures)
        if self._has_state and result.raised is None:
            for storage in [each for each in blocks if each not in self._kept]:
                allocator.free(blocks.pop(storage))
            second = self._step(allocator, blocks, figures, kept=self._kept)
            result = second if second.raised is not None else Replayed(*map(max, result[:3], second[:3]))
        return result

    def _step(
        self,
        allocator: Allocator,
        blocks: dict[int, HeapBlock],
        figures: WorkingSet | None,
        *,
        kept: AbstractSet[int] = frozenset(),
    ) -> Replayed:
        """Replay the run once; ``kept`` exists from a step before."""
        highest = Replayed(0, 0, 0)
        for index in range(MOVE, len(self._workspaces)):
            for storage in self._freed.get(index, ()):
                if storage in blocks:
                    allocator.free(blocks.pop(storage))
            temporary = [(~at, size) for at, size in enumerate(self._temporaries[index] if index >= 0 else ())]
            lives = (piece.life for piece in self._new.get(index, ()))
            results = [(life.storage, life.nbytes) for life in lives if life.storage not in kept]
            for storage, size in temporary + results:
                # MPSAllocator.mm, alloc_buffer_block: it compares the size of the one buffer first.
                is_too_large = figures is not None and size >= figures.buffer
                try:
                    if not is_too_large:
                        blocks[storage] = allocator.allocate(size)
                        continue
                except LimitExceededError:
                    pass
                return Replayed(allocator.allocated, allocator.live, allocator.other, index, size)
            # A call allocates its results before its kernel runs, and Metal keeps a workspace for later kernels: "an
            # internal cache of preallocated reusable memory"
            # (https://developer.apple.com/documentation/metalperformanceshaders/mpstemporaryimage).
            if index >= 0:
                allocator.other = max(allocator.other, self._workspaces[index])
            highest = Replayed(*map(max, highest[:3], (allocator.allocated, allocator.live, allocator.other)))
            for storage, _ in temporary:
                allocator.free(blocks.pop(storage))
        return highest


def fits(
    target: Target, allocations: Allocations, unlimited: Replayed, peak: int
) -> Iterator[tuple[MacFit, int | None]]:
    """Yield for each size of Mac whether the run fits, and the call where it raises; MOVE is the move before it.

    Args:
        target: the target, for its macOS and texts.
        allocations: of the run.
        unlimited: their replay without a limit.
        peak: bytes of the tensors and of the workspace of one call, at the highest.
    """
    chips = chips_by_memory()
    for mac in MACS.load().sized:
        figures = mac.on(target.macos)
        limit, low = (int(ratio * figures.nbytes) for ratio in allocations.ratios)
        # Below both, the replay without a limit applies.
        least = min(filter(None, (limit, low)), default=unlimited.allocated + unlimited.other + 1)
        is_free = unlimited.allocated + unlimited.other < least and allocations.largest < figures.buffer
        result = unlimited if is_free else allocations.replay(target, figures)
        state: FitState = "fits" if peak <= figures.nbytes else "pressure"
        fit = MacFit(
            memory=mac.memory,
            chips=tuple(chips[mac.memory]),
            working_set=figures.nbytes,
            limit=limit,
            basis=figures.basis,
            state=state if result.raised is None else "raises",
            allocated=result.allocated,
            other=result.other,
            prints="" if result.raised is None else _text(target, result, figures, limit),
        )
        yield fit, result.raised


def _text(target: Target, result: Replayed, figures: WorkingSet, limit: int) -> str:
    if result.tried >= figures.buffer:
        return invalid_buffer_size(result.tried, target.torch)
    sizes = {"allocated": result.allocated, "other": result.other, "allowed": limit, "tried": result.tried}
    return out_of_memory(target.torch, **sizes)
