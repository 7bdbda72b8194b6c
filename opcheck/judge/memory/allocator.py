"""Replay the MPS allocator over the allocations of a run: rounding, heaps, reuse, garbage collection and the limit.

The rules are those of aten/src/ATen/mps/MPSAllocator.h and MPSAllocator.mm, read in the headers of the wheels of 2.6 to
2.15.  Up to 2.13 a freed buffer stays whole until it is released; from 2.14 on free ranges are split and joined.
Not modelled: buffers that a running command buffer still retains, and the separate pools for scalars.
"""

from bisect import bisect_left, insort
from operator import attrgetter

from opcheck.common.versions import Version

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
