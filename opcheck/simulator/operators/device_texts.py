"""Word the errors of kernels for tensors on two devices; each kernel has its own check and text.

MPS has no check that is generated for every kernel, as CUDA has (torchgen/gen.py: ``device_guard`` is for CUDA and
XPU): an operator without a text of its own says what TensorIterator.cpp says, which most calls go through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from opcheck.common.versions import Target
from opcheck.simulator.operators.operator import DeviceText
from opcheck.simulator.tensor import is_on_mps

if TYPE_CHECKING:
    from collections.abc import Callable

#: TensorIterator.cpp, ``compute_types``
TWO_DEVICES = (
    "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!"
)
#: mps/OperationUtils.mm, ``Placeholder``
PLACEHOLDER = "Placeholder storage has not been allocated on MPS device!"
#: mps/OperationUtils.h, ``mtl_setBuffer``
PASSED_CPU = "Passed CPU tensor to MPS op"


def is_on_cpu(tensor: Any) -> bool:
    """Return whether the value is a tensor that is not on the simulated device."""
    return isinstance(tensor, torch.Tensor) and not is_on_mps(tensor)


def places(tensors: Any) -> list[str]:
    """Return the device of each tensor as C++ writes it."""
    return ["cpu" if is_on_cpu(tensor) else "mps:0" for tensor in tensors]


def type_name(tensor: torch.Tensor) -> str:
    """Return ``toString`` of ATen/core/DeprecatedTypeProperties.cpp: a CPU type has its Python name."""
    name = scalar_type(tensor)
    return f"torch.{name}Tensor" if is_on_cpu(tensor) else f"MPS{name}Type"


def scalar_type(tensor: torch.Tensor) -> str:
    """Return the name in c10/core/ScalarType.h: ``Long`` for int64."""
    name = torch.empty(0, dtype=tensor.dtype, device="cpu").type()
    return name.removeprefix("torch.").removesuffix("Tensor")


def always(text: str) -> Callable[[Any], str]:
    """Return a function that gives the same text for all tensors."""
    return lambda _tensors: text


def checked_by_linear_algebra(kernel: str, *names: str) -> tuple[DeviceText, ...]:
    """Return the text of ``checkAllSameGPU`` (ATen/TensorUtils.cpp), which LinearAlgebra.mm calls."""

    def text(tensors: Any) -> str | None:
        if is_on_cpu(tensors[-2]):
            return None  # the result would be allocated beside the first factor, on the CPU
        for position, (name, tensor) in enumerate(zip(names, tensors, strict=False), start=1):
            if is_on_cpu(tensor):
                return (
                    f"Tensor for argument #{position} '{name}' is on CPU, but expected it to be on "
                    f"GPU (while checking arguments for {kernel})"
                )
        return None

    return (DeviceText(text),)


def row_of(target: Target, texts: tuple[DeviceText, ...]) -> int | None:
    """Return the index of the operator's text for the target; None if it has none."""
    rows = (number for number, row in enumerate(texts) if target.torch in row.releases)
    return next(rows, None)
