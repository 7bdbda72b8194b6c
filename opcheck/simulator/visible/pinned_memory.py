"""Simulate pinned memory: a Mac refuses it before 2.14, where MPS got an allocator of its own for it.

From 2.5 to 2.13 the memory that a Mac's build pins is the GPU's (github.com/pytorch/pytorch/pull/181720).
"""

from typing import Any

import torch

from opcheck.common.versions import Target, Version
from opcheck.simulator.dispatch.dispatch_context import current
from opcheck.simulator.dispatch.operators.operator import scalar_type
from opcheck.simulator.errors import NotSimulatedError

#: The first release that asks the accelerator for the memory of ``pin_memory`` (pull request 126376), and the first
#: where MPS gives memory of the CPU (MPSPinnedAllocator in the released libraries).
_ASKS_ACCELERATOR, _PINS = Version(2, 5), Version(2, 14)
#: The same for a new tensor: no question of CUDA alone (117530), then a question of the accelerator (146687).
_NOT_CUDA_ALONE, _NEW_ASKS_ACCELERATOR = Version(2, 3), Version(2, 7)


def _how_pinned(target: Target) -> str:
    """Return what ``Tensor.pin_memory`` does on a tensor of the CPU."""
    if target.torch < _ASKS_ACCELERATOR:
        return "no kernel"
    return "pinned" if target.torch >= _PINS else "other memory"


def _how_made(target: Target) -> str:
    """Return what a constructor does with ``pin_memory=True`` on the CPU."""
    if target.torch < _NOT_CUDA_ALONE:
        return "Pinned memory requires CUDA. "
    if target.torch < _NEW_ASKS_ACCELERATOR:
        return "Need to provide pin_memory allocator to use pin memory."
    return "pinned" if target.torch >= _PINS else "other memory"


_NO_KERNEL = (
    "Could not run 'aten::_pin_memory' with arguments from the 'CUDA' backend. This could be because the operator "
    "doesn't exist for this backend, or was omitted during the selective/custom build process (if using custom build)."
)
_OTHER_MEMORY = (
    'Attempted to set the storage of a tensor on device "cpu" to a storage on different device "mps:0".  This is no '
    "longer allowed; the devices must match."
)
#: What a Mac raises for ``pin_memory``, by how its memory is pinned: the id of the refusal, the exception, its text.
_REFUSED: dict[str, tuple[str, type[Exception], str]] = {
    "no kernel": ("pinned_memory_of_cuda", NotImplementedError, _NO_KERNEL),
    "other memory": ("pinned_memory", RuntimeError, _OTHER_MEMORY),
}


def pin(x: torch.Tensor, device: Any = None) -> torch.Tensor:
    """Compute ``x.pin_memory()`` (aten/src/ATen/native/Memory.cpp; RegisterBackendSelect.cpp before 2.5).

    Raises:
        RuntimeError, NotImplementedError: a Mac refuses it.
    """
    del device
    if x.device.type == "cpu":
        how = current().ask(_how_pinned)
        if how == "pinned":
            return x if is_pinned(x) else mark_pinned(x.clone())
        identity, kind, text = _REFUSED[how]
    else:
        name = f"{x.device.type.upper()}{scalar_type(x)}Type"
        identity, kind = "pin-memory-of-mps", RuntimeError
        text = f"cannot pin '{name}' only dense CPU tensors can be pinned"
    current().refuse(torch.ops.aten._pin_memory.default, (x,), identity, text)
    raise kind(text)


def mark_pinned(x: torch.Tensor) -> torch.Tensor:
    """Note that a tensor's memory is pinned, and return the tensor; its storage lives as long as the memory."""
    x.untyped_storage().is_pinned_on_a_mac = True  # type: ignore[attr-defined]
    return x


def is_pinned(x: torch.Tensor, device: Any = None) -> bool:
    """Compute ``x.is_pinned()``."""
    del device
    return x.device.type == "cpu" and hasattr(x.untyped_storage(), "is_pinned_on_a_mac")


def make_on(place: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a constructor without ``pin_memory=True``, as far as a Mac takes it.

    Args:
        place: the type of the new tensor's device.
        options: the keyword arguments.

    Raises:
        RuntimeError: a Mac refuses it.
        NotSimulatedError: a Mac makes a tensor of the CPU in the GPU's memory.
    """
    if place != "cpu":
        raise RuntimeError("Only dense CPU tensors can be pinned")
    how = current().ask(_how_made)
    if how == "other memory":
        raise NotSimulatedError(
            "pin_memory=True makes a tensor of the CPU in the GPU's memory before torch 2.14, and what a Mac does "
            "with it is not known here"
        )
    if how != "pinned":
        raise RuntimeError(how)
    return {**options, "pin_memory": False}
