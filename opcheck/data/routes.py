"""What computes an operator on MPS in a release: op_lists/routes.json, read from wheels by scripts/read_routes.py."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Literal, NamedTuple

from opcheck.data.files import read_history
from opcheck.data.history import History, expand
from opcheck.data.registrations import OpLists, data_directory

FILE = "routes.json"

Kind = Literal["graph", "metal", "mps", "copy", "view", "cpu", "either", "unknown"]
#: What a kernel can reach: MPSGraph; a kernel of PyTorch's own Metal libraries; Metal Performance Shaders (MPSMatrix,
#: MPSNDArray); a copy by blit; the CPU.
KINDS: tuple[Kind, ...] = ("graph", "metal", "mps", "copy", "cpu")
#: The values of a kernel that does no work, that only calls other operators, and that could not be followed.
VIEW, CALLS, UNKNOWN = "view", "calls", "unknown"
_VALUES = frozenset(
    {"+".join(some) for n in range(1, len(KINDS) + 1) for some in combinations(KINDS, n)}
    | {VIEW, CALLS, UNKNOWN}
)
#: Operators that make, view or copy memory for the kernel that calls them: they do not decide its route.
_BOOKKEEPING = re.compile(
    r"as_strided|clone|contiguous|copy_|detach|empty|empty_like|empty_strided|expand|expand_as|fill_|"
    r"flatten|movedim|permute|reshape|resize_|resize_as_|resolve_conj|result_type|select|set_|slice|split|"
    r"squeeze|squeeze_|to|transpose|unsqueeze|unsqueeze_|view|view_as|zero_|zeros|zeros_like|_to_copy|"
    r"_local_scalar_dense|item"
)


class Route(NamedTuple):
    """What computes an overload in a release."""

    kind: Kind
    #: where a kernel has several ways, or calls other operators: their kinds
    parts: tuple[Kind, ...] = ()
    #: the overloads that the kernel calls in place of computing itself
    calls: tuple[str, ...] = ()


def route_of(op: str, line: str, lists: OpLists) -> Route:
    """Return what computes an overload in a release; ``unknown`` where the data has nothing.

    A form with ``out=`` that the dispatcher makes from the other one has that one's route.  ``either`` is a kernel
    with several ways whose choice is not known here.

    Raises:
        OpListError: the data file is damaged, or the lists have no such release.
    """
    return _routes(data_directory(), tuple(release.line for release in lists.releases)).route(
        op, line, lists
    )


class _Routes:
    """The table, with what was looked up."""

    def __init__(self, history: History, lines: tuple[str, ...]) -> None:
        self._history, self._lines = history, lines
        self._values: dict[str, dict[str, str]] = {}

    def route(self, op: str, line: str, lists: OpLists) -> Route:
        kinds, calls = self._kinds(op, line, lists, frozenset())
        # A view beside the work does not count; a part without data leaves the whole unknown.
        kinds = kinds - {"view"} or kinds
        if len(kinds) == 1 or "unknown" in kinds:
            return Route("unknown" if "unknown" in kinds else next(iter(kinds)), calls=calls)
        return Route("either", tuple(kind for kind in KINDS if kind in kinds), calls)

    def _kinds(
        self, op: str, line: str, lists: OpLists, above: frozenset[str]
    ) -> tuple[set[Kind], tuple[str, ...]]:
        """Return the kinds of a kernel, or of those that it calls, and their names."""
        last = lists.resolve(op, line).chain[-1]
        if last not in self._values:
            self._values[last] = expand(self._history.operators.get(last, ()), self._lines)
        word, _, names = self._values[last].get(line, UNKNOWN).partition(":")
        if word != CALLS:
            return set(_parts(word)), ()
        calls = tuple(name for name in names.split() if not _is_bookkeeping(name))
        kinds: set[Kind] = set()
        for name in calls:
            if name not in above and "::" in name:
                kinds |= self._kinds(name, line, lists, above | {op})[0]
        return kinds or {"copy"}, calls


def _parts(word: str) -> Iterator[Kind]:
    for part in word.split("+"):
        kind: Kind = part  # type: ignore[assignment]  # read_history has checked the word
        yield kind


def _is_bookkeeping(op: str) -> bool:
    return bool(_BOOKKEEPING.fullmatch(op.partition("::")[2].partition(".")[0]))


def read_routes(path: Path, lines: tuple[str, ...]) -> History:
    """Read the table of the given release lines.

    Raises:
        OpListError: the file is missing or damaged.
    """
    return read_history(path, lines, _VALUES)[0]


@functools.cache
def _routes(directory: Path, lines: tuple[str, ...]) -> _Routes:
    path = directory / FILE
    empty = History(schema=1, namespace="aten", key="routes", operators={})
    return _Routes(read_routes(path, lines) if path.is_file() else empty, lines)
