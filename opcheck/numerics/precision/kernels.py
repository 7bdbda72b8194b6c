"""One operator call three ways: as the run makes it, in float64, and in the run's dtype from float64's values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opcheck.numerics.precision.accumulators import WITHOUT_DOUBLE
from opcheck.numerics.precision.shadows import WIDE, Shadows, followed
from opcheck.tracing.nested_tensors import tensors
from opcheck.tracing.torch_private.dispatch import schema_of
from opcheck.tracing.torch_private.trees import tree_map

aten = torch.ops.aten

#: What no float64 may become in the run: a Mac has none.
NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}

#: A number is taken out of a tensor; a dropout with its mask.
ITEM, DROPOUT = aten._local_scalar_dense.default, aten.native_dropout.default

#: Results without a meaning yet: memory that something else will write to.
BLANK = {
    aten.empty,
    aten.empty_like,
    aten.empty_permuted,
    aten.empty_strided,
    aten.new_empty,
    aten.new_empty_strided,
    aten.resize_,
}

#: Sums of products of what they read, by the beginnings of their names.
PRODUCTS = tuple(
    f"aten::{name}"
    for name in (
        "mm",
        "mv",
        "bmm",
        "dot",
        "vdot",
        "addmm",
        "addmv",
        "baddbmm",
        "addbmm",
        "convolution",
    )
)

#: Tagged as random for a dropout that they may have inside; without one they are not.
_NOT_RANDOM = ("_scaled_dot_product", "_efficient_attention", "_flash_attention")


def is_random(func: Any) -> bool:
    """Whether the result depends on the generator: then float64 takes the same numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags and not func.__name__.startswith(
        _NOT_RANDOM
    )


def written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors that the call writes to, in the order of the schema."""
    found: list[torch.Tensor] = []
    for position, argument in enumerate(schema_of(func).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = kwargs.get(argument.name)
            if position < len(args) and not argument.kwarg_only:
                value = args[position]
            found += tensors(value)
    return found


def narrowed(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments without float64, for a call that writes to none of them."""

    def narrow(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return NARROW.get(value, value)
        if isinstance(value, torch.Tensor) and value.dtype in NARROW and not func.is_view:
            return value.to(NARROW[value.dtype])
        return value

    return tree_map(narrow, (args, kwargs))


def as_run(func: Any, args: Any, kwargs: Any) -> Any:
    """The call in the run's dtype."""
    kernel: Callable[..., Any] = WITHOUT_DOUBLE.get(func, func)
    if kernel is not func and any(not followed(tensor) for tensor in tensors(args)):
        kernel = func
    try:
        return kernel(*args, **kwargs)
    except RuntimeError as error:
        # "... not implemented for 'Half'": the CPU lacks it; as exact as float32, then rounded.
        if "not implemented for 'Half'" not in str(error) or schema_of(func).is_mutable:
            raise
    result = func(*_each(args, torch.Tensor.float), **_each(kwargs, torch.Tensor.float))
    return _each(result, torch.Tensor.half)


def _each(value: Any, cast: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    def one(leaf: Any) -> Any:
        real = isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float16, torch.float32)
        return cast(leaf) if real else leaf

    return tree_map(one, value)


def in_float64(
    func: Any, args: Any, kwargs: Any, shadows: Shadows, wide: torch.dtype | None
) -> list[torch.Tensor]:
    """What the call makes of float64's values, or makes them; ``wide``: the dtype of a floating result."""
    mutable = schema_of(func).is_mutable

    def widen(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return WIDE.get(value, value)
        if followed(value):
            return shadows.of(value)
        return value.clone() if mutable and isinstance(value, torch.Tensor) else value

    args, kwargs = tree_map(widen, (args, kwargs))
    names = [argument.name for argument in schema_of(func).arguments]
    if wide and "dtype" in names and names.index("dtype") >= len(args):
        kwargs = {**kwargs, "dtype": wide}
    result = func(*args, **kwargs)
    return written(func, args, kwargs) if mutable else tensors(result)


def rounded(args: Any, kwargs: Any, shadows: Shadows, *, copy: bool) -> tuple[Any, Any]:
    """Float64's values of all followed arguments, each rounded to the dtype that it has in the run.

    Other tensors are themselves, or copies for a call that may write to them.
    """

    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if not followed(value):
            return value.clone() if copy else value
        return shadows.of(value).to(NARROW.get(value.dtype, value.dtype), copy=True)

    return tree_map(one, (args, kwargs))
