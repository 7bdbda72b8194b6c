"""One operator call made again on the CPU: in float64, and in the dtype that it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opcheck.numerics.compare import stand_ins
from opcheck.numerics.compare.snapshot import Kept, map_kept
from opcheck.numerics.compare.stand_ins import arguments
from opcheck.numerics.precision.kernels import PRODUCTS, written
from opcheck.numerics.precision.shadows import WIDE
from opcheck.tracing.nested_tensors import tensors
from opcheck.tracing.torch_private.dispatch import schema_of
from opcheck.tracing.torch_private.trees import tree_map

#: What results are sums of, beside products.
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


def results(func: Any, args: Any, kwargs: Any, result: Any) -> list[torch.Tensor]:
    """The tensors that a call made or wrote to, each once, in the order of the schema."""
    found = {id(tensor): tensor for tensor in (*tensors(result), *written(func, args, kwargs))}
    return list(found.values())


def in_float64(
    func: Any, args: Any, kwargs: Any, like: torch.Tensor | None = None
) -> list[torch.Tensor]:
    """What the call makes in float64 of the same numbers; ``like`` is its first result on the device.

    Raises:
        Exception: whatever the CPU's kernel raises where it does not take them.
    """
    wide = WIDE.get(like.dtype) if like is not None else None
    names = [argument.name for argument in schema_of(func).arguments]
    if wide and "dtype" in names and names.index("dtype") >= len(args) and not kwargs.get("dtype"):
        kwargs = {**kwargs, "dtype": wide}
    return _run(func, args, kwargs, lambda dtype: WIDE.get(dtype, dtype))


def as_it_is(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor] | None:
    """What the CPU makes in the same dtype; where it has no kernel for that, in float32, rounded; None: not at all."""
    try:
        return _run(func, args, kwargs, lambda dtype: dtype)
    except Exception:  # noqa: BLE001 - the CPU lacks the dtype
        narrow = {torch.float16, torch.bfloat16}
    rounded = {
        tensor.dtype
        for tensor in tensors(map_kept(Kept.tensor, (args, kwargs)))
        if tensor.dtype in narrow
    }
    if len(rounded) != 1:
        return None
    (to,) = rounded
    try:
        found = _run(func, args, kwargs, lambda dtype: torch.float32 if dtype in narrow else dtype)
    except Exception:  # noqa: BLE001 - nor that
        return None
    return [one.to(to) if one.dtype == torch.float32 else one for one in found]


def sizes(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor] | None:
    """What was summed for each element, without its sign; None: the call makes no sums."""
    if func.name().startswith(_OF_ALL):
        exact = in_float64(func, args, kwargs)
        return [tensor.abs().square().mean().sqrt().expand(tensor.shape) for tensor in exact]
    if "_backward" in func.name() and not func.name().startswith(PRODUCTS):
        return _of_gradient(func, args, kwargs)
    if not func.name().startswith((*PRODUCTS, *_SUMS)):
        return None

    def unsigned(kept: Kept) -> Kept:
        numeric = kept.dtype.is_floating_point or kept.dtype.is_complex
        return kept._replace(memory=kept.memory.abs()) if numeric else kept

    try:
        args, kwargs = map_kept(unsigned, (args, kwargs))
        found = in_float64(func, args, kwargs)
    except Exception:  # noqa: BLE001 - then there is no such number
        return None
    return [tensor.abs() for tensor in found]


def _of_gradient(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor] | None:
    """The largest gradient that comes in: what goes out is made of differences of its like."""
    given = arguments(func, args, kwargs)
    grads = [
        one for name, one in given.items() if name.startswith("grad") and isinstance(one, Kept)
    ]
    if not grads or not grads[0].memory.numel():
        return None
    largest = grads[0].memory.abs().max().double()
    return [largest.expand(tensor.shape) for tensor in in_float64(func, args, kwargs)]


def on_cpu(nest: Any, change: Callable[[torch.dtype], torch.dtype]) -> Any:
    """The arguments with kept tensors and dtypes changed, and every device the CPU."""

    def one(value: Any) -> Any:
        if isinstance(value, Kept):
            tensor = value.tensor()
            wanted = change(value.dtype)
            # Not Tensor.to: it would lay the tensor out anew.
            return tensor if wanted == value.dtype else _cast(tensor, value, wanted)
        if isinstance(value, torch.dtype):
            return change(value)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    return tree_map(one, nest, is_leaf=lambda value: isinstance(value, Kept))


def _cast(tensor: torch.Tensor, kept: Kept, wanted: torch.dtype) -> torch.Tensor:
    return (
        Kept.tensor(kept._replace(memory=kept.memory.to(wanted)))
        if tensor.numel()
        else tensor.to(wanted)
    )


def _run(
    func: Any, args: Any, kwargs: Any, change: Callable[[torch.dtype], torch.dtype]
) -> list[torch.Tensor]:
    args, kwargs = on_cpu((args, kwargs), change)
    if "pin_memory" in kwargs:
        kwargs = {**kwargs, "pin_memory": False}
    result = stand_ins.on_cpu(func)(*args, **kwargs)
    return results(func, args, kwargs, result)
