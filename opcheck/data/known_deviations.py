"""Known deviations of recorded calls from the calls on a Mac that the simulator cannot correct.

Most come from ``at::isTensorSubclassLike``, which is true for every simulated tensor:
FunctionsManual.cpp and some composites then skip the steps that read values on the host, and Python
cannot add a branch inside a C++ formula.  The list is the result of running PyTorch's operator
database on plain CPU tensors with and without a dispatch mode (torch 2.13.0).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opcheck.common.versions import Span, Version
from opcheck.common.yaml_text import load_shipped


class KnownDifference(NamedTuple):
    """A set of operators whose recorded calls differ from the calls on a Mac, and how they differ."""

    #: overloads; a call of any of them is enough
    ops: frozenset[str]
    #: only where the program ran backward
    backward: bool
    torch: Span
    text: str


def _difference(ops: list[str], text: str, *, backward: bool, until: str = "") -> KnownDifference:
    return KnownDifference(frozenset(ops), backward, Span(until=Version.parse(until) if until else None), text)


_ROWS = load_shipped(__file__, "known_deviations.yaml")["deviations"]
DIFFERENCES = tuple(_difference(**row) for row in _ROWS)


def differing(ops: Iterable[tuple[str, str]], torch: Version) -> Iterator[str]:
    """Yield the texts of the deviations that apply to a program's calls, given as (overload, phase)."""
    calls = set(ops)
    backward = any(phase == "backward" for _, phase in calls)
    # The program itself did not make the calls of a gradient.
    names = {name for name, phase in calls if phase != "backward"}
    for difference in DIFFERENCES:
        if torch in difference.torch and (backward or not difference.backward) and not names.isdisjoint(difference.ops):
            yield difference.text
