"""Word the errors of kernels for tensors on two devices; each kernel has its own check and text.

MPS has no check that is generated for every kernel, as CUDA has (torchgen/gen.py: ``device_guard`` is for CUDA and
XPU): an operator without a text of its own has the text of TensorIterator.cpp, which most calls go through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from opcheck.common.versions import Target
from opcheck.common.yaml_text import load_shipped
from opcheck.simulator.dispatch.operators.operator import DeviceText, composite
from opcheck.simulator.dispatch.tensor import is_on_mps

#: TensorIterator.cpp, ``compute_types``
TWO_DEVICES = (
    "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!"
)
#: ... for the second CPU tensor without dimensions
TOO_MANY_NUMBERS = "Trying to pass too many CPU scalars to non-CPU kernel!"


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


def checked_by_linear_algebra(kernel: str, *names: str) -> Callable[[Any], str | None]:
    """Return the text of ``checkAllSameGPU`` (ATen/TensorUtils.cpp), which LinearAlgebra.mm calls."""

    def text(tensors: Any) -> str | None:
        if is_on_cpu(tensors[-2]):
            return None  # the result would be allocated next to the first factor, on the CPU
        for position, (name, tensor) in enumerate(zip(names, tensors, strict=False), start=1):
            if is_on_cpu(tensor):
                return (
                    f"Tensor for argument #{position} '{name}' is on CPU, but expected it to be on "
                    f"GPU (while checking arguments for {kernel})"
                )
        return None

    return text


def one_device(
    op: Any, text: Callable[..., str | None], body: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Return a branch for a composite whose C++ compares devices, and sees the CPU under simulated tensors.

    Args:
        op: the overload.
        text: returns the error for the arguments of a call; None where there is none.
        body: the branch to follow; the C++ body if not given.
    """

    def branch(context: Any, *args: Any, **kwargs: Any) -> Any:
        error = text(*args, **kwargs)
        if error is not None:
            context.refuse(op, args, "device_mismatch", error)
        return body(context, *args, **kwargs) if body else composite(op, *args, **kwargs)

    return branch


def row_of(target: Target, texts: tuple[DeviceText, ...]) -> int | None:
    """Return the index of the operator's text for the target; None if it has none."""
    rows = (number for number, row in enumerate(texts) if target.torch in row.releases)
    return next(rows, None)


_LISTS = load_shipped(Path(__file__).with_suffix(".yaml"))
_ITERATES = frozenset(_LISTS["iterates"])
_NUMBERS: Mapping[str, list[str]] = _LISTS["numbers"]


def is_iterated(name: str, tags: Sequence[Any]) -> bool:
    """Return whether TensorIterator checks the devices of an overload's tensors (TensorIterator.cpp)."""
    if name.startswith("aten::masked_fill."):
        return False  # TensorAdvancedIndexing.cpp: a clone, and masked_fill_
    return torch.Tag.pointwise in tags or name in _ITERATES


def mismatch(
    name: str,
    arguments: Mapping[str, Any],
    inputs: Sequence[torch.Tensor],
    outs: Sequence[torch.Tensor],
    written: Sequence[torch.Tensor],
    *,
    iterated: bool,
) -> str | None:
    """Return the error of a call on tensors of two devices; None if the kernel takes them.

    Args:
        name: the overload.
        arguments: its arguments by their names.
        inputs: all tensors among them.
        outs: those of ``out=``.
        written: those that it writes, ``out=`` included.
        iterated: whether TensorIterator checks them.
    """
    others = [tensor for tensor in inputs if not any(tensor is out for out in outs)]
    numbers = [tensor for tensor in others if is_on_cpu(tensor)]
    if outs and not iterated and others and places(others[:1]) != places(outs[:1]):
        # ATen/RegisterMPS.cpp, ``resize_out``, of structured kernels and of generated composites
        return (
            f"Expected out tensor to have device {places(others)[0]}, but got {places(outs)[0]} "
            "instead"
        )
    if any(tensor.dim() for tensor in numbers) or any(map(is_on_cpu, written)):
        return TWO_DEVICES
    if not name.startswith("aten::") or name.startswith("aten::_foreach_"):
        return None
    if name.startswith("aten::where."):
        return None  # TensorCompare.cpp, ``where_self_out``, moves each of them
    if iterated and len(others) > 1:
        return TOO_MANY_NUMBERS if len(numbers) > 1 else None
    taken = [arguments.get(argument) for argument in _NUMBERS.get(name, ())]
    if all(any(number is value for value in taken) for number in numbers):
        return None
    return TWO_DEVICES
