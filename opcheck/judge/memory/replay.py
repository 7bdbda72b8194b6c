"""Classify the memory of a run, replay the MPS allocator over it, and decide which Macs have enough memory for it.

The allocator's rules (rounding, heaps, reuse, garbage collection and the limit) are those of
aten/src/ATen/mps/MPSAllocator.h and MPSAllocator.mm, read in the headers of the wheels of 2.6 to 2.15.  Up to 2.13 a
freed buffer stays whole until it is released; from 2.14 on free ranges are split and joined.
Not modelled: buffers that a running command buffer still retains, and the separate pools for scalars.
"""

import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import NamedTuple

from opcheck.common.names import DTYPES
from opcheck.common.versions import Target, Version
from opcheck.common.vocabulary import MEMORY_USES, FitState, MemoryOrigin, MemoryUse, Phase, RouteKind
from opcheck.data.macs import MACS, WorkingSet, chips_by_memory
from opcheck.data.messages import invalid_buffer_size, out_of_memory
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


_ATTENTION = "aten::_scaled_dot_product_attention_math_for_mps"

#: Attention.mm: the prefill kernels hand the output back in place of the weights.  The releases and the head sizes
#: are those of the kernels named in the wheels of 2.13 to 2.15; the conditions were read in the source after 2.13.
_SINCE = Version(2, 13)
_HEADS = frozenset({32, 64, 72, 80, 96, 128, 256})
_DTYPES = frozenset({"float32", "float16", "bfloat16"})
#: Up to so many queries, other kernels run, which do take memory for the weights.
_SHORT = 8


def never_written(trace: Trace, target: Target) -> frozenset[int]:
    """Return the storages of the attention weights that the kernel does not write."""
    calls = (call for call in trace.calls if call.op == _ATTENTION and len(call.outputs) == 2)
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


# -- the allocator of a release --

MIB = 1 << 20
SMALL, LARGE_FROM = MIB, 10 * MIB
SMALL_HEAP, LARGE_HEAP, XLARGE_HEAP, ROUND_LARGE = 8 * MIB, 32 * MIB, 1024 * MIB, 2 * MIB
#: Metal's heapBufferSizeAndAlignWithLength on Apple GPUs, as out-of-memory texts show it.
ALIGNMENT = 256
#: MTLHeapTypePlacement: since this release the allocator places buffers itself.
_PLACES_BUFFERS = Version(2, 14)


class LimitExceededError(Exception):
    """The allocator raises: the limit would be exceeded although nothing is cached."""


class MetalHeap:
    """A Metal heap; ``buffers`` counts those in it.

    Up to 2.13 Metal places the buffers.  Which range it takes is not published: the lowest that is large enough is
    assumed.
    """

    __slots__ = ("blocks", "buffers", "free", "room", "total")

    def __init__(self, total: int) -> None:
        #: the largest buffer that it still takes, which is less than what is free where buffers lie between
        self.total = self.room = total
        self.buffers = 0
        #: until 2.13: its free ranges, as offset and size, by offset
        self.free = [(0, total)]
        #: from 2.14 on: its ranges by offset
        self.blocks: list[HeapBlock] = []

    def cut(self, size: int) -> int:
        """Return the offset of a new buffer, and take its range."""
        at = next(index for index, (_, room) in enumerate(self.free) if room >= size)
        offset, room = self.free[at]
        self.free[at : at + 1] = [(offset + size, room - size)] if room > size else []
        self._measure()
        return offset

    def give_back(self, offset: int, size: int) -> None:
        """Join the range of a released buffer with free neighbours."""
        at = bisect_left(self.free, (offset, 0))
        if at < len(self.free) and self.free[at][0] == offset + size:
            size += self.free.pop(at)[1]
        if at and sum(self.free[at - 1]) == offset:
            at -= 1
            offset, before = self.free.pop(at)
            size += before
        self.free.insert(at, (offset, size))
        self._measure()

    def _measure(self) -> None:
        self.room = max((size for _, size in self.free), default=0)


class HeapBlock:
    """A buffer, or from 2.14 on a free range of a heap."""

    __slots__ = ("age", "heap", "is_free", "offset", "size")

    def __init__(self, size: int, heap: MetalHeap, offset: int = 0) -> None:
        self.size, self.heap, self.offset = size, heap, offset
        self.is_free, self.age = False, 0


_size, _offset, _room = attrgetter("size"), attrgetter("offset"), attrgetter("room")


class BufferPool:
    """The heaps and the cached blocks of small (up to 1 MiB) or of large buffers; sorted by size."""

    def __init__(self, *, is_small: bool) -> None:
        self.is_small = is_small
        self.heaps: list[MetalHeap] = []
        self.cached: list[HeapBlock] = []
        self.available = 0

    def cache(self, block: HeapBlock) -> None:
        """Put a freed block among the cached ones."""
        block.is_free, block.age = True, 0
        insort(self.cached, block, key=_size)
        self.available += block.size

    def take(self, block: HeapBlock) -> None:
        """Take a cached block out."""
        at = bisect_left(self.cached, block.size, key=_size)
        while self.cached[at] is not block:
            at += 1
        del self.cached[at]
        block.is_free = False
        self.available -= block.size

    def find_cached(self, size: int) -> HeapBlock | None:
        """Return the smallest cached block of at least this size."""
        at = bisect_left(self.cached, size, key=_size)
        return self.cached[at] if at < len(self.cached) else None


class Allocator:
    """The state of the allocator.

    Args:
        torch: the release.
        limit: the bytes above which it raises; 0: none.
        low: at these bytes it collects cached buffers; 0: none.
    """

    def __init__(self, torch: Version, *, limit: int = 0, low: int = 0) -> None:
        self._places = torch >= _PLACES_BUFFERS
        self.limit, self._low = limit, low
        self._small, self._large = BufferPool(is_small=True), BufferPool(is_small=False)
        #: bytes of all heaps, which an error calls "MPS allocated"
        self.allocated = 0
        #: bytes of all buffers in use
        self.live = 0
        #: bytes of the process outside of the heaps, which an error calls "other allocations"
        self.other = 0

    @property
    def cached_bytes(self) -> int:
        """Return the bytes of freed buffers that are kept whole, which ends with 2.13."""
        return 0 if self._places else self._small.available + self._large.available

    def allocate(self, nbytes: int) -> HeapBlock:
        """Return a buffer.

        Raises:
            LimitExceededError: the limit would be exceeded.
        """
        size = max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
        pool = self._small if size <= SMALL else self._large
        block = self._attempt(pool, size)
        self.live += block.size
        return block

    def free(self, block: HeapBlock) -> None:
        """Return a buffer to its pool."""
        self.live -= block.size
        pool = self._small if block.heap.total == SMALL_HEAP else self._large
        pool.cache(self._join(pool, block) if self._places else block)

    def empty_cache(self) -> None:
        """Release what is cached, as ``torch.mps.empty_cache`` does."""
        for pool in (self._small, self._large):
            for block in [*pool.cached]:
                self._release(pool, block)

    def _attempt(self, pool: BufferPool, size: int) -> HeapBlock:
        """Follow alloc_buffer_block: a cached buffer, a new buffer, and again after each release of cached ones."""
        pressed = not pool.is_small and bool(self._low) and self.allocated + self.other >= self._low
        block = self._reuse(pool, size)
        if block is None and pressed and size < pool.available:
            self._collect(pool)
        block = block or self._new(pool, size, pressed=pressed)
        if block is None and self._release_for(pool, size):
            block = self._new(pool, size, pressed=pressed)
        if block is None:
            self.empty_cache()
            block = self._new(pool, size, pressed=pressed)
        if block is None:
            raise LimitExceededError
        return block

    def _exceeds(self, size: int) -> bool:
        return bool(self.limit) and self.allocated + self.other + size > self.limit

    def _reuse(self, pool: BufferPool, size: int) -> HeapBlock | None:
        """Follow get_free_buffer: the best cached buffer, unless it is much too large."""
        if self._exceeds(size):
            return None
        if not pool.is_small:
            for each in pool.cached if self._low else ():
                each.age += 1
        block = pool.find_cached(size)
        if block is None:
            return None
        if self._places:
            pool.take(block)
            return self._split(pool, block, size)
        if block.size <= size + LARGE_HEAP:
            pool.take(block)
            return block
        if not any(heap.room >= size for heap in pool.heaps):
            self._release(pool, block, keeps_heap=True)
        return None

    def _new(self, pool: BufferPool, size: int, *, pressed: bool) -> HeapBlock | None:
        """Follow alloc_buffer: from a heap with room, or from a new heap."""
        if self._exceeds(size):
            return None
        fitting = [] if self._places else [heap for heap in pool.heaps if heap.room >= size]
        heap = min(fitting, key=_room) if fitting else self._new_heap(pool, size, pressed=pressed)
        if self._places:
            block = HeapBlock(heap.total, heap)
            heap.blocks.append(block)
            return self._split(pool, block, size)
        heap.buffers += 1
        return HeapBlock(size, heap, heap.cut(size))

    def _new_heap(self, pool: BufferPool, size: int, *, pressed: bool) -> MetalHeap:
        if size <= SMALL:
            total = SMALL_HEAP
        elif size < LARGE_FROM:
            total = LARGE_HEAP
        elif size < XLARGE_HEAP // 2 and not pressed:
            total = XLARGE_HEAP
        else:
            total = -(-size // ROUND_LARGE) * ROUND_LARGE
        heap = MetalHeap(total)
        pool.heaps.append(heap)
        self.allocated += total
        return heap

    def _split(self, pool: BufferPool, block: HeapBlock, size: int) -> HeapBlock:
        """Cut a range to size, and cache the rest unless it is too small for any buffer of the pool."""
        rest = block.size - size
        heap = block.heap
        heap.buffers += 1
        if rest >= (ALIGNMENT if pool.is_small else SMALL):
            block.size = size
            right = HeapBlock(rest, heap, block.offset + size)
            heap.blocks.insert(bisect_left(heap.blocks, right.offset, key=_offset), right)
            pool.cache(right)
        return block

    def _join(self, pool: BufferPool, block: HeapBlock) -> HeapBlock:
        """Join a freed range with free neighbours."""
        heap = block.heap
        heap.buffers -= 1
        at = bisect_left(heap.blocks, block.offset, key=_offset)
        for neighbour in (at + 1, at - 1):
            if not 0 <= neighbour < len(heap.blocks) or not heap.blocks[neighbour].is_free:
                continue
            other = heap.blocks.pop(neighbour)
            pool.take(other)
            block.offset, block.size = min(block.offset, other.offset), block.size + other.size
        return block

    def _release(self, pool: BufferPool, block: HeapBlock, *, keeps_heap: bool = False) -> None:
        """Follow release_buffer; from 2.14 on a heap is released when all of it is free."""
        heap = block.heap
        if self._places and heap.buffers:
            return
        pool.take(block)
        if not self._places:
            heap.give_back(block.offset, block.size)
            heap.buffers -= 1
        if not heap.buffers and not keeps_heap:
            pool.heaps.remove(heap)
            self.allocated -= heap.total

    def _release_for(self, pool: BufferPool, size: int) -> bool:
        """Follow release_available_cached_buffers: a large enough buffer, or the largest until their sum is."""
        block = pool.find_cached(size)
        if block is not None:
            self._release(pool, block)
            return True
        released = 0
        for each in [*pool.cached][::-1]:
            if released >= size:
                break
            released += each.size
            self._release(pool, each)
        return released >= size

    def _collect(self, pool: BufferPool) -> None:
        """Follow garbage_collect_cached_buffers: release those of at least the average age, down to the low limit."""
        target = self.allocated + self.other - self._low
        oldest = sorted(pool.cached, key=lambda block: -block.age)
        average = sum(block.age for block in oldest) / max(len(oldest), 1)
        for block in oldest:
            if target <= 0 or block.age < average:
                break
            target -= block.size
            self._release(pool, block)


# -- the replay --

#: The moment before the first call, when the model is moved.
MOVE = -1


class Replayed(NamedTuple):
    """The end of a replay, with the figures at its highest moment or where it raises; in bytes."""

    allocated: int
    live: int
    other: int
    #: the call where it raises, or MOVE, and the size that is tried; None: it comes to its end
    raised: int | None = None
    tried: int = 0


class ReplayedRun(NamedTuple):
    """The memory of a run, and how it ends on each size of Mac."""

    pieces: Sequence[Taken]
    #: the bytes of each call outside of the allocator
    workspaces: Sequence[int]
    #: the bytes of each column during each call
    sums: Sequence[Mapping[MemoryUse, int]]
    #: its optimizer keeps state
    keeps_state: bool
    #: where nothing limits it
    unlimited: Replayed
    #: for each size of Mac
    fits: tuple[MacFit, ...]


def replay_run(trace: Trace, target: Target, ratios: Watermarks, routes: Sequence[RouteKind]) -> ReplayedRun:
    """Replay a run without a limit and on each size of Mac.

    Args:
        trace: what ran.
        target: the target, for its macOS, its kernels, its allocator and its texts.
        ratios: of the allocator.
        routes: what computes each call; without them no workspace is counted.
    """
    run = Allocations(trace, target, ratios, routes)
    state = sum(each.life.nbytes for each in run.pieces if each.kind == "optimizer" and each.life.freed is None)
    sums = [{**at, "optimizer": max(at["optimizer"], state)} for at in sweep(run.pieces, len(trace.calls))]
    most = max(sum(at.values()) + nbytes for at, nbytes in zip(sums, run.workspaces, strict=True))
    unlimited = run.replay()
    fits = tuple(run.fits(unlimited, most))
    return ReplayedRun(run.pieces, run.workspaces, sums, state > 0, unlimited, fits)


class Allocations:
    """The allocations of a run in their order.

    A training step whose optimizer keeps state is replayed twice: the first step allocates the state in memory that
    activations left, up to 2.13 in buffers that may be 32 MiB larger, and the second needs its activations besides.

    Args:
        trace: what ran.
        target: the target, for its macOS, its kernels, its allocator and its texts.
        ratios: of the allocator.
        routes: what computes each call; without them no workspace is counted.
    """

    def __init__(self, trace: Trace, target: Target, ratios: Watermarks, routes: Sequence[RouteKind]) -> None:
        unwritten = never_written(trace, target)
        #: the memory of the run
        self.pieces = [each for each in list_taken(trace) if each.life.storage not in unwritten]
        #: the bytes of each call outside of the allocator
        self.workspaces = [workspace(call, route) for call, route in zip(trace.calls, routes, strict=False)]
        self.workspaces += [0] * (len(trace.calls) - len(self.workspaces))
        #: the bytes of each tensor that a call has for itself
        self._temporaries = [temporaries(call) for call in trace.calls]
        self._ratios, self._target, self._calls = ratios, target, trace.calls
        self._new: dict[int, list[Taken]] = defaultdict(list)
        self._freed: dict[int, list[int]] = defaultdict(list)
        #: what outlives a step
        self._kept: set[int] = set()
        self._has_state = False
        self._largest = max((piece.life.nbytes for piece in self.pieces), default=0)
        for piece in self.pieces:
            life = piece.life
            stays = piece.kind == "optimizer" and life.freed is None
            self._new[MOVE if piece.moved else life.first].append(piece)
            self._has_state |= stays
            if stays or (piece.moved and life.freed is None):
                self._kept.add(life.storage)
            if life.freed is not None:
                self._freed[life.freed].append(life.storage)

    def replay(self, figures: WorkingSet | None = None) -> Replayed:
        """Return how the run ends on a Mac with these figures; without figures nothing limits it."""
        limit, low = (int(ratio * figures.nbytes) if figures else 0 for ratio in self._ratios)
        allocator = Allocator(self._target.torch, limit=limit, low=low)
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
        for index in range(MOVE, len(self.workspaces)):
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
                allocator.other = max(allocator.other, self.workspaces[index])
            highest = Replayed(*map(max, highest[:3], (allocator.allocated, allocator.live, allocator.other)))
            for storage, _ in temporary:
                allocator.free(blocks.pop(storage))
        return highest

    def fits(self, unlimited: Replayed, peak: int) -> Iterator[MacFit]:
        """Yield for each size of Mac whether the run fits, and the line where it raises.

        Args:
            unlimited: the replay without a limit.
            peak: bytes of the tensors and of the workspace of one call, at the highest.
        """
        chips = chips_by_memory()
        for mac in MACS.load().sized:
            figures = mac.on(self._target.macos)
            limit, low = (int(ratio * figures.nbytes) for ratio in self._ratios)
            # Below both, the replay without a limit applies.
            least = min(filter(None, (limit, low)), default=unlimited.allocated + unlimited.other + 1)
            is_free = unlimited.allocated + unlimited.other < least and self._largest < figures.buffer
            result = unlimited if is_free else self.replay(figures)
            raised = result.raised
            state: FitState = "fits" if peak <= figures.nbytes else "pressure"
            yield MacFit(
                memory=mac.memory,
                chips=tuple(chips[mac.memory]),
                working_set=figures.nbytes,
                limit=limit,
                basis=figures.basis,
                state=state if raised is None else "raises",
                allocated=result.allocated,
                other=result.other,
                prints="" if raised is None else _text(self._target, result, figures, limit),
                place=None if raised is None or raised == MOVE else self._calls[raised].place,
            )


def _text(target: Target, result: Replayed, figures: WorkingSet, limit: int) -> str:
    if result.tried >= figures.buffer:
        return invalid_buffer_size(result.tried, target.torch)
    sizes = {"allocated": result.allocated, "other": result.other, "allowed": limit, "tried": result.tried}
    return out_of_memory(target.torch, **sizes)


# -- Bound the memory that kernels take besides their results --
#
# Workspaces are MPSGraph's, which an error counts as "other allocations".  What MPSGraph takes is not published.  The
# bound for a convolution is its unfolded input, as a matrix product needs it; for attention by graph it is a copy of
# the scores in float32; for softmax a copy of its result (3.00 GB of other allocations where the scores have 3.00
# GiB: https://github.com/kght6123/examples-shieldgemma2); for random numbers the numbers in float32.  Reports of
# decoders at large sizes show that the workspaces of several calls exist at once (139.74 GiB:
# https://github.com/Comfy-Org/ComfyUI/issues/9308).
#
# Temporaries are PyTorch's, and come from its allocator.


_SAFE_SOFTMAX = "aten::_safe_softmax"
#: The routes whose kernels allocate outside of PyTorch's allocator.
_APPLE: frozenset[RouteKind] = frozenset({"graph", "mps", "either"})
_SOFTMAX = frozenset({"aten::_softmax", "aten::_log_softmax", _SAFE_SOFTMAX})
_RANDOM = ("aten::bernoulli", "aten::normal", "aten::uniform", "aten::random")


def workspace(call: OpCall, route: RouteKind) -> int:
    """Return an upper bound in bytes for the workspace of one call; 0: none is assumed."""
    if route not in _APPLE:
        return 0
    by_argument = {spec.argument: spec for spec in call.inputs}
    if call.op == _ATTENTION and {"query", "key"} <= by_argument.keys():
        query, key = by_argument["query"], by_argument["key"]
        return math.prod(query.shape[:-1]) * key.shape[-2] * DTYPES["float32"].itemsize
    elements = math.prod(call.outputs[0].shape) if call.outputs else 0
    if call.op in _SOFTMAX and route == "graph":
        return call.outputs[0].nbytes
    if call.op.startswith(_RANDOM):
        return elements * DTYPES["float32"].itemsize
    weight = by_argument.get("weight")
    if "convolution" not in call.op or weight is None or len(weight.shape) < 4:
        return 0
    image = by_argument.get("grad_output") or (call.outputs[0] if call.outputs else None)
    if image is None or math.prod(weight.shape[2:]) == 1:
        return 0
    columns = math.prod(weight.shape[1:]) * image.shape[0] * math.prod(image.shape[2:])
    return columns * DTYPES[weight.dtype].itemsize


def temporaries(call: OpCall) -> tuple[int, ...]:
    """Return the bytes of each tensor that the call allocates before its result and frees at its end.

    aten/src/ATen/native/transformers/attention.cpp, ``_safe_softmax``: the softmax, and where its input is -inf.
    """
    if call.op != _SAFE_SOFTMAX or not call.outputs:
        return ()
    result = call.outputs[0]
    return result.nbytes, math.prod(result.shape)
