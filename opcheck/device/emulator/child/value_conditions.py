"""Evaluate, on the values of a call, the conditions of statements that are written in words (``when``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from opcheck.device.emulator.child.index_checks import indices

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
    return any(bool(each.outside().any()) for each in indices(given))


def _is_number_of_rows(given: Given) -> bool:
    return any(bool((each.tensor == each.size).any()) for each in indices(given))


def _repeats(index: torch.Tensor) -> bool:
    return len(set(index.flatten().tolist())) < index.numel()


def _passes(given: Given, limit: float) -> bool:
    # In float64: abs() of the lowest integer is negative.
    return any(bool((tensor.double().abs() > limit).any()) for tensor in _tensors(given))


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
    "a target is out of range": _is_out_of_range,
    "an index is the number of rows": _is_number_of_rows,
    "an index occurs more than once": lambda given: _repeats(given["indices"]),
    "the index holds duplicates": lambda given: _repeats(given["index"]),
    "the last offset is not the number of indices": lambda given: (
        int(given["offsets"][-1]) != given["indices"].numel()
    ),
    "a number beyond 2**24": lambda given: _passes(given, 2**24),
    "the input of silu is 16777216 or more": lambda given: bool((given["self"] >= 2**24).any()),
    "a number is infinite": lambda given: any(bool(x.isinf().any()) for x in _tensors(given)),
    "the number is infinite": lambda given: bool(_first(given).isinf().any()),
    "the divisor is infinite": lambda given: bool(given["other"].isinf().any()),
    "the number is 0+0j": lambda given: bool((_first(given) == 0).any()),
    "an element of the base is 0": lambda given: bool((_first(given) == 0).any()),
    "query or key holds a NaN": lambda given: _has_nan(given["query"]) or _has_nan(given["key"]),
    "the mask of a row is torch.finfo(dtype).min throughout, as transformers makes it for padded rows": (
        lambda given: bool(
            (given["attn_mask"] == torch.finfo(given["attn_mask"].dtype).min).all(-1).any()
        )
    ),
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
