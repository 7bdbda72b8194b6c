"""Replay the allocations of a run, and decide which Macs have enough memory for it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from opcheck.common.versions import Target
from opcheck.common.vocabulary import FitState
from opcheck.data.macs import WorkingSet, chips_by_memory, load_macs
from opcheck.data.messages import invalid_buffer_size, out_of_memory
from opcheck.judge.memory.allocations import Taken
from opcheck.judge.memory.allocator import Allocator, HeapBlock, LimitExceededError
from opcheck.model.records import MacFit, Watermarks

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
        self._workspaces = workspaces
        self._temporaries = temporaries
        #: what outlives a step
        self._kept: set[int] = set()
        self._has_state = False
        self.largest = max((piece.life.nbytes for piece in pieces), default=0)
        for piece in pieces:
            life = piece.life
            stays = piece.kind == "optimizer" and life.freed is None
            self._new[MOVE if piece.moved else life.first].append(piece)
            self._has_state |= stays
            if piece.moved or stays:
                self._kept.add(life.storage)
            if life.freed is not None:
                self._freed[life.freed].append(life.storage)

    def replay(self, target: Target, figures: WorkingSet | None = None) -> Replayed:
        """Return how the run ends on a Mac with these figures; without figures nothing limits it."""
        allocator = Allocator(target.torch)
        if figures is not None:
            high, low = (int(ratio * figures.nbytes) for ratio in self.ratios)
            allocator = Allocator(target.torch, limit=high, low=low)
        blocks: dict[int, HeapBlock] = {}
        result = self._step(allocator, blocks, figures)
        if self._has_state and result.raised is None:
            for storage in [each for each in blocks if each not in self._kept]:
                allocator.free(blocks.pop(storage))
            second = self._step(allocator, blocks, figures, kept=self._kept)
            highest = map(max, result[:3], second[:3])
            result = second if second.raised is not None else Replayed(*highest)
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
            temporary = [(~at, size) for at, size in enumerate(self._temporary(index))]
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
            highest = Replayed(
                *map(max, highest[:3], (allocator.allocated, allocator.live, allocator.other))
            )
            for storage, _ in temporary:
                allocator.free(blocks.pop(storage))
        return highest

    def _temporary(self, index: int) -> tuple[int, ...]:
        return self._temporaries[index] if index >= 0 else ()


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
    for mac in load_macs():
        figures = mac.on(target.macos)
        limit, low = (int(ratio * figures.nbytes) for ratio in allocations.ratios)
        # Below both, the replay without a limit applies.
        least = min(filter(None, (limit, low)), default=unlimited.allocated + unlimited.other + 1)
        is_free = (
            unlimited.allocated + unlimited.other < least and allocations.largest < figures.buffer
        )
        result = unlimited if is_free else allocations.replay(target, figures)
        state: FitState = "fits" if peak <= figures.nbytes else "pressure"
        text = ""
        if result.raised is not None:
            state, text = "raises", _text(target, result, figures, limit)
        yield (
            MacFit(
                memory=mac.memory,
                chips=tuple(chips[mac.memory]),
                working_set=figures.nbytes,
                limit=limit,
                basis=figures.basis,
                state=state,
                allocated=result.allocated,
                other=result.other,
                prints=text,
            ),
            result.raised,
        )


def _text(target: Target, result: Replayed, figures: WorkingSet, limit: int) -> str:
    if result.tried >= figures.buffer:
        return invalid_buffer_size(result.tried, target.torch)
    return out_of_memory(
        target.torch,
        allocated=result.allocated,
        other=result.other,
        allowed=limit,
        tried=result.tried,
    )
