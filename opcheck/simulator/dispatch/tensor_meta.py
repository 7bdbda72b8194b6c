"""Intern tensor metadata as keys, and encode arguments as hashable keys that decode without loss.

A call on tensors without values depends on nothing but its operator, the metadata of its tensors and
its other arguments, so the key of a call is also the key of the cache of output metadata
(FakeTensor caches for the same reason: torch/_subclasses/fake_tensor.py, ``_DispatchCacheKey``).
"""

import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

META = torch.device("meta")
Sizes = tuple[int, ...]


@dataclass(slots=True, eq=False, repr=False)
class TensorMeta:
    """Metadata of one strided tensor.  Interned: equal metadata is the same object, hashed by identity."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    device: str
    layout: torch.layout
    dtype_name: str = field(init=False)
    meta_tensor: torch.Tensor | None = None
    #: for simulator/dispatch/tensor.py, ``wrap``: by whether they are inference tensors
    templates: dict[bool, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set the name of the dtype."""
        self.dtype_name = str(self.dtype).removeprefix("torch.")

    def meta(self) -> torch.Tensor:
        """Return the shared meta tensor of this metadata, for operators that do not change metadata."""
        if self.meta_tensor is None:
            self.meta_tensor = self.fresh_meta()
        return self.meta_tensor

    def fresh_meta(self) -> torch.Tensor:
        """Return a new meta tensor, for operators that resize or restride their argument."""
        if not self.offset:
            return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=META)
        extent = sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True) if n > 0)
        base = torch.empty(self.offset + extent + 1, dtype=self.dtype, device=META)
        return base.as_strided(self.shape, self.stride, self.offset)

    def __repr__(self) -> str:
        """Return a text such as ``float32[2, 3]@mps``."""
        return f"{self.dtype_name}{list(self.shape)}@{self.device}"


_interned: dict[tuple[object, ...], TensorMeta] = {}


def intern(
    shape: Sizes, stride: Sizes, dtype: torch.dtype, offset: int = 0, device: str = "mps", layout: Any = torch.strided
) -> TensorMeta:
    """Return the single TensorMeta of this metadata."""
    key = (shape, stride, dtype, offset, device, layout)
    if (spec := _interned.get(key)) is None:
        spec = _interned[key] = TensorMeta(shape, stride, dtype, offset, device, layout)
    return spec


def spec_of(tensor: torch.Tensor, device: str = "mps") -> TensorMeta:
    """Return the TensorMeta of any tensor; strides are empty for layouts that have none."""
    if tensor.layout is torch.strided:
        # Not its shape, which an uninitialized parameter refuses (torch/nn/parameter.py).
        return intern(tuple(tensor.size()), tensor.stride(), tensor.dtype, int(tensor.storage_offset()), device)
    return intern(tuple(tensor.shape), (), tensor.dtype, 0, device, tensor.layout)


def contiguous(shape: tuple[int, ...], dtype: torch.dtype) -> TensorMeta:
    """Return the TensorMeta of a new contiguous tensor."""
    steps = itertools.accumulate((max(size, 1) for size in reversed(shape)), operator.mul, initial=1)
    return intern(tuple(shape), tuple(steps)[-2::-1], dtype)


def ambient() -> tuple[Any, ...]:
    """Return the hashable state of the process that a composite's body may branch on.

    The default dtype alone decides the metadata of a leaf call's results: what is kept of those goes by it (as in
    torch/_subclasses/fake_tensor.py, ``_cache_key``).
    """
    cast = torch.get_autocast_dtype("mps") if torch.is_autocast_enabled("mps") else None
    return (
        torch.get_default_dtype(),
        cast,
        torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


class Boxed:
    """Marks floats, bools and sequences in a key: ``1 == 1.0 == True`` would share one otherwise."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        """Return the name of the kind."""
        return self.kind


FLOAT, COMPLEX, LIST, TUPLE, DICT = map(Boxed, ("float", "complex", "list", "tuple", "dict"))
TRUE, FALSE = Boxed("True"), Boxed("False")


def map_nested(leaf: Callable[[Any], Any], value: Any) -> Any:
    """Return the value with the function applied to all that its lists, tuples and dicts contain."""
    kind = type(value)
    if kind is list or kind is tuple:
        return kind(map_nested(leaf, item) for item in value)
    if kind is dict:
        return {name: map_nested(leaf, item) for name, item in value.items()}
    return leaf(value)


def encode(value: Any) -> Any:
    """Return the key of a non-tensor argument: hashable, type-exact, and read back by ``decode``."""
    kind = type(value)
    if kind is int or kind is str or value is None:
        return value
    if kind is bool:
        return TRUE if value else FALSE
    if kind is float:
        return (FLOAT, value)
    if kind is list:
        return (LIST, *map(encode, value))
    if kind is tuple or isinstance(value, tuple):
        return (TUPLE, *map(encode, value))
    if kind is dict:
        return (DICT, *((name, encode(item)) for name, item in value.items()))
    if kind is complex:
        return (COMPLEX, value)
    return value


def decode(key: Any) -> Any:
    """Return the argument that ``encode`` made the key of; a TensorMeta stays a TensorMeta."""
    if key is TRUE:
        return True
    if key is FALSE:
        return False
    if type(key) is tuple:
        head = key[0]
        if head is FLOAT or head is COMPLEX:
            return key[1]
        if head is LIST:
            return [decode(item) for item in key[1:]]
        if head is TUPLE:
            return tuple(decode(item) for item in key[1:])
        if head is DICT:
            return {name: decode(item) for name, item in key[1:]}
    return key
