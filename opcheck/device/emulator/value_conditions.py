"""Evaluate, on the values of a call, the conditions of statements that are written in words (``when``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

#: the arguments of a call by their names: tensors of the CPU with the call's values, other arguments as they are
Given = Mapping[str, Any]


def _tensors(given: Given) -> list[torch.Tensor]:
    return [value for value in given.values() if isinstance(value, torch.Tensor)]


def _first(given: Given) -> torch.Tensor:
    tensor: torch.Tensor = given["self"] if "self" in given else given["input"]
    return tensor


def _has_nan(tensor: torch.Tensor) -> bool:
    return bool(tensor.isnan().any())


def _is_blocked(given: Given) -> bool:
    mask = given["attn_mask"]
    blocked = ~mask if mask.dtype == torch.bool else mask == -math.inf
    return bool(blocked.all(-1).any())


def _is_far_below(given: Given) -> bool:
    mask = given["attn_mask"]
    return bool(((mask < -1e9).all(-1) & (mask != -math.inf).all(-1)).any())


def _varies_little(given: Given) -> bool:
    rows = given["input"].double().reshape(-1, math.prod(given["normalized_shape"]))
    return bool((rows.var(-1, unbiased=False) < 1e-6).any())


def _is_out_of_range(given: Given) -> bool:
    index, size = given["index"], _first(given).shape[given["dim"]]
    return bool(((index < -size) | (index >= size)).any())


def _misses_a_class(given: Given) -> bool:
    target = given["target"][given["target"] != given.get("ignore_index", -100)]
    classes = _first(given).shape[-1]
    return bool(((target < 0) | (target >= classes)).any())


def _passes_its_range(given: Given) -> bool:
    x = _first(given)
    sums = x.long().cumsum(given["dim"]).abs()
    narrow = torch.iinfo(torch.int8 if x.dtype == torch.bool else x.dtype)
    return bool((sums > narrow.max).any())


#: the words of ``when`` -> whether they hold for a call
CONDITIONS: Mapping[str, Callable[[Given], bool]] = {
    "the input holds a NaN": lambda given: _has_nan(_first(given)),
    "an input holds a NaN": lambda given: any(map(_has_nan, _tensors(given))),
    "a factor holds a NaN": lambda given: any(map(_has_nan, _tensors(given))),
    "the grid holds a NaN": lambda given: _has_nan(given["grid"]),
    "the input holds NaN or an infinity": lambda given: not bool(_first(given).isfinite().all()),
    "a row of the mask is False throughout": _is_blocked,
    "a row of the mask is False, or -inf, throughout": _is_blocked,
    "the mask of a row is below -1e9 throughout, and not -inf, as torch.finfo(dtype).min is": (
        _is_far_below
    ),
    "a row's variance is below 1e-6": _varies_little,
    "an index is out of range": _is_out_of_range,
    "a target is out of range": _misses_a_class,
    "the sum passes the range of the narrow type": _passes_its_range,
    "an operand is a conjugated view, such as x.conj() or x.mH": lambda given: any(
        tensor.is_conj() for tensor in _tensors(given)
    ),
}


def holds(words: str, given: Given) -> bool | None:
    """Return whether the words hold for a call; None where its arguments do not decide it."""
    condition = CONDITIONS.get(words)
    if condition is None:
        return None
    try:
        with torch.no_grad():
            return condition(given)
    except (KeyError, IndexError, RuntimeError, TypeError, AttributeError):
        return None
