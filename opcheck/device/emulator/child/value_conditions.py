"""Evaluate the conditions of statements on the values of a call (``values`` in the op lists)."""

import functools
import math
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import torch

from opcheck.data.conditions import check_values
from opcheck.device.emulator.child.argument_checks import indices
from opcheck.tracing.torch_private.trees import tree_leaves, tree_map_only

#: the arguments of a call by their names: tensors of the CPU with the call's values, other arguments as they are
Given = Mapping[str, Any]


def _limits(tensor: torch.Tensor) -> Any:
    if tensor.is_floating_point():
        return torch.finfo(tensor.dtype)
    return torch.iinfo(torch.int8 if tensor.dtype == torch.bool else tensor.dtype)


def _distance_from_bins(given: Given) -> torch.Tensor:
    """Return how far each element of a histogram's input lies outside of the bins."""
    numbers, bins = given["self"].double(), given["bins"]
    if isinstance(bins, torch.Tensor):
        low, high = bins[0], bins[-1]
    else:
        low, high = given.get("range") or (given.get("min", 0), given.get("max", 0))
        if low == high == 0:  # the bins span the elements
            return torch.zeros_like(numbers)
    return torch.maximum(low - numbers, numbers - high).clamp_min(0)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": torch.abs,
    "all": torch.all,
    "any": torch.any,
    "blocked": lambda mask: ~mask if mask.dtype == torch.bool else mask == -math.inf,
    "cumsum": torch.cumsum,
    "exp": torch.exp,
    "flatten": torch.flatten,
    "floor": torch.floor,
    "highest": lambda tensor: _limits(tensor).max,
    "imag": lambda tensor: tensor.imag if tensor.is_complex() else torch.zeros_like(tensor),
    "is_deficient": lambda matrices: bool(
        (torch.linalg.matrix_rank(matrices) < min(matrices.shape[-2:])).any()
    ),
    "isfinite": torch.isfinite,
    "isinf": torch.isinf,
    "isnan": torch.isnan,
    "len": len,
    "log": torch.log,
    "long": torch.Tensor.long,
    "lowest": lambda tensor: _limits(tensor).min,
    "narrow": torch.Tensor.float,
    "real": torch.real,
    "repeats": lambda index: len(set(index.flatten().tolist())) < index.numel(),
    "spread": lambda tensor, dim: tensor.amax(dim) - tensor.amin(dim),
    "sum": torch.sum,
    "variance": lambda rows, shape: (
        rows.double().reshape(-1, math.prod(shape)).var(-1, unbiased=False)
    ),
    "wide": torch.Tensor.double,
}


def _widen(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128) if value.is_complex() else value


class _ConditionNames(dict[str, Any]):
    """The names of an expression; ``first`` and ``tensors`` are made when they are used."""

    def __init__(self, given: Given) -> None:
        super().__init__(_FUNCTIONS)
        # In complex128: complex32 has few operators on the CPU, and abs() of small numbers underflows in complex64.
        self.update(tree_map_only(torch.Tensor, _widen, dict(given)))
        self._tensors = [each for each in tree_leaves(given) if isinstance(each, torch.Tensor)]
        self.update(
            inf=math.inf,
            distance_from_bins=lambda: _distance_from_bins(given),
            is_any_conjugated=lambda: any(tensor.is_conj() for tensor in self._tensors),
            is_index_outside=lambda: any(bool(each.outside().any()) for each in indices(given)),
            is_index_at_end=lambda: any(
                bool((each.tensor == each.size).any()) for each in indices(given)
            ),
        )

    def __missing__(self, name: str) -> Any:
        if name == "first":
            return _widen(self._tensors[0])
        if name == "tensors":
            # In float64: abs() of the lowest integer is negative.
            wide = [_widen(t) if t.is_complex() else t.double() for t in self._tensors]
            return torch.cat([tensor.flatten() for tensor in wide])
        if name == "dim":  # the overload reduces all dimensions
            return None
        raise KeyError(name)


@functools.cache
def _compile_condition(text: str) -> CodeType:
    check_values(text)
    return compile(text, "values", "eval")


def holds(text: str, given: Given) -> bool | None:
    """Return whether the expression is true for a call; None where its arguments do not decide it."""
    try:
        with torch.no_grad():
            # It has passed check_values: no attributes, and no functions but those above.
            code, names = _compile_condition(text), _ConditionNames(given)
            return bool(eval(code, {"__builtins__": {}}, names))  # noqa: S307
    except (
        NameError,
        LookupError,
        StopIteration,
        RuntimeError,
        TypeError,
        AttributeError,
        ValueError,
    ):
        return None
