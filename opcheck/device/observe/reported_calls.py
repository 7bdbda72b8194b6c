"""The calls of a report as a verification compares them: an entry for each operator, verdict and line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from opcheck.common.vocabulary import Confidence, FallbackKind, Status
from opcheck.model.records import CallGroup, Record, Report


class ReportedCalls(Record, frozen=True, kw_only=True):
    """The calls of one operator from one line, with one verdict."""

    op: str
    #: the overload that the Mac names, where it is another
    named: str = ""
    status: Status
    kind: FallbackKind | None = None
    #: ``file:line``; empty: the report has none
    line: str = ""
    dtypes: tuple[str, ...] = ()
    count: int = 1
    confidence: Confidence | None = None
    because: str = ""
    limitations: tuple[str, ...] = ()
    prints: str = ""


def calls_of(report: Report) -> tuple[ReportedCalls, ...]:
    """The calls of a report, in its order."""
    return tuple(calls for group in report.groups for calls in _by_line(group))


def _by_line(group: CallGroup) -> Iterator[ReportedCalls]:
    counts: Counter[str] = Counter()
    for place in group.locations:
        counts[place.line] += place.count
    for line, count in (counts or Counter({"": group.count})).items():
        yield ReportedCalls(
            op=group.op,
            named=group.named,
            status=group.status,
            kind=group.kind,
            line=line,
            dtypes=group.dtypes,
            count=count,
            confidence=group.confidence,
            because=group.because,
            limitations=group.limitations,
            prints=group.prints,
        )
