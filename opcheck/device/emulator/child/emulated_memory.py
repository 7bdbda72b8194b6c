"""The allocator of the emulated Mac: figures of ``torch.mps``, its limit, and what buffers of many sizes cost."""

import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from opcheck.common.versions import Version
from opcheck.data.messages import out_of_memory
from opcheck.data.watermarks import find_invalid, watermarks
from opcheck.judge.memory.allocator import LARGE_HEAP, Allocator, HeapBlock, LimitExceededError
from opcheck.judge.memory.growth import VARIES, growth_of_results
from opcheck.model.records import MemoryGrowth
from opcheck.simulator.visible.machine import WORKING_SET
from opcheck.simulator.visible.surface import MacMemory


class EmulatedMemory(MacMemory):
    """Replays the allocator over the program's tensors; it reads the environment when it starts, as the Mac's does.

    Args:
        torch: the release.
    """

    def __init__(self, torch: Version) -> None:
        self.torch = torch
        self._allocator: Allocator | None = None
        self._most_live = self._most_held = 0
        #: operator and line -> the sizes of its results
        self._sizes: dict[tuple[str, Hashable], set[int]] = defaultdict(set)

    def allocate(self, nbytes: int, op: str, line: Hashable) -> HeapBlock | None:
        """Return the buffer of a result; None: it needs none.

        Raises:
            RuntimeError: as on the Mac: a watermark is invalid, or the limit is exceeded.
        """
        if not nbytes:
            return None
        allocator = self._start()
        try:
            block = allocator.allocate(nbytes)
        except LimitExceededError:
            text = out_of_memory(
                self.torch,
                allocated=allocator.allocated,
                other=allocator.other,
                allowed=allocator.limit,
                tried=nbytes,
            )
            raise RuntimeError(text) from None
        self._sizes[op, line].add(nbytes)
        self._most_live = max(self._most_live, allocator.live)
        self._most_held = max(self._most_held, allocator.live + allocator.cached_bytes)
        return block

    def free(self, block: HeapBlock) -> None:
        """Take a buffer back."""
        self._start().free(block)

    def current(self) -> int:
        """Return the bytes of live buffers."""
        return self._start().live

    def driver(self) -> int:
        """Return the bytes of the heaps."""
        return self._start().allocated

    def empty_cache(self) -> None:
        """Release what is cached."""
        self._start().empty_cache()

    def set_fraction(self, fraction: float) -> None:
        """Set the high watermark; the low one stays."""
        super().set_fraction(fraction)
        self._start().limit = int(fraction * WORKING_SET)

    def growth(self, locate: Callable[[Any], object]) -> Iterator[MemoryGrowth]:
        """Yield the line with most sizes, if freed buffers take as much memory as the program needs.

        Args:
            locate: returns the place of a line.
        """
        extra = self._most_held - self._most_live
        most = max(self._sizes, key=lambda each: len(self._sizes[each]), default=None)
        if (
            most is None
            or len(self._sizes[most]) < VARIES
            or extra < max(self._most_live, LARGE_HEAP)
        ):
            return
        op, line = most
        sizes = len(self._sizes[most])
        yield growth_of_results("buffers", str(locate(line) or ""), op, extra / sizes, sizes)

    def _start(self) -> Allocator:
        """Return the allocator, which the first use starts.

        Raises:
            RuntimeError: a watermark is invalid.
        """
        if self._allocator is None:
            ratios = watermarks(os.environ, self.torch)
            invalid = find_invalid(ratios)
            if invalid is not None:
                raise RuntimeError(invalid.prints)
            high, low = (int(ratio * WORKING_SET) for ratio in ratios)
            self._allocator = Allocator(self.torch, limit=high, low=low)
        return self._allocator
