"""A tensor as it was at the moment of a call, kept on the CPU with its layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from opcheck.tracing.torch_private.tensors import negative_view
from opcheck.tracing.torch_private.trees import tree_map, tree_map_only


class Kept(NamedTuple):
    """The memory that a strided tensor looks at, from its first element to its last, and how it does."""

    memory: torch.Tensor
    size: tuple[int, ...]
    stride: tuple[int, ...]
    #: elements of the storage that come before
    offset: int
    conj: bool
    neg: bool

    @property
    def dtype(self) -> torch.dtype:
        """Of the tensor."""
        return self.memory.dtype

    def tensor(self) -> torch.Tensor:
        """The tensor on the CPU: of its own layout, with memory of its own."""
        return as_laid_out(self.memory.clone(), self)


def keep(tensor: torch.Tensor) -> Kept:
    """A copy of a strided tensor on the CPU."""
    plain = tensor.detach()
    conj, neg = plain.is_conj(), plain.is_neg()
    plain = plain.conj() if conj else plain
    plain = negative_view(plain) if neg else plain
    size, stride = tuple(plain.shape), tuple(plain.stride())
    span = 0
    if plain.numel():
        span = 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    offset = int(plain.storage_offset())
    memory = plain.as_strided((span,), (1,), offset)
    return Kept(memory.to("cpu", copy=True), size, stride, offset, conj, neg)


def as_laid_out(memory: torch.Tensor, kept: Kept) -> torch.Tensor:
    """A view of memory as the kept tensor was one of its own."""
    view = memory.as_strided(kept.size, kept.stride)
    view = negative_view(view) if kept.neg else view
    return view.conj() if kept.conj else view


def keeps(value: Any) -> bool:
    """Whether a tensor can be kept."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and not value.is_quantized
        and not value.is_nested
    )


def keep_all(nest: Any) -> Any:
    """The nest of arguments with its tensors kept."""
    return tree_map_only(torch.Tensor, keep, nest)


def map_kept(make: Callable[[Kept], Any], nest: Any) -> Any:
    """The nest of arguments with something made of each kept tensor."""
    return tree_map(
        lambda value: make(value) if isinstance(value, Kept) else value,
        nest,
        is_leaf=lambda value: isinstance(value, Kept),
    )


def place(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The tensor on another device, with the strides and the offset that it has."""
    if not keeps(tensor):
        return tensor.to(device)
    kept = keep(tensor)
    memory = torch.zeros(kept.offset + kept.memory.numel(), dtype=kept.dtype, device=device)
    memory[kept.offset :] = kept.memory.to(device)
    placed = as_laid_out(memory[kept.offset :], kept)
    return placed.requires_grad_(tensor.requires_grad) if tensor.requires_grad else placed
