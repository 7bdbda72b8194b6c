"""Answers where the program asks for values that a run on shapes does not have.

A guess never ends the run: a number is made up, a selection is taken as if everything were selected, so that two
selections by one mask agree.  Each guess is told to the sink, and what follows rests on it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from opcheck.simulator.tensor import is_on_mps
from opcheck.simulator.tensor_meta import META, Spec, contiguous

if TYPE_CHECKING:
    from collections.abc import Callable

    from opcheck.simulator.routes import Route

#: elements that a selection has at most: a program may loop over them.
MOST_SELECTED = 1 << 20
#: different values that a tensor has at most: programs loop over classes.
MOST_DIFFERENT = 100
#: boxes that a non-maximum suppression keeps at most: programs loop over what is left.
MOST_BOXES = 1_000
#: equal answers that a line gets before it gets others: more than a detector has boxes, which it loops over.
SAME_ANSWERS = 128
#: the largest number that is made up: it may become a size or the length of a loop.
_LARGEST = 1 << 10

#: operators that take masks as indices: their meta kernels count what a mask selects.
INDEXED = frozenset(
    {
        "aten::index.Tensor",
        "aten::_unsafe_index.Tensor",
        "aten::index_put",
        "aten::index_put_",
        "aten::_unsafe_index_put",
        "aten::_index_put_impl",
        "aten::_index_put_impl_",
    }
)

#: operators whose result is a bool, not a tensor.
_COMPARISONS = frozenset({"aten::equal", "aten::allclose"})

#: what these give is most often asserted, where it is asked for: ``if not (a >= b).all(): raise``.
CHECKS = frozenset({"aten::all", "aten::all.dim", "aten::all.dims", "aten::_is_all_true"})

Arguments = dict[str, Any]


class Guess(NamedTuple):
    """The results of a call as if its values were such."""

    #: metadata; or real values, where what was assumed gives them
    results: tuple[Spec | torch.Tensor, ...]
    #: in words, what was assumed; empty where the values were known after all
    assumed: str


def scalar(route: Route, args: Any, times: int, *, checks: bool = False) -> Any:
    """The number or bool that a call is answered with.

    Args:
        route: of the call.
        args: its arguments.
        times: how often the same place asked before.
        checks: the bool is what one of CHECKS gave just now.
    """
    dtype = torch.bool if route.name in _COMPARISONS else args[0].dtype
    if dtype is torch.bool:
        return _turns(times) is not checks
    number = _number(times)
    if dtype.is_complex:
        return complex(number)
    return float(number) if dtype.is_floating_point else number


def _number(times: int) -> int:
    """One; later by turns nothing and ever more, so that loops up and loops down both end."""
    if times < SAME_ANSWERS:
        return 1
    turn, odd = divmod(times - SAME_ANSWERS, 2)
    return min(2 << turn, _LARGEST) if odd else 0


def copied(spec: Spec, times: int) -> tuple[torch.Tensor, str]:
    """What a copy to the host holds, and how that is called."""
    if _turns(times):
        return torch.ones(spec.shape, dtype=spec.dtype), "ones"
    return torch.zeros(spec.shape, dtype=spec.dtype), "zeros"


def _turns(times: int) -> bool:
    """Not the first answer: by turns, once the same was given often enough."""
    return times >= SAME_ANSWERS and (times - SAME_ANSWERS) % 2 == 0


def tensors(route: Route, args: Any, kwargs: Any, *, keep: int) -> Guess | None:
    """The results of a call whose shapes depend on unknown values; None for any other call.

    Args:
        route: of the call.
        args: positional arguments.
        kwargs: the others.
        keep: elements up to which results get values, where what is assumed gives them.
    """
    rule = _RULES.get(route.name)
    if rule is None:
        return None
    given = {**dict(zip(route.arguments, args, strict=False)), **kwargs}
    return rule(given, keep)


def without_masks(args: Any) -> tuple[Any, str] | None:
    """The arguments of an INDEXED operator with indices in place of masks; None if it has no mask.

    An index that a mask selects is a meta tensor: what it holds is nobody's business.
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
        count, said = _selected(index, index.numel())
        assumed = assumed or said
        replaced += [torch.empty(count, dtype=torch.int64, device=META)] * max(index.dim(), 1)
    return (self, replaced, *rest), assumed


def _is_mask(index: torch.Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


def _values(tensor: Any) -> torch.Tensor | None:
    """The values of a tensor, where they are known."""
    if not is_on_mps(tensor):
        return tensor if isinstance(tensor, torch.Tensor) and not tensor.is_meta else None
    return tensor._mps.payload if tensor._mps.memory.known else None


def _selected(mask: torch.Tensor, elements: int) -> tuple[int, str]:
    """How many of ``elements`` a mask selects, and what was assumed for it."""
    known = _values(mask)
    if known is not None:
        chosen = int(torch.count_nonzero(known))
        return chosen * elements // max(mask.numel(), 1), ""
    return _all(elements)


def _all(elements: int) -> tuple[int, str]:
    if elements <= MOST_SELECTED:
        return elements, "as if every element were selected"
    return MOST_SELECTED, f"as if {MOST_SELECTED:,} elements were selected"


def _nonzero(given: Arguments, keep: int) -> Guess:
    x = given["self"]
    count, assumed = _all(x.numel())
    if x.numel() * x.dim() <= keep:
        return Guess((torch.ones(x.shape, dtype=torch.bool).nonzero(),), assumed)
    return Guess((contiguous((count, x.dim()), torch.int64),), assumed)


def _masked_select(given: Arguments, _keep: int) -> Guess:
    x, mask = given["self"], given["mask"]
    elements = math.prod(torch.broadcast_shapes(x.shape, mask.shape))
    count, assumed = _selected(mask, elements)
    return Guess((contiguous((count,), x.dtype),), assumed)


def _unique(given: Arguments, _keep: int) -> Guess:
    x = given["self"]
    dim = given.get("dim")
    size = x.numel() if dim is None else x.shape[dim]
    kept = size if dim is not None else min(size, MOST_DIFFERENT)
    shape = (kept,) if dim is None else tuple(x.shape)
    inverse = tuple(x.shape) if dim is None else (size,)
    results = [
        contiguous(shape, x.dtype),
        contiguous(inverse if given.get("return_inverse") else (0,), torch.int64),
        contiguous((kept,) if given.get("return_counts") else (0,), torch.int64),
    ]
    how_many = "all" if kept == size else f"{kept:,}"
    return Guess(tuple(results), f"as if {how_many} values were different")


def _unique_and_inverse(given: Arguments, keep: int) -> Guess:
    results, assumed = _unique(given, keep)
    return Guess(results[:2], assumed)


def _unique_dim(given: Arguments, keep: int) -> Guess:
    # Its kernels make the inverse and the counts whether asked or not (native/Unique.cpp, _unique_dim_cpu_template).
    return _unique({**given, "return_inverse": True, "return_counts": True}, keep)


def _bincount(given: Arguments, _keep: int) -> Guess:
    weights = given.get("weights")
    length = max(given.get("minlength", 0), 2)
    # native/SummaryOps.cpp: sums of weights that are not float32 are float64, which MPS has not.
    dtype = torch.int64 if weights is None else torch.float32
    return Guess((contiguous((length,), dtype),), f"as if no value were above {length - 1}")


def _repeat_interleave(given: Arguments, keep: int) -> Guess:
    repeats = given["repeats"]
    size = given.get("output_size")
    if size is not None:
        return Guess((contiguous((size,), torch.int64),), "")
    count = repeats.numel()
    assumed = "as if each were repeated once"
    return Guess(
        (torch.arange(count) if count <= keep else contiguous((count,), torch.int64),), assumed
    )


def _repeat_interleave_of(given: Arguments, _keep: int) -> Guess:
    shape, dim, size = list(given["self"].shape), given.get("dim"), given.get("output_size")
    if dim is None:
        shape, dim = [given["self"].numel()], 0
    repeats = _values(given["repeats"])
    if repeats is not None:
        size = int(repeats.expand(shape[dim]).sum())
    assumed = "" if size is not None else "as if each were repeated once"
    shape[dim] = shape[dim] if size is None else size
    return Guess((contiguous(tuple(shape), given["self"].dtype),), assumed)


def _lstsq(given: Arguments, _keep: int) -> Guess:
    # native/BatchLinearAlgebra.cpp, linalg_lstsq_out: residuals are there if the rank is full and m > n.
    a, b = given["self"], given["b"]
    lead, (rows, columns) = a.shape[:-2], a.shape[-2:]
    is_vector = b.dim() == 1 or tuple(b.shape) == tuple(a.shape[:-1])
    tail = () if is_vector else (b.shape[-1],)
    full = rows > columns
    real = torch.empty(0, dtype=a.dtype).abs().dtype
    results = (
        contiguous((*lead, columns, *tail), a.dtype),
        contiguous((*lead, *(tail or (1,))) if full else (0,), real),
        contiguous(tuple(lead), torch.int64),
        contiguous((*lead, min(rows, columns)), real),
    )
    return Guess(results, "as if the matrix had full rank")


def _nms(given: Arguments, _keep: int) -> Guess:
    count = given["dets"].shape[0]
    kept = min(count, MOST_BOXES)
    said = "as if no box were suppressed" if kept == count else f"as if {kept:,} boxes were kept"
    return Guess((torch.arange(kept),), said)


_RULES: dict[str, Callable[[Arguments, int], Guess]] = {
    "aten::nonzero": _nonzero,
    "aten::argwhere": _nonzero,
    "aten::masked_select": _masked_select,
    "aten::_unique2": _unique,
    "aten::unique_consecutive": _unique,
    "aten::unique_dim": _unique_dim,
    "aten::unique_dim_consecutive": _unique_dim,
    "aten::_unique": _unique_and_inverse,
    "aten::bincount": _bincount,
    "aten::repeat_interleave.Tensor": _repeat_interleave,
    "aten::repeat_interleave.self_Tensor": _repeat_interleave_of,
    "aten::linalg_lstsq": _lstsq,
    "torchvision::nms": _nms,
    "torchvision::qnms": _nms,
}
