"""Simulate the storage of a tensor with values: the CPU's memory, which reports that it is on ``mps``.

torch.save writes a storage with the device that it names, so a file made here loads on a Mac as one made there.
"""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import torch
from torch.multiprocessing.reductions import reduce_storage

from opcheck.common.versions import Target, Version
from opcheck.simulator.dispatch_context import current

_MPS = torch.device("mps", 0)


def _counts_as_shared(target: Target) -> bool:
    """Return whether memory of a device is always shared (torch/storage.py, ``share_memory_`` of 2.13; not 2.12)."""
    return target.torch >= Version(2, 13)


class MPSStorage(torch.UntypedStorage):
    """Memory of the CPU that Python takes for the memory of a Mac's GPU."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # the stub has an attribute
        """The device that the program put it on."""
        return _MPS

    @property
    def is_cuda(self) -> bool:
        """Always False."""
        return False

    def mps(self) -> torch.UntypedStorage:
        """Return the storage itself, which is on mps already."""
        return self

    def is_shared(self) -> bool:
        """Return what C++ returns for memory that is not the CPU's."""
        return current().ask(_counts_as_shared)

    def share_memory_(self, *_: Any, **__: Any) -> MPSStorage:
        """Do nothing since 2.13; raise before, because Python takes it for memory of the CPU."""
        if not current().ask(_counts_as_shared):
            self._share_filename_cpu_()
        return self

    def _share_filename_cpu_(self, *_: Any, **__: Any) -> NoReturn:
        """Raise as torch/csrc/StorageSharing.cpp does, which torch.multiprocessing calls."""
        raise RuntimeError("_share_filename_: only available on CPU")

    #: A Mac has the one strategy, file_system (torch/multiprocessing/__init__.py).
    _share_fd_cpu_ = _share_filename_cpu_

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.UntypedStorage:
        """Return a copy on the same device."""
        if id(self) not in memo:
            memo[id(self)] = on_mps(torch.UntypedStorage(self.nbytes()).copy_(self, False))
        return memo[id(self)]


# torch.multiprocessing finds the reducer of a storage by its exact class.
ForkingPickler.register(MPSStorage, reduce_storage)


def on_mps(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return the same memory, which from now on reports ``mps``."""
    storage.__class__ = MPSStorage  # torch keeps one Python object a storage
    return storage


def to_mps(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return a copy on ``mps`` (torch/storage.py, ``_StorageBase.mps``, would allocate there)."""
    if isinstance(storage, MPSStorage):
        return storage
    return on_mps(torch.UntypedStorage(storage.nbytes()).copy_(storage, False))
