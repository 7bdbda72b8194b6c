"""Keeps what the calls of a run lose, and makes records of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from opcheck.common.text import any_layer
from opcheck.common.vocabulary import Phase, PrecisionEventKind
from opcheck.model.records import GroupLocation, PrecisionEvent, PrecisionLine, RelativeError
from opcheck.numerics.precision.distance import Distance

#: Relative error of a result from which on a call is named: some hundred times what one rounding costs.
LIMITS = {"float32": 1e-5, "float16": 2e-2, "bfloat16": 1e-1}

#: What of a distance is an event, the most telling first.
_EVENTS: tuple[Literal["nan", "overflow", "underflow"], ...] = ("nan", "overflow", "underflow")


class Seen:
    """One call."""

    def __init__(self, op: str, site: Any, module: str, phase: Phase, inherited: float) -> None:
        self.op = op
        self.site = site
        self.module = module
        self.phase = phase
        self.inherited = inherited
        self.local = 0.0
        self.total = 0.0
        self.floating = False
        self.events: dict[PrecisionEventKind, tuple[int, int]] = {}

    def measure(self, total: Distance, local: Distance, elements: int) -> None:
        """One of its results beside float64's."""
        self.floating = True
        self.total = max(self.total, total.relative)
        self.local = max(self.local, local.relative)
        for name in _EVENTS:
            # What comes in broken is not this call's doing.
            count = getattr(total, name)
            if count and getattr(local, name):
                self.events[name] = (count, elements)
                break

    def flip(self, count: int, elements: int) -> None:
        """A discrete result of it comes out otherwise."""
        if count:
            self.events["flips"] = (count, elements)


class _Sum:
    """All calls of one operator at one line."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.local = self.total = self.inherited = 0.0
        self.modules: Counter[str] = Counter()


class Tally:
    """What all calls lose."""

    def __init__(self, dtype: str) -> None:
        self.limit = LIMITS[dtype]
        self.calls = 0
        #: the operators that were compared
        self.ran: set[str] = set()
        self.missed: Counter[str] = Counter()
        self.divergence: tuple[Seen, int] | None = None
        self.crossing: tuple[Seen, int] | None = None
        #: by module: calls, and those that lose more than the limit
        self.by_module: dict[str, list[int]] = {}
        self._sums: dict[tuple[str, Any, str, Phase], _Sum] = {}
        self._events: dict[tuple[PrecisionEventKind, str, Any, str, Phase], list[int]] = {}

    def add(self, seen: Seen) -> None:
        """Count one call."""
        index, self.calls = self.calls, self.calls + 1
        self.ran.add(seen.op)
        pattern = any_layer(seen.module)
        total = self._sums.setdefault((seen.op, seen.site, pattern, seen.phase), _Sum(index))
        total.modules[seen.module] += 1
        total.local = max(total.local, seen.local)
        total.total = max(total.total, seen.total)
        total.inherited = max(total.inherited, seen.inherited)
        at_fault = seen.local >= self.limit or bool(seen.events.keys() - {"flips"})
        counts = self.by_module.setdefault(seen.module, [0, 0])
        counts[0] += 1
        counts[1] += at_fault
        if at_fault and self.divergence is None:
            self.divergence = (seen, index)
        if (at_fault or seen.total >= self.limit) and self.crossing is None:
            self.crossing = (seen, index)
        for kind, (count, elements) in seen.events.items():
            key = (kind, seen.op, seen.site, pattern, seen.phase)
            event = self._events.setdefault(key, [0, 0, index])
            event[0] += count
            event[1] += elements

    def not_followed(self, op: str) -> None:
        """A call whose float64 is not known."""
        self.missed[op] += 1

    def lines(self, locate: Any, limit: int) -> Iterator[PrecisionLine]:
        """The lines whose calls lose most by themselves, the worst first."""
        ordered = sorted(self._sums.items(), key=lambda entry: (-entry[1].local, entry[1].first))
        for (op, site, pattern, phase), total in ordered[:limit]:
            name = next(iter(total.modules)) if len(total.modules) == 1 else pattern
            yield PrecisionLine(
                op=op,
                place=GroupLocation.at(
                    locate(site), module=name, phase=phase, count=total.modules.total()
                ),
                first=total.first,
                local=digits(total.local),
                inherited=digits(total.inherited),
                total=digits(total.total),
            )

    def events(self, locate: Any) -> Iterator[PrecisionEvent]:
        """What happened that float64 does not do, in order."""
        for (kind, op, site, module, phase), (count, of, first) in self._events.items():
            place = GroupLocation.at(locate(site), module=module, phase=phase, count=1)
            yield PrecisionEvent(kind=kind, op=op, place=place, elements=count, of=of, first=first)

    def line(self, found: tuple[Seen, int] | None, locate: Any) -> PrecisionLine | None:
        """One call as a record."""
        if found is None:
            return None
        seen, index = found
        return PrecisionLine(
            op=seen.op,
            place=GroupLocation.at(
                locate(seen.site), module=seen.module, phase=seen.phase, count=1
            ),
            first=index,
            local=digits(seen.local),
            inherited=digits(seen.inherited),
            total=digits(seen.total),
        )


def digits(number: float) -> RelativeError:
    """Two digits, because the others depend on the machine; a word where JSON has no number."""
    if math.isfinite(number):
        return float(f"{number:.1e}")
    return "nan" if math.isnan(number) else "inf"
