"""Sums the losses of a run's calls, and makes records of them."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from opcheck.common.picking import pick
from opcheck.common.vocabulary import PrecisionEventKind
from opcheck.model.records import GroupLocation, PrecisionEvent, PrecisionLine
from opcheck.numerics.child.closeness import Distance
from opcheck.numerics.child.line_tally import CallPlace, LineTally, digits, place

#: A call with a larger relative error is named: some hundred times the error of a single rounding.
LIMITS = {"float32": 1e-5, "float16": 2e-2, "bfloat16": 1e-1}

#: What of a distance is an event, the most telling first.
_EVENTS: tuple[Literal["nan", "overflow", "underflow"], ...] = ("nan", "overflow", "underflow")


class _Errors:
    """The largest errors of calls."""

    local = total = inherited = 0.0

    def add(self, seen: "_Errors") -> None:
        self.local = max(self.local, seen.local)
        self.total = max(self.total, seen.total)
        self.inherited = max(self.inherited, seen.inherited)


class ShadowedCall(_Errors):
    """One call."""

    def __init__(self, op: str, here: CallPlace, inherited: float) -> None:
        self.op = op
        self.here = here
        self.inherited = inherited
        self.floating = False
        #: kind of event -> how many elements of how many
        self.events: dict[PrecisionEventKind, tuple[int, int]] = {}

    def measure(self, total: Distance, local: Distance, elements: int) -> None:
        """Compare a result of the call with float64's."""
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
        """Take a discrete result of it that comes out otherwise."""
        if count:
            self.events["flips"] = (count, elements)


class _Elements:
    """The count of elements that an event concerns, and of all elements."""

    kind: PrecisionEventKind = "flips"
    elements = total = 0


class PrecisionTally:
    """The losses of all calls."""

    def __init__(self, dtype: str) -> None:
        self.limit = LIMITS[dtype]
        self.calls = 0
        #: the operators that were compared, and those that were not followed
        self.ran: set[str] = set()
        self.missed: set[str] = set()
        #: the first call that loses more than the limit by itself, and the first whose result has lost more
        self.divergence: PrecisionLine | None = None
        self.crossing: PrecisionLine | None = None
        #: by module, the calls that lose more than the limit by themselves
        self.at_fault: Counter[str] = Counter()
        self._lines: LineTally[_Errors] = LineTally(_Errors)
        self._events: LineTally[_Elements] = LineTally(_Elements)

    def add(self, seen: ShadowedCall) -> None:
        """Count one call."""
        index, self.calls = self.calls, self.calls + 1
        self.ran.add(seen.op)
        self._lines.add(seen.op, seen.here, index).value.add(seen)
        site, module, phase = seen.here
        at_fault = seen.local >= self.limit or bool(seen.events.keys() - {"flips"})
        self.at_fault[module] += at_fault
        crosses = at_fault or seen.total >= self.limit
        if (at_fault and self.divergence is None) or (crosses and self.crossing is None):
            line = _line(seen.op, place(site, module, phase), index, seen)
            self.crossing = self.crossing or line
            if at_fault:
                self.divergence = self.divergence or line
        for kind, (count, elements) in seen.events.items():
            event = self._events.add(seen.op, seen.here, index, kind).value
            event.kind = kind
            event.elements += count
            event.total += elements

    def lines(self, limit: int) -> Iterator[PrecisionLine]:
        """Yield the lines whose calls lose most by themselves, the worst first."""
        for row in sorted(self._lines, key=lambda row: (-row.value.local, row.first))[:limit]:
            yield _line(row.key.op, row.place, row.first, row.value)

    def events(self) -> Iterator[PrecisionEvent]:
        """Yield what happened that float64 does not do, in order."""
        for row in self._events:
            key, event = row.key, row.value
            where, about = place(key.site, key.module, key.phase), pick(event, "kind", "elements")
            yield PrecisionEvent(op=key.op, place=where, of=event.total, first=row.first, **about)


def _line(op: str, where: GroupLocation, first: int, errors: _Errors) -> PrecisionLine:
    rounded = {name: digits(error) for name, error in pick(errors, "local", "inherited", "total").items()}
    return PrecisionLine(op=op, place=where, first=first, **rounded)
