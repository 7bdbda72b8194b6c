"""Substitute values where the program needs values that a run on shapes does not have.

An unknown value never ends the run: a number is made up, and a selection is taken as if everything were selected, so
that two selections by one mask agree.  Each assumption is recorded, because what follows rests on it.  The rules of
single operators are in simulator/dispatch/operators.
"""

from typing import Any, NamedTuple

import torch

from opcheck.simulator.dispatch.tensor import is_on_mps
from opcheck.simulator.dispatch.tensor_meta import META, TensorMeta

#: elements that a selection has at most: a program may loop over them.
MOST_SELECTED = 1 << 20
#: different values that a tensor has at most: programs loop over classes.
MOST_DIFFERENT = 100
#: boxes that a non-maximum suppression keeps at most: programs loop over what is left.
MOST_BOXES = 1_000
#: equal answers that a line gets before it gets others: more than a detector has boxes, which it
#: loops over.
SAME_ANSWERS = 128
#: the largest number that is made up: it may become a size or the length of a loop.
_LARGEST = 1 << 10


class Guess(NamedTuple):
    """The results of a call under an assumption about its unknown values."""

    #: metadata; or real values, where what was assumed gives them
    results: tuple[TensorMeta | torch.Tensor, ...]
    #: in words, what was assumed; empty where the values were known after all
    assumed: str


def scalar(dtype: torch.dtype, times: int, *, checks: bool = False) -> Any:
    """Return the number or bool that is substituted for an unknown value.

    Args:
        dtype: bool, or that of the tensor which the number is read from.
        times: how many queries the same place made before.
        checks: the bool is the result of a check, which the program most likely asserts.
    """
    if dtype is torch.bool:
        return _turns(times) is not checks
    number = _number(times)
    if dtype.is_complex:
        return complex(number)
    return float(number) if dtype.is_floating_point else number


def _number(times: int) -> int:
    """Return 1 at first; later alternate 0 and growing numbers, so that loops up and loops down both end."""
    if times < SAME_ANSWERS:
        return 1
    turn, odd = divmod(times - SAME_ANSWERS, 2)
    return min(2 << turn, _LARGEST) if odd else 0


def make_copy(spec: TensorMeta, times: int) -> tuple[torch.Tensor, str]:
    """Return the content of a copy to the host, and its name."""
    name, value = ("ones", 1) if _turns(times) else ("zeros", 0)
    return torch.full(spec.shape, value, dtype=spec.dtype), name


def _turns(times: int) -> bool:
    """Return whether to deviate from the first answer; answers alternate after many equal ones."""
    return times >= SAME_ANSWERS and (times - SAME_ANSWERS) % 2 == 0


def without_masks(args: Any) -> tuple[Any, str] | None:
    """Return the arguments with indices in place of masks, and what was assumed; None if there is no mask.

    An index that a mask selects is a meta tensor, because no code reads its values.
    """
    self, indices, *rest = args
    if not any(index is not None and _is_mask(index) for index in indices):
        return None
    assumed = ""
    replaced: list[torch.Tensor | None] = []
    for index in indices:
        if index is None or not _is_mask(index):
            replaced.append(index)
            continue
        count, text = count_selected(index, index.numel())
        assumed = assumed or text
        replaced += [torch.empty(count, dtype=torch.int64, device=META)] * max(index.dim(), 1)
    return (self, replaced, *rest), assumed


def _is_mask(index: torch.Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


def known_values(tensor: Any) -> torch.Tensor | None:
    """Return the values of a tensor if they are known, else None."""
    if not is_on_mps(tensor):
        return tensor if isinstance(tensor, torch.Tensor) and not tensor.is_meta else None
    return tensor._mps.payload if tensor._mps.memory.known else None


def count_selected(mask: torch.Tensor, elements: int) -> tuple[int, str]:
    """Return how many of ``elements`` a mask selects, and what was assumed."""
    if (values := known_values(mask)) is not None:
        return int(torch.count_nonzero(values)) * elements // max(mask.numel(), 1), ""
    return all_selected(elements)


def all_selected(elements: int) -> tuple[int, str]:
    """Return how many of ``elements`` an unknown mask is assumed to select, and the assumption in words."""
    if elements <= MOST_SELECTED:
        return elements, "as if every element were selected"
    return MOST_SELECTED, f"as if {MOST_SELECTED:,} elements were selected"
