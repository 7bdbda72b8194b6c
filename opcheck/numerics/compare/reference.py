"""A call on a device made again on the CPU: in float64, and in the dtype that it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opcheck.numerics.compare.cpu_formulas import kernel_for
from opcheck.numerics.float64 import PRODUCTS, WIDE, Call, widened
from opcheck.numerics.kept_tensors import KeptTensor, restore
from opcheck.tracing.nested_tensors import tensors

#: Operators whose results are sums of something else than products.
_SUMS = tuple(
    f"aten::{name}"
    for name in (
        "sum",
        "mean",
        "cumsum",
        "index_add",
        "scatter_add",
        "upsample",
        "_upsample",
        "avg_pool",
        "_adaptive_avg_pool",
        "grid_sampler",
    )
)
#: Sums in which each element takes of all others.
_OF_ALL = "aten::_fft_"
_HALVES = frozenset({torch.float16, torch.bfloat16})


def in_float64(call: Call, like: torch.Tensor | None = None) -> list[torch.Tensor]:
    """What a call makes in float64 of the same numbers.

    Args:
        call: with its tensors kept.
        like: its first result on the device.

    Raises:
        Exception: whatever the CPU's kernel raises where it does not take them.
    """
    return _on_cpu(call.for_wide_results(like), widened)


def in_its_dtype(call: Call) -> list[torch.Tensor] | None:
    """What the CPU makes in the same dtype; where it has no kernel for that, in float32, rounded; None: not at all."""
    try:
        return _on_cpu(call, lambda dtype: dtype)
    except Exception:  # noqa: BLE001 - the CPU lacks the dtype
        given = tensors(restore((call.args, call.kwargs)))
    rounded = {tensor.dtype for tensor in given} & _HALVES
    if len(rounded) != 1:
        return None
    (half,) = rounded
    try:
        made = _on_cpu(call, lambda dtype: torch.float32 if dtype in _HALVES else dtype)
    except Exception:  # noqa: BLE001 - nor that
        return None
    return [tensor.to(half) if tensor.dtype == torch.float32 else tensor for tensor in made]


def sizes(call: Call) -> list[torch.Tensor] | None:
    """What was summed for each element, without its sign; None: the call makes no sums."""
    name = call.func.name()
    if name.startswith(_OF_ALL):
        exact = in_float64(call)
        return [tensor.abs().square().mean().sqrt().expand(tensor.shape) for tensor in exact]
    if "_backward" in name and not name.startswith(PRODUCTS):
        return _of_gradient(call)
    if not name.startswith((*PRODUCTS, *_SUMS)):
        return None

    def unsigned(value: Any) -> Any:
        numeric = isinstance(value, KeptTensor) and value.dtype in WIDE
        return value.with_memory(torch.abs) if numeric else value

    try:
        return [tensor.abs() for tensor in in_float64(call.changed(unsigned))]
    except Exception:  # noqa: BLE001 - then there is no such number
        return None


def _of_gradient(call: Call) -> list[torch.Tensor] | None:
    """The largest gradient that comes in: what goes out is made of differences of its like."""
    gradients = [
        value
        for name, value in call.arguments().items()
        if name.startswith("grad") and isinstance(value, KeptTensor)
    ]
    if not gradients or not gradients[0].memory.numel():
        return None
    largest = gradients[0].memory.abs().max().double()
    return [largest.expand(tensor.shape) for tensor in in_float64(call)]


def _on_cpu(call: Call, change: Callable[[torch.dtype], torch.dtype]) -> list[torch.Tensor]:
    """What the CPU makes of a call with its dtypes changed."""

    def moved(value: Any) -> Any:
        if isinstance(value, KeptTensor):
            # Not Tensor.to: it would lay the tensor out anew.
            return value.with_memory(lambda memory: memory.to(change(value.dtype))).tensor()
        if isinstance(value, torch.dtype):
            return change(value)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    call = call.changed(moved)
    if "pin_memory" in call.kwargs:
        call = call._replace(kwargs={**call.kwargs, "pin_memory": False})
    return call.run(kernel_for(call.func))
