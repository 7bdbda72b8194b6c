"""The storage of a simulated tensor with values: the CPU's memory, which says that it is on ``mps``.

torch.save writes a storage with the device that it names, so a file made here loads on a Mac as one made there.
"""

from __future__ import annotations

from typing import Any

import torch

_MPS = torch.device("mps", 0)


class MPSStorage(torch.UntypedStorage):
    """Memory of the CPU that Python takes for a Mac's."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # the stub has an attribute
        """Where the program put it."""
        return _MPS

    @property
    def is_cuda(self) -> bool:
        """It is not."""
        return False

    def mps(self) -> torch.UntypedStorage:
        """Already there."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.UntypedStorage:
        """A copy on the same device."""
        if id(self) not in memo:
            memo[id(self)] = on_mps(torch.UntypedStorage(self.nbytes()).copy_(self, False))
        return memo[id(self)]


def on_mps(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """The same memory, from now on said to be on ``mps``."""
    storage.__class__ = MPSStorage  # torch keeps one Python object a storage
    return storage


def to_mps(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """A copy on ``mps`` (torch/storage.py, ``_StorageBase.mps``, would allocate there)."""
    if isinstance(storage, MPSStorage):
        return storage
    return on_mps(torch.UntypedStorage(storage.nbytes()).copy_(storage, False))
