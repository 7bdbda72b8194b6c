"""Arguments that a guess led to and that fit nothing: they are made to fit, and that is told as a guess of its own.

Counts that were made up do not sum to what they count.  Where no value was guessed before, such a call raises as it
does on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: The arguments in place of a call's own, and what is assumed with them; None: they fit.
Fitted = tuple[tuple[Any, ...], str] | None


def _parts(args: Any, kwargs: Any) -> Fitted:
    """A split into counted parts, as a router counts the tokens of each expert."""
    x, sizes = args[0], args[1]
    dim = args[2] if len(args) > 2 else kwargs.get("dim", 0)
    size = x.shape[dim] if x.dim() else None
    if size is None or not sizes or not all(type(one) is int for one in sizes):
        return None
    if sum(sizes) == size and min(sizes) >= 0:
        return None
    share, more = divmod(size, len(sizes))
    equal = [share + (place < more) for place in range(len(sizes))]
    return (x, equal, *args[2:]), "as if the parts were equal"


#: Operator -> what makes its arguments fit.
FIT: dict[str, Callable[[Any, Any], Fitted]] = {
    "aten::split_with_sizes": _parts,
    "aten::split_with_sizes_copy": _parts,
    "aten::unsafe_split_with_sizes": _parts,
}
