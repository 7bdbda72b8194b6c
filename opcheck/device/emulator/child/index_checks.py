"""Say what a Mac does with an index out of range, where this machine's CPU raises.

The Metal kernels of a release check an index or do not; MPSGraph gives zeros or drops the write. A check writes into
MPSStream's buffer of errors, and Python raises torch.AcceleratorError when the program next waits for the GPU
(c10/metal/error.h, since 2.10); the emulation raises at the call.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from opcheck.common.versions import Span, Version

#: the arguments of a call by their names, with the CPU's values
Given = Mapping[str, Any]

#: texts of the CPU's checks
_OF_INDICES = re.compile(
    r"out of (?:range|bounds)|not in the valid range|invalid max index", re.IGNORECASE
)


class OutOfRangeError(Exception):
    """The text with which a Mac raises torch.AcceleratorError."""


class _IndexCheck(NamedTuple):
    operators: re.Pattern[str]
    releases: Span
    #: the text of the kernel; empty: it has no check
    text: str = ""


def _index_check(operators: str, since: str, until: str | None, text: str = "") -> _IndexCheck:
    span = Span(since=Version.parse(since), until=Version.parse(until) if until else None)
    return _IndexCheck(re.compile(rf"aten::_?(?:{operators})(?:\.|$)"), span, text)


_INDEX = r"index|index_put_?|index_put_impl_"
_SCATTER = r"scatter_?|scatter_add_?|scatter_reduce_?"
_NUMBERED = "Index {position} is out of bounds: {index}, range 0 to {size}"
_SIZED = "index {index} is out of bounds for dimension with size {size}"

#: The strings of the kernels in the macOS wheels 2.9.1 to 2.15.0 (Indexing.metal, ScatterGather.metal, LossOps.metal,
#: Pooling.metal, EmbeddingBag.metal); without a kernel of Metal, MPSGraph computes (issues 111669, 144824, 108148).
_INDEX_CHECKS = (
    _index_check(_INDEX, "1.13", "2.10"),
    _index_check(
        _INDEX, "2.10", "2.12", "Index {index} is out of bounds: {dim}, range 0 to {size}"
    ),
    _index_check(
        _INDEX, "2.12", None, "index {index} is out of bounds for dimension {dim} with size {size}"
    ),
    _index_check("embedding|index_select|index_add_?", "1.13", "2.14"),
    _index_check("embedding|index_select|index_add_?", "2.14", None, _SIZED),
    _index_check("index_copy_?", "2.8", None),
    _index_check("index_fill_?|index_reduce_?", "2.12", None),
    _index_check("gather", "1.13", "2.13"),
    _index_check("gather", "2.13", None, f"gather: {_SIZED}"),
    _index_check(_SCATTER, "1.13", "2.13"),
    _index_check(_SCATTER, "2.13", None, f"scatter: {_SIZED}"),
    _index_check("nll_loss2?d?_forward", "1.13", "2.15"),
    _index_check("nll_loss2?d?_forward", "2.15", None, "Target {index} is out of bounds."),
    _index_check("embedding_bag|embedding_bag_forward_only", "2.10", None, _NUMBERED),
    _index_check("max_unpool[23]d", "2.9", "2.10"),
    _index_check("max_unpool[23]d", "2.10", "2.12", _NUMBERED),
    _index_check(
        "max_unpool[23]d", "2.12", None, "Found an invalid max index: {index} (size_prod is {size})"
    ),
)


class Indices(NamedTuple):
    """A tensor of indices among the arguments of a call."""

    #: the argument, and the place in it where it is a list
    argument: str
    place: int | None
    tensor: torch.Tensor
    dim: int
    #: how many values there are from 0 on
    size: int
    #: the lowest value that stands for one from the end; 0 where none does
    lowest: int = 0

    def outside(self) -> torch.Tensor:
        """Return the mask of what is out of range."""
        return (self.tensor < self.lowest) | (self.tensor >= self.size)


def indices(given: Given) -> Iterator[Indices]:
    """Return the tensors of indices of a call, as far as their ranges are known.

    Raises:
        KeyError, IndexError, AttributeError: an argument is missing.
    """
    first = given["weight"] if "indices" in given and "weight" in given else given["self"]
    if "target" in given:
        target = given["target"]
        ignored = target == given.get("ignore_index", -100)
        dim = 1 if first.dim() > 1 else 0
        yield Indices("target", None, target.masked_fill(ignored, 0), dim, first.shape[dim])
    elif "output_size" in given:
        yield Indices("indices", None, given["indices"], 0, math.prod(given["output_size"]))
    elif "index" in given:
        dim = given["dim"]
        size = first.shape[dim] if first.dim() else 1
        lowest = -size if "value" in given and "src" not in given else 0
        yield Indices("index", None, given["index"], dim, size, lowest)
    elif isinstance(given["indices"], torch.Tensor):
        yield Indices("indices", None, given["indices"], 0, first.shape[0])
    else:
        dim = 0
        for place, index in enumerate(given["indices"]):
            if index is not None and index.dtype not in (torch.bool, torch.uint8):
                size = first.shape[dim]
                yield Indices("indices", place, index, dim, size, -size)
            dim += 1 if index is None or index.dtype is not torch.bool else index.dim()


def in_range(error: Exception, operator: str, given: Given, release: Version) -> Given | None:
    """Return the arguments with which the call goes on where a Mac checks no index; None: another error.

    Args:
        error: raised by the CPU's kernel.
        operator: the overload.
        given: its arguments.
        release: the target's torch.

    Raises:
        OutOfRangeError: a Mac checks the index, too.
    """
    check = next(
        (c for c in _INDEX_CHECKS if c.operators.match(operator) and release in c.releases), None
    )
    if check is None or not _OF_INDICES.search(str(error)):
        return None
    changed = dict(given)
    for each in indices(given):
        mask = each.outside()
        for position in mask.flatten().nonzero().flatten()[:1].tolist():
            value = int(each.tensor.flatten()[position])
            # EmbeddingBag.metal compares with >, not >= (issue 189971).
            if check.text and not ("embedding_bag" in operator and value == each.size):
                numbers = {"index": value, "position": position, "dim": each.dim, "size": each.size}
                raise OutOfRangeError(check.text.format(**numbers))
        inside = each.tensor.masked_fill(mask, 0)
        if each.place is None:
            changed[each.argument] = inside
        else:
            changed[each.argument] = [*changed[each.argument]]
            changed[each.argument][each.place] = inside
    return changed
