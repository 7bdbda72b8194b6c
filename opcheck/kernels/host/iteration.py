"""How TensorIterator walks through the operands of a call (aten/src/ATen/TensorIterator.cpp)."""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Iteration(NamedTuple):
    """The extents of the merged dimensions, the innermost first, and the strides of each tensor in elements."""

    sizes: tuple[int, ...]
    #: of the result, then of each operand
    strides: tuple[tuple[int, ...], ...]

    @property
    def is_contiguous(self) -> bool:
        """True if one dimension is left, and each tensor has all of it in a row."""
        return math.prod(self.sizes) == 1 or all(strides == (1,) for strides in self.strides)

    @property
    def has_contiguous_rows(self) -> bool:
        """True if the innermost elements of each tensor are in a row (OperationUtils.mm, isInnerContiguous)."""
        return all(strides[0] == 1 for strides in self.strides)


def iterate(tensors: Sequence[Tensor]) -> Iteration:
    """Return how the tensors are walked through; the first is the result, the others are broadcast to it."""
    shape = tuple(tensors[0].shape)
    return _merge_dims(shape, tuple(_strides(tensor, shape) for tensor in tensors))


def walk(tensors: Sequence[Tensor]) -> Iteration:
    """Return the tensors' own dimensions, the innermost first, without merging any."""
    sizes = tuple(reversed(tensors[0].shape)) or (1,)
    return Iteration(sizes, tuple(tuple(reversed(tensor.stride())) or (1,) for tensor in tensors))


def _strides(tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    lacking = len(shape) - tensor.dim()
    own = zip(tensor.shape, tensor.stride(), strict=True)
    return (0,) * lacking + tuple(0 if size == 1 else stride for size, stride in own)


@functools.lru_cache(maxsize=4096)
def _merge_dims(shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> Iteration:
    order = _order_dims(shape, strides)
    sizes = [shape[dim] for dim in order] or [1]
    walks = [[each[dim] for dim in order] or [1] for each in strides]
    merged, kept = [sizes[0]], [[each[0]] for each in walks]
    for at in range(1, len(sizes)):
        joined = all(
            sizes[at] == 1 or merged[-1] == 1 or own[-1] * merged[-1] == each[at]
            for own, each in zip(kept, walks, strict=True)
        )
        for own, each in zip(kept, walks, strict=True):
            if not joined:
                own.append(each[at])
            elif merged[-1] == 1:
                own[-1] = each[at]
        if joined:
            merged[-1] *= sizes[at]
        else:
            merged.append(sizes[at])
    if merged == [1]:
        kept = [[1] for _ in kept]
    return Iteration(tuple(merged), tuple(map(tuple, kept)))


def _order_dims(shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> list[int]:
    """Return the dimensions, the innermost first: an insertion sort that broadcast dimensions do not decide."""

    def is_later(first: int, second: int) -> int:
        for each in strides:
            one, other = each[first], each[second]
            if one == 0 or other == 0:
                continue
            if one != other:
                return 1 if one > other else -1
            if shape[first] > shape[second]:
                return 1
        return 0

    order = list(range(len(shape) - 1, -1, -1))
    for place in range(1, len(order)):
        moving = place
        for earlier in range(place - 1, -1, -1):
            answer = is_later(order[earlier], order[moving])
            if answer > 0:
                order[earlier], order[moving] = order[moving], order[earlier]
                moving = earlier
            elif answer < 0:
                break
    return order


def is_repeated(tensor: Tensor, whole: Tensor) -> bool:
    """Return whether a tensor repeats along the dimensions before its own (is_dense_broadcastable)."""
    own = tuple(tensor.shape)
    while own and own[0] == 1:
        own = own[1:]
    is_contiguous = tensor.is_contiguous() and whole.is_contiguous()
    return is_contiguous and own == tuple(whole.shape[whole.dim() - len(own) :])


def spread(tensor: Tensor, shape: torch.Size) -> Tensor:
    """Return a tensor in another shape by broadcasting, flat; a copy where it is no view."""
    return tensor.expand(shape).reshape(-1)
