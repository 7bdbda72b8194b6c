"""TensorIterator's walk: whatever is merged and reordered, the same elements meet."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from opcheck.kernels.host.iteration import Iteration, iterate


def met(walk: Iteration, tensors: tuple[Tensor, ...]) -> set[tuple[int, ...]]:
    """The offsets of the elements that meet, of each tensor."""
    places = itertools.product(*(range(size) for size in walk.sizes))
    return {
        tuple(
            int(tensor.storage_offset()) + sum(map(int.__mul__, place, strides))
            for tensor, strides in zip(tensors, walk.strides, strict=True)
        )
        for place in places
    }


def expected(tensors: tuple[Tensor, ...]) -> set[tuple[int, ...]]:
    shape = tensors[0].shape
    views = [
        torch.arange(tensor.untyped_storage().nbytes() // tensor.element_size())
        .as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        .expand(shape)
        .flatten()
        .tolist()
        for tensor in tensors
    ]
    return set(zip(*views, strict=True))


X = torch.zeros(4, 5, 6)
CASES = {
    "contiguous": (X, X.clone()),
    "transposed": (X.transpose(0, 2).clone(memory_format=torch.preserve_format), X.transpose(0, 2)),
    "transposed into contiguous": (torch.zeros(6, 5, 4), X.transpose(0, 2)),
    "sliced": (torch.zeros(4, 3, 6), X[:, 1:4]),
    "every second": (torch.zeros(4, 5, 3), X[:, :, ::2]),
    "broadcast row": (X, X.clone(), torch.zeros(6)),
    "broadcast column": (X, X.clone(), torch.zeros(5, 1)),
    "a number": (X, torch.zeros(())),
    "one": (torch.zeros(1, 1), torch.zeros(1)),
    "channels last": (torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.zeros(2, 3, 4, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_elements_meet(name: str) -> None:
    tensors = CASES[name]
    assert met(iterate(tensors), tensors) == expected(tensors)


def test_what_lies_in_a_row_is_one_dimension() -> None:
    assert iterate(CASES["contiguous"]).sizes == (120,)
    assert iterate(CASES["contiguous"]).is_contiguous
    assert iterate(CASES["transposed"]).is_contiguous
    assert not iterate(CASES["transposed into contiguous"]).is_contiguous
    assert iterate(CASES["sliced"]).sizes == (18, 4)
    assert iterate(CASES["sliced"]).has_contiguous_rows
    assert not iterate(CASES["every second"]).has_contiguous_rows
