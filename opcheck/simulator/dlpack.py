"""Simulate DLPack on MPS: C++ refuses it before 2.9, and exports a Metal buffer since (ATen/DLConvertor.cpp).

The capsule is one of the CPU's memory that says Metal, so that its memory is shared and NumPy refuses it by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING, Any

import torch

from opcheck.common.replacing import replaced
from opcheck.common.versions import Target, Version
from opcheck.simulator.dispatch_context import current
from opcheck.simulator.errors import NotSimulatedError
from opcheck.simulator.tensor import Storage, is_on_mps, wrap
from opcheck.simulator.tensor_meta import spec_of
from opcheck.tracing.torch_private import tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CPU_TYPE, _METAL_TYPE = 1, 8
_METAL = (_METAL_TYPE, 0)
#: capsule -> where its struct has the device's type (aten/src/ATen/dlpack.h, DLManagedTensor and its Versioned form)
_DEVICE_AT = {b"dltensor": 8, b"dltensor_versioned": 40}

_DEVICE = torch.Tensor.__dlpack_device__
_FROM = tensors.FROM_DLPACK.value()
_TO = tensors.TO_DLPACK.value()
_TO_VERSIONED = (
    tensors.TO_DLPACK_VERSIONED.value() if hasattr(*tensors.TO_DLPACK_VERSIONED) else None
)

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
        message = "Unknown device type mps for Dlpack"
        raise ValueError(message)
    return _DEVICE(self)


def _device_type(capsule: Any) -> tuple[int, ctypes.c_int32] | None:
    """Locate a capsule's struct, and read its device type; None for a used capsule or another object."""
    for name, offset in _DEVICE_AT.items():
        if _is_valid(capsule, name):
            address = _pointer(capsule, name)
            return address, ctypes.c_int32.from_address(address + offset)
    return None


def _exporter(original: Callable[..., Any], exported: Exported) -> Callable[..., Any]:
    def to_dlpack(tensor: Any, dl_device: Any = None, copy: Any = None) -> Any:
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
                message = f"cannot move (i.e. copy=False) tensor from {tensor.device} to {goal} without copying."
                raise ValueError(message)
            tensor, copy = tensor.to(goal), None
            if goal == "cpu":
                return original(tensor)
        known = (tensor.clone() if copy else tensor)._mps
        if known.payload is None:
            raise NotSimulatedError("a DLPack capsule has values, and the tensor has none here")
        if exports == "whole" and known.spec.offset:
            message = (
                "torch 2.9 exports a view with an offset as an address that is no buffer of Metal"
            )
            raise NotSimulatedError(message)
        capsule = original(known.payload)
        struct = _device_type(capsule)
        assert struct is not None
        address, kind = struct
        kind.value = _METAL_TYPE
        exported[address] = known.memory
        return capsule

    return to_dlpack


def _importer(exported: Exported) -> Callable[[Any], Any]:
    def from_dlpack(capsule: Any) -> Any:
        struct = _device_type(capsule)
        if struct is None or struct[1].value != _METAL_TYPE or struct[0] not in exported:
            return _FROM(capsule)
        address, kind = struct
        kind.value = _CPU_TYPE
        payload = _FROM(capsule)
        return wrap(spec_of(payload), payload, exported.pop(address))

    return from_dlpack


@contextlib.contextmanager
def dlpack_of_mac() -> Iterator[None]:
    """Allow DLPack capsules of tensors on MPS for the length of the block."""
    exported: Exported = {}
    export = _exporter(_TO, exported)
    changes: list[tuple[Any, str, Any]] = [
        (*tensors.TO_DLPACK, export),
        (torch, "to_dlpack", export),
        (torch.utils.dlpack, "to_dlpack", export),
        (*tensors.FROM_DLPACK, _importer(exported)),
    ]
    if _TO_VERSIONED is not None:
        changes.append((*tensors.TO_DLPACK_VERSIONED, _exporter(_TO_VERSIONED, exported)))
    with replaced(changes):
        yield
