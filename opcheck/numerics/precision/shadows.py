"""The float64 value of every tensor of a run, kept beside it.

What is kept belongs to the memory of a tensor, not to the tensor: views, writes in place, detached tensors and those
that autograd saves all find it again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from opcheck.numerics.float64 import WIDE
from opcheck.tracing.torch_private import tensors

#: a complex number is two of these in memory.
_PARTS = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}

#: calls after which what belongs to dead memory is dropped.
_SWEEP = 64


def memory(tensor: torch.Tensor) -> int:
    """Which memory is behind a tensor, while that exists."""
    return tensors.storage_address(tensor.untyped_storage())


class _Beside:
    """What is kept for one piece of memory."""

    __slots__ = ("error", "numbers", "part", "weak")

    def __init__(self, storage: Any, part: torch.dtype) -> None:
        flat = torch.empty(0, dtype=part).set_(storage)
        self.numbers = flat.to(torch.float64, copy=True)
        self.part = part
        # While it exists no other memory gets this address.
        self.weak = StorageWeakRef(storage)
        self.error = 0.0


class Shadows:
    """The table from memory to its numbers in float64."""

    def __init__(self) -> None:
        self._beside: dict[int, _Beside] = {}
        self._asked = 0

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """What the tensor would hold in a float64 run: a view, so that a write reaches the table.

        Memory that no call has written to yet holds the same in both runs.
        """
        numbers = self._entry(tensor).numbers
        if tensor.dtype.is_complex:
            numbers = torch.view_as_complex(numbers.view(-1, 2))
        view = numbers.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        view = view.conj() if tensor.is_conj() else view
        return tensors.negative_view(view) if tensor.is_neg() else view

    def error(self, tensor: torch.Tensor) -> float:
        """The relative error that was last seen in this memory."""
        return self._entry(tensor).error

    def note(self, tensor: torch.Tensor, error: float) -> None:
        """Keep the relative error of what was just written to this memory."""
        self._entry(tensor).error = error

    def keep(self, tensor: torch.Tensor, exact: torch.Tensor) -> None:
        """From now on the tensor would hold ``exact`` in a float64 run."""
        self.of(tensor).copy_(exact)

    def forget(self, tensor: torch.Tensor) -> None:
        """What a float64 run would hold is not known: it is taken to be what this run holds."""
        self._beside.pop(memory(tensor), None)

    def _entry(self, tensor: torch.Tensor) -> _Beside:
        self._asked += 1
        if self._asked % _SWEEP == 0:
            for key in [key for key, entry in self._beside.items() if entry.weak.expired()]:
                del self._beside[key]
        storage = tensor.untyped_storage()
        part = _PARTS.get(tensor.dtype, tensor.dtype)
        beside = self._beside.get(tensors.storage_address(storage))
        if (
            beside is None
            or beside.part != part
            or beside.numbers.numel() != storage.nbytes() // part.itemsize
        ):
            beside = self._beside[tensors.storage_address(storage)] = _Beside(storage, part)
        return beside


def followed(value: Any) -> bool:
    """Whether this is a tensor with a float64 value of its own."""
    return (
        isinstance(value, torch.Tensor)
        and value.dtype in WIDE
        and value.layout == torch.strided
        and value.device.type == "cpu"
    )
