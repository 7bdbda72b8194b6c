"""What a Mac does with arguments that this machine's CPU refuses: values, and indices out of range.

A check of a function that all devices share raises on a Mac, too. A check inside of the CPU's kernel may have a
counterpart in the kernel for MPS, with the same text or with another, or none.

The Metal kernels of a release check an index or do not; MPSGraph gives zeros or drops the write. A check writes into
MPSStream's buffer of errors, and Python raises torch.AcceleratorError when the program next waits for the GPU
(c10/metal/error.h, since 2.10); the emulation raises at the call.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from opcheck.common.versions import Span, Version
from opcheck.common.yaml_text import load_shipped
from opcheck.tracing.torch_private.trees import tree_map_only

#: the arguments of a call by their names, with the CPU's values
Given = Mapping[str, Any]

#: texts of the CPU's checks
_OF_INDICES = re.compile(
    r"out of (?:range|bounds)|not in the valid range|invalid max index", re.IGNORECASE
)


class OutOfRangeError(Exception):
    """The text of the torch.AcceleratorError that a Mac raises."""


class Check(msgspec.Struct, frozen=True):
    """What a Mac does with arguments of some operators that the CPU's kernel refuses; a row of argument_checks.yaml."""

    operators: str
    since: str
    until: str | None = None
    text: str = ""
    on_mac: str = ""
    raised: str = ""
    unchecked: tuple[str, str] | None = None
    dtypes: frozenset[str] = frozenset()

    def fits(self, operator: str, release: Version) -> bool:
        """Return whether the row is about an overload in a release."""
        name = re.match(rf"aten::_?(?:{self.operators})_?(?:\.|$)", operator)
        return name is not None and release in Span.of(self.since, self.until)


#: rows by what they are about: indices, values and dtypes
CHECKS = msgspec.convert(
    load_shipped(Path(__file__).with_suffix(".yaml")), dict[str, tuple[Check, ...]]
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
    check = next((row for row in CHECKS["indices"] if row.fits(operator, release)), None)
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


def _without_zeros(divisor: Any) -> Any:
    if not isinstance(divisor, torch.Tensor):
        return divisor or 1
    return divisor.masked_fill(divisor == 0, 1)


def _as_probabilities(numbers: torch.Tensor) -> torch.Tensor:
    return numbers.nan_to_num(nan=0.0).clamp(0, 1)


#: what takes the place of an argument that no Mac checks, by its name in the table
CHANGES: Mapping[str, Callable[[Any], Any]] = {
    "absolute": torch.abs,
    "nonzero": _without_zeros,
    "probabilities": _as_probabilities,
    "zeros": torch.zeros_like,
}
_RAISED: Mapping[str, type[Exception]] = {
    kind.__name__: kind for kind in (torch.AcceleratorError, RuntimeError)
}


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
    for check in CHECKS["values"]:
        if not (re.search(check.text, text) and check.fits(operator, release)):
            continue
        if check.unchecked is None:
            # The CPU's text up to its number, where the two differ.
            shown = re.sub(check.text, check.on_mac, text, count=1) if check.on_mac else text
            return _RAISED.get(check.raised, type(error))(shown)
        name, change = check.unchecked
        if name in given:
            raise NotCheckedError({**given, name: CHANGES[change](given[name])})
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
