"""What a Mac does with arguments that this machine's CPU refuses: values, and indices out of range.

A check of a function that all devices share raises on a Mac, too. A check inside of the CPU's kernel may have a
counterpart in the kernel for MPS, with the same text or with another, or none.

The Metal kernels of a release check an index or do not; MPSGraph gives zeros or drops the write. A check writes into
MPSStream's buffer of errors, and Python raises torch.AcceleratorError when the program next waits for the GPU
(c10/metal/error.h, since 2.10); the emulation raises at the call.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from opcheck.common.versions import Span, Version
from opcheck.tracing.torch_private.trees import tree_map_only

#: the arguments of a call by their names, with the CPU's values
Given = Mapping[str, Any]

#: texts of the CPU's checks
_OF_INDICES = re.compile(
    r"out of (?:range|bounds)|not in the valid range|invalid max index", re.IGNORECASE
)


class OutOfRangeError(Exception):
    """The text of the torch.AcceleratorError that a Mac raises."""


class _IndexCheck(NamedTuple):
    operators: re.Pattern[str]
    releases: Span
    #: the text of the kernel; empty: it has no check
    text: str = ""


def _index_check(operators: str, since: str, until: str | None, text: str = "") -> _IndexCheck:
    pattern = re.compile(rf"aten::_?(?:{operators})(?:\.|$)")
    return _IndexCheck(pattern, Span.of(since, until), text)


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
    #: the lowest value that counts from the end; 0 where none does
    lowest: int = 0

    def outside(self) -> torch.Tensor:
        """Return the mask of the indices out of range."""
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
    """Return the arguments that the call continues with where a Mac checks no index; None: another error.

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


#: the attribute of the errors that an emulated Mac raises
_MARK = "_opcheck_raised_on_a_mac"


#: the kinds of ``Problem`` that such an error is: a finding of the call explains it, or every device raises it
CALL_RAISED, REFUSED_EVERYWHERE = "call_raised", "refused_everywhere"


def mark_raised_on_a_mac(error: BaseException, kind: str = REFUSED_EVERYWHERE) -> BaseException:
    """Note on an error that a Mac raises it, and return it."""
    setattr(error, _MARK, kind)
    return error


def kind_on_a_mac(error: BaseException) -> str:
    """Return the kind of ``Problem`` of an error that an emulated Mac raised, in any thread; empty for others."""
    return str(getattr(error, _MARK, ""))


class NotCheckedError(Exception):
    """A Mac does not check what the CPU refuses; ``arguments`` are those that the call continues with."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.arguments = arguments


class _ValueCheck(NamedTuple):
    """What a Mac does where the CPU's kernel raises."""

    operators: re.Pattern[str]
    #: how the CPU's text begins, or a part of it
    text: re.Pattern[str]
    releases: Span
    #: replaces that part of the CPU's text; empty: it is the Mac's
    on_mac: str = ""
    #: None: the CPU's. Python raises torch.AcceleratorError when the program next waits for the GPU; the emulation, at
    #: the call.
    raised: type[Exception] | None = None
    #: an argument, and its replacement in the call, where no Mac checks it
    unchecked: tuple[str, Callable[[Any], Any]] | None = None


def _check(
    operators: str, text: str, since: str, until: str | None = None, **more: Any
) -> _ValueCheck:
    pattern = re.compile(rf"aten::_?(?:{operators})_?(?:\.|$)")
    return _ValueCheck(pattern, re.compile(text), Span.of(since, until), **more)


def _without_zeros(divisor: Any) -> Any:
    if not isinstance(divisor, torch.Tensor):
        return divisor or 1
    return divisor.masked_fill(divisor == 0, 1)


def _as_probabilities(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.nan_to_num(nan=0.0).clamp(0, 1)


def _from_zero(offsets: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(offsets)


_DISTRIBUTIONS = "exponential|geometric|log_normal|cauchy"

#: For a status of MPSMatrixDecomposition that is below zero (LinearAlgebra.mm, 2.7 to 2.9) the shared check of
#: ``info`` (native/LinearAlgebraUtils.h) asserts; from 2.10 to 2.13 the status becomes 2.
_ILLEGAL = (
    r"\g<api>: Argument 2 has illegal value. Most certainly there is a bug in the implementation calling the backend "
    "library."
)
_INFO = "linalg_check_errors|linalg_lu_factor"
_API = r"^(?P<api>(torch\.)?linalg\.(inv|solve|solve_ex|lu_factor|lu_factor_ex|cholesky)):"

#: mps/operations of PyTorch: Distributions.mm and native/Distributions.cpp, which MPS shares since 2.13, BinaryOps.mm,
#: SummaryOps.mm, LossOps.mm, Repeat.mm, Indexing.mm, EmbeddingBag.mm, Assert.mm, and the texts in the macOS wheels.
_CHECKS = (
    _check("multinomial", "^probability tensor|sum of probabilities", "1.13", "2.13"),
    _check("multinomial", "^probability tensor|sum of prob", "2.13", raised=torch.AcceleratorError),
    _check(
        "multinomial", "probability entry", "1.13", "2.13", unchecked=("self", _as_probabilities)
    ),
    _check("assert_async", "", "2.13", raised=torch.AcceleratorError),
    _check("normal", r"found std ", "2.1"),
    _check("normal", r"found std ", "1.13", "2.1", on_mac="normal_mps_ expects std >= 0.0, but"),
    _check("normal", "all elements of std", "1.13", "2.13", unchecked=("std", torch.abs)),
    _check("normal", "all elements of std", "2.13"),
    _check("bernoulli", r"^bernoulli_ expects", "1.13", on_mac="bernoulli_mps_ expects"),
    _check("bernoulli", r"p_in >= 0", "1.13", unchecked=("self", _as_probabilities)),
    _check("bernoulli", r"p_in >= 0", "1.13", unchecked=("p", _as_probabilities)),
    _check("uniform", "^uniform_ expects", "1.13"),
    _check("random", "^random_ expects", "1.13", "2.13", on_mac="random_mps_ expects"),
    _check("random", "^random_ expects", "2.13"),
    _check(
        "exponential", "expects", "1.13", "2.1", on_mac="exponential_mps_: lambda must be greater than zero"
    ),
    _check(_DISTRIBUTIONS, "expects", "2.1"),
    _check("floor_divide|div|remainder|fmod", "Zero", "1.13", unchecked=("other", _without_zeros)),
    _check("bincount", "non-negative integral inputs", "2.0"),
    _check(
        "binary_cross_entropy", "between 0 and 1", "1.13", unchecked=("self", _as_probabilities)
    ),
    _check("repeat_interleave", "can not be negative", "2.0"),
    _check("masked_scatter", "^Number of elements of source", "2.12"),
    _check(
        "embedding_bag|embedding_bag_forward_only",
        r"^offsets\[",
        "2.10",
        unchecked=("offsets", _from_zero),
    ),
    _check(_INFO, r"^linalg\.inv: .*singular", "2.0", "2.8", unchecked=("info", torch.zeros_like)),
    _check(_INFO, f"{_API}.*(singular|is zero).*", "2.5", "2.10", raised=RuntimeError, on_mac=_ILLEGAL),
    _check(_INFO, r"element \d+ is", "2.10", "2.14", on_mac="element 2 is"),
    _check(_INFO, r"U\[\d+,\d+\] is zero", "2.10", "2.14", on_mac="U[2,2] is zero"),
    _check(_INFO, f"{_API}.*(singular|is zero)", "2.10"),
    _check(_INFO, f"{_API}.*positive-definite", "2.7"),
)  # fmt: skip


def raised_instead(
    error: Exception, operator: str, given: Mapping[str, Any], release: Version
) -> Exception | None:
    """Return what a Mac raises where the CPU's kernel raised ``error``; None where that is not known.

    Args:
        error: raised by the CPU's kernel.
        operator: the overload.
        given: its arguments by their names.
        release: the target's torch.

    Raises:
        NotCheckedError: a Mac raises nothing.
    """
    text = str(error)
    for check in _CHECKS:
        found = check.text.search(text)
        if not (found and check.operators.match(operator) and release in check.releases):
            continue
        if check.unchecked is None:
            # The CPU's text up to its number, where the two differ.
            shown = check.text.sub(check.on_mac, text, 1) if check.on_mac else text
            return (check.raised or type(error))(shown)
        name, change = check.unchecked
        if name in given:
            raise NotCheckedError({**given, name: change(given[name])})
    return None


def is_refused_everywhere(
    error: Exception, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
) -> bool:
    """Return whether the call raises on tensors without values, too: a check that all devices share.

    Its text may differ there: Python has meta kernels of its own (torch/_meta_registrations.py).
    """
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), (args, kwargs))
    if "device" in kwargs:
        kwargs = {**kwargs, "device": "meta"}
    try:
        function(*args, **kwargs)
    except NotImplementedError as other:
        return str(other) == str(error)
    except (RuntimeError, IndexError, ValueError, TypeError):
        return True
    return False
