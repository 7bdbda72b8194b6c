"""Cuts calls with many results to a few blocks of neighbours: whole threadgroups, drawn by a fixed seed."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from opcheck.kernels import values
from opcheck.kernels.host.bindings import FreeDims
from opcheck.kernels.host.host_call import HostCall

#: Results of a call of which more are computed only by blocks, the blocks, and the results of all blocks together.
WHOLE, _BLOCKS, _SAMPLED = 1 << 17, 4, 1 << 16
#: A part of a tensor: dimensions with the first place and the number of places.
SampleBlock = tuple[tuple[int, int, int], ...]


class Sampler:
    """Draws blocks; the same program draws the same ones."""

    def __init__(self) -> None:
        self._drawn = random.Random(values.SEED)  # noqa: S311 - not for secrets

    def draw(self, shape: Sequence[int], free: Sequence[int], reads: int = 0) -> list[SampleBlock]:
        """Return blocks of a result, or the whole where it is small.

        Args:
            shape: of the result.
            free: its dimensions whose places do not depend on each other, the outermost first.
            reads: elements of the largest operand: a reduction works more than its result shows.
        """
        total = math.prod(shape)
        work = max(total, reads)
        if work <= WHOLE or not free:
            return [()]
        most = max(1, _SAMPLED // _BLOCKS * total // work)
        return [self._block(shape, free, most) for _ in range(_BLOCKS)]

    def _block(self, shape: Sequence[int], free: Sequence[int], most: int) -> SampleBlock:
        block, left = [], math.prod(shape)
        for dim in free:
            inner = left // shape[dim]
            taken = min(max(1, most // inner), shape[dim])
            block.append((dim, self._drawn.randrange(shape[dim] - taken + 1), taken))
            left = inner * taken
            if taken > 1 or left <= most:
                break
        return tuple(block)


def cut(value: Any, block: SampleBlock, dims: int) -> Any:
    """Return the part of an operand that a block of a result with so many dimensions comes from; a view."""
    if not isinstance(value, Tensor):
        return value
    for dim, start, size in block:
        own = dim - (dims - value.dim())
        if own >= 0 and value.shape[own] > 1:
            value = value.narrow(own, start, size)
    return value


def part(call: HostCall, block: SampleBlock, free: FreeDims) -> HostCall:
    """Return the part of a call whose results are a block."""
    if not block:
        return call
    dims = call.outputs[0].dim()
    of_source = dict(zip(free.result, free.source, strict=False))
    moved = tuple((of_source.get(dim, dim), start, size) for dim, start, size in block)

    def cut_operand(name: str, value: Any) -> Any:
        if not free.operands:
            return cut(value, block, dims)
        return cut(value, moved, value.dim()) if name in free.operands else value

    return with_operands(call, block, {name: cut_operand(name, value) for name, value in call.arguments.items()})


def with_operands(call: HostCall, block: SampleBlock, arguments: Mapping[str, Any]) -> HostCall:
    """Return the part of a call whose results are a block, by arguments that are cut already."""
    whole = call.outputs[0]
    outputs = tuple(cut(output, block, whole.dim()) for output in call.outputs)
    return call._replace(arguments=arguments, outputs=outputs, elements=whole.numel())
