"""A tensor as it was at the moment of a call, kept on the CPU with its layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from opcheck.tracing.torch_private.tensors import negative_view
from opcheck.tracing.torch_private.trees import tree_map_only


# A dataclass: a named tuple would be a node of a pytree, not a leaf.
@dataclasses.dataclass(frozen=True, slots=True)
class KeptTensor:
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
        """The dtype of the tensor."""
        return self.memory.dtype

    def tensor(self) -> torch.Tensor:
        """Return the tensor on the CPU: of its own layout, with memory of its own."""
        return self.view_of(self.memory.clone())

    def view_of(self, memory: torch.Tensor) -> torch.Tensor:
        """Return a view of other memory with the tensor's own layout."""
        view = memory.as_strided(self.size, self.stride)
        view = negative_view(view) if self.neg else view
        return view.conj() if self.conj else view

    def with_memory(self, change: Callable[[torch.Tensor], torch.Tensor]) -> KeptTensor:
        """Return the tensor with changed memory."""
        return dataclasses.replace(self, memory=change(self.memory))


def keep(tensor: torch.Tensor) -> KeptTensor:
    """Return a copy of a strided tensor on the CPU."""
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
    return KeptTensor(memory.to("cpu", copy=True), size, stride, offset, conj, neg)


def can_keep(tensor: torch.Tensor) -> bool:
    """Return whether a tensor can be kept."""
    return tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested


def keep_all(nest: Any) -> Any:
    """Return the nest of arguments with its tensors kept."""
    return tree_map_only(torch.Tensor, keep, nest)


def restore(nest: Any) -> Any:
    """Return the nest of arguments with a tensor for each kept tensor."""
    return tree_map_only(KeptTensor, KeptTensor.tensor, nest)


def place(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return the tensor on another device, with the strides and the offset that it has."""
    if not can_keep(tensor):
        return tensor.to(device)
    kept = keep(tensor)
    memory = torch.zeros(kept.offset + kept.memory.numel(), dtype=kept.dtype, device=device)
    memory[kept.offset :] = kept.memory.to(device)
    placed = kept.view_of(memory[kept.offset :])
    return placed.requires_grad_(tensor.requires_grad) if tensor.requires_grad else placed
