"""Sums over the calls of one operator at one line, in modules that differ by the number of a layer at most."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from opcheck.common.text import any_layer
from opcheck.common.vocabulary import Phase
from opcheck.model.records import GroupLocation, RelativeError
from opcheck.tracing.source_locations import Site, locate

Value = TypeVar("Value")


#: The line of a call, its module and phase.
CallPlace = tuple[Site, str, Phase]


class Key(NamedTuple):
    """The properties that equal calls have in common."""

    op: str
    site: Site
    #: the module, with ``*`` for the number of a layer
    module: str
    phase: Phase
    #: another difference of calls
    kind: str


class LineRow(Generic[Value]):
    """The calls of one key."""

    def __init__(self, key: Key, first: int, value: Value) -> None:
        self.key = key
        #: the number of its first call in the run
        self.first = first
        self.value = value
        self.modules: Counter[str] = Counter()

    @property
    def place(self) -> GroupLocation:
        """The place of the calls; the module has a name only if there is one alone."""
        module = next(iter(self.modules)) if len(self.modules) == 1 else self.key.module
        return place(self.key.site, module, self.key.phase, self.modules.total())


class LineTally(Generic[Value]):
    """The rows of a run, in the order of their first calls."""

    def __init__(self, start: Callable[[], Value]) -> None:
        self._start = start
        self._rows: dict[Key, LineRow[Value]] = {}

    def __iter__(self) -> Iterator[LineRow[Value]]:
        return iter(self._rows.values())

    def add(self, op: str, here: CallPlace, index: int, kind: str = "") -> LineRow[Value]:
        """Count one call, whose number in the run is ``index``; the row that it belongs to."""
        site, module, phase = here
        key = Key(op, site, any_layer(module), phase, kind)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = LineRow(key, index, self._start())
        row.modules[module] += 1
        return row


def place(site: Site, module: str, phase: Phase, count: int = 1) -> GroupLocation:
    """Return the record of where calls were made."""
    return GroupLocation.at(locate(site), module=module, phase=phase, count=count)


def digits(number: float) -> RelativeError:
    """Round to two digits, because the others depend on the machine; return a word where JSON has no number."""
    if math.isfinite(number):
        return float(f"{number:.1e}")
    return "nan" if math.isnan(number) else "inf"


def finite_digits(number: float) -> float | None:
    """Round to two digits; return None for infinity, which JSON lacks."""
    return float(f"{number:.1e}") if math.isfinite(number) else None
