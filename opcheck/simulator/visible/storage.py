"""Simulate the storage of a tensor with values: the CPU's memory, which reports that it is on ``mps``.

torch.save writes a storage with the device that it names, so a file made here loads on a Mac as one made there.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

import torch
from torch.multiprocessing.reductions import reduce_storage

from opcheck.common.replacing import replace_attributes
from opcheck.common.versions import Target, Version
from opcheck.simulator.dispatch.dispatch_context import current
from opcheck.simulator.dispatch.tensor import MPS_DEVICE, Storage, is_on_mps, wrap
from opcheck.simulator.dispatch.tensor_meta import spec_of
from opcheck.simulator.errors import NotSimulatedError
from opcheck.simulator.target_reads import is_before
from opcheck.tracing.torch_private import tensors

#: The first release where memory of a device is always shared (torch/storage.py, ``share_memory_``).
_ALWAYS_SHARED = Version(2, 13)


class MPSStorage(torch.UntypedStorage):
    """Memory of the CPU that Python takes for the memory of a Mac's GPU."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # the stub has an attribute
        """The device that the program put it on."""
        return MPS_DEVICE

    @property
    def is_cuda(self) -> bool:
        """Always False."""
        return False

    def mps(self) -> torch.UntypedStorage:
        """Return the storage itself, which is on mps already."""
        return self

    def is_shared(self) -> bool:
        """Return what C++ returns for memory that is not the CPU's."""
        return not current().ask(is_before, _ALWAYS_SHARED)

    def share_memory_(self, *_: Any, **__: Any) -> MPSStorage:
        """Do nothing since 2.13; raise before, because Python takes it for memory of the CPU."""
        if current().ask(is_before, _ALWAYS_SHARED):
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
            memo[id(self)] = _copy_to_mps(self)
        return memo[id(self)]


_is_storage = torch.is_storage


def is_storage(value: Any) -> bool:
    """Run ``torch.is_storage``, which compares classes, and which torch.save calls."""
    return type(value) is MPSStorage or _is_storage(value)


# torch.multiprocessing finds the reducer of a storage by its exact class.
ForkingPickler.register(MPSStorage, reduce_storage)


def on_mps(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return the same memory, which from now on reports ``mps``."""
    storage.__class__ = MPSStorage  # torch keeps one Python object a storage
    return storage


_new_shared = tensors.NEW_SHARED.value().__func__


@classmethod  # type: ignore[misc]
def new_shared(cls: Any, size: int, *, device: Any = "cpu") -> Any:
    """Run ``UntypedStorage._new_shared``, which takes the CPU's memory for mps before 2.13 (torch/storage.py)."""
    if torch.device(device).type != "mps" or current().ask(is_before, _ALWAYS_SHARED):
        return _new_shared(cls, size)
    return on_mps(torch.UntypedStorage(size))


def to_mps(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return a copy on ``mps`` (torch/storage.py, ``_StorageBase.mps``, would allocate there)."""
    return storage if isinstance(storage, MPSStorage) else _copy_to_mps(storage)


def _copy_to_mps(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    return on_mps(torch.UntypedStorage(storage.nbytes()).copy_(storage, False))


# -- DLPack ----------------------------------------------------------------------------------------------------------


_CPU_TYPE, _METAL_TYPE = 1, 8
_METAL = (_METAL_TYPE, 0)
#: capsule -> where its struct has the device's type (aten/src/ATen/dlpack.h, DLManagedTensor and its Versioned form)
_DEVICE_AT = {b"dltensor": 8, b"dltensor_versioned": 40}

_DEVICE = torch.Tensor.__dlpack_device__
_FROM = tensors.FROM_DLPACK.value()
_TO = tensors.TO_DLPACK.value()
_TO_VERSIONED = tensors.TO_DLPACK_VERSIONED.value() if hasattr(*tensors.TO_DLPACK_VERSIONED) else None

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p

#: the address of an unused capsule's struct -> the memory that it shares
Exported = dict[int, Storage]


def _exports(target: Target) -> str:
    """Return how a Mac exports a tensor: not before 2.9; 2.9 omits the offset of a view (pull request 169272)."""
    if target.torch < Version(2, 9):
        return "nothing"
    return "whole" if target.torch < Version(2, 10) else "any"


def device(self: Any) -> Any:
    """Return the device as torch.Tensor.__dlpack_device__ does, which lacks MPS before 2.9 (torch/_tensor.py)."""
    if is_on_mps(self) and current().ask(_exports) == "nothing":
        raise ValueError("Unknown device type mps for Dlpack")
    return _DEVICE(self)


def _device_type(capsule: Any) -> tuple[int, ctypes.c_int32] | None:
    """Locate a capsule's struct, and read its device type; None for a used capsule or another object."""
    for name, offset in _DEVICE_AT.items():
        if _is_valid(capsule, name):
            address = _pointer(capsule, name)
            return address, ctypes.c_int32.from_address(address + offset)
    return None


def _to_dlpack(
    original: Callable[..., Any], exported: Exported, tensor: Any, dl_device: Any = None, copy: Any = None
) -> Any:
    place = None if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    there = is_on_mps(tensor)
    if not there and place != _METAL:
        return original(tensor, dl_device=dl_device, copy=copy)
    exports = current().ask(_exports)
    if exports == "nothing":
        raise RuntimeError("Cannot pack tensors on mps:0")
    if place is not None and place != (_METAL if there else (_CPU_TYPE, 0)):
        goal = "mps:0" if place == _METAL else "cpu"
        if copy is False:
            raise ValueError(f"cannot move (i.e. copy=False) tensor from {tensor.device} to {goal} without copying.")
        tensor, copy = tensor.to(goal), None
        if goal == "cpu":
            return original(tensor)
    state = (tensor.clone() if copy else tensor)._mps
    if state.payload is None:
        raise NotSimulatedError("a DLPack capsule has values, and the tensor has none here")
    if exports == "whole" and state.spec.offset:
        raise NotSimulatedError("torch 2.9 exports a view with an offset as an address that is no buffer of Metal")
    capsule = original(state.payload)
    struct = _device_type(capsule)
    assert struct is not None
    address, kind = struct
    kind.value = _METAL_TYPE
    exported[address] = state.memory
    return capsule


def _from_dlpack(exported: Exported, capsule: Any) -> Any:
    struct = _device_type(capsule)
    if struct is None or struct[1].value != _METAL_TYPE or struct[0] not in exported:
        return _FROM(capsule)
    address, kind = struct
    kind.value = _CPU_TYPE
    payload = _FROM(capsule)
    return wrap(spec_of(payload), payload, exported.pop(address))


@contextlib.contextmanager
def dlpack_of_mac() -> Iterator[None]:
    """Allow DLPack capsules of tensors on MPS for the length of the block."""
    exported: Exported = {}
    export = functools.partial(_to_dlpack, _TO, exported)
    changes: list[tuple[Any, str, Any]] = [
        (*tensors.TO_DLPACK, export),
        (torch, "to_dlpack", export),
        (torch.utils.dlpack, "to_dlpack", export),
        (*tensors.FROM_DLPACK, functools.partial(_from_dlpack, exported)),
    ]
    if _TO_VERSIONED is not None:
        changes.append((*tensors.TO_DLPACK_VERSIONED, functools.partial(_to_dlpack, _TO_VERSIONED, exported)))
    with replace_attributes(changes):
        yield
