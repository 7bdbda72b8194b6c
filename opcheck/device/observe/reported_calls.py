"""What a report tells of calls, one entry an operator, a verdict and a line; from a file or from a Report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from opcheck.model.records import Record, Report
from opcheck.project.changes.saved import decode


class Place(Record, frozen=True, kw_only=True):
    """The calls of one operator from one line, as one side tells them."""

    op: str
    #: the overload that the Mac names, where it is another
    named: str = ""
    status: str
    kind: str | None = None
    #: ``file:line``; empty: not told
    line: str = ""
    dtypes: tuple[str, ...] = ()
    count: int = 1
    confidence: str = ""
    because: str = ""
    limitations: tuple[str, ...] = ()
    prints: str = ""


class Told(Record, frozen=True, kw_only=True):
    """A report, as far as a comparison of calls needs it."""

    model: str
    target: dict[str, str | bool]
    complete: bool
    #: how the calls were captured, or observed
    tracer: str
    #: versions, and of an observation the machine
    packages: dict[str, str] = {}
    places: tuple[Place, ...] = ()


class _Location(Record, frozen=True):
    line: str
    count: int


class _Group(Record, frozen=True):
    op: str
    status: str
    kind: str | None
    because: str
    count: int
    named: str
    prints: str
    confidence: str
    limitations: tuple[str, ...]
    dtypes: tuple[str, ...]
    locations: tuple[_Location, ...]


class _Capture(Record, frozen=True):
    tracer: str
    complete: bool
    packages: dict[str, str]


class _Report(Record, frozen=True):
    model: str
    target: dict[str, str | bool]
    calls: tuple[_Group, ...]
    capture: _Capture


def read(path: str) -> Told:
    """The report in a JSON or YAML file.

    Raises:
        UsageError: it cannot be read, is no report, or is one of a newer schema.
    """
    report = decode(path, _Report)
    return Told(
        model=report.model,
        target=report.target,
        complete=report.capture.complete,
        tracer=report.capture.tracer,
        packages=report.capture.packages,
        places=tuple(place for group in report.calls for place in _places(group)),
    )


def of(report: Report) -> Told:
    """The same of a report that was just made."""
    packages = report.capture["packages"]
    groups = [
        _Group(
            op=group.op,
            status=group.verdict.status,
            kind=group.verdict.kind,
            because=group.verdict.because,
            count=group.count,
            named=group.verdict.named,
            prints=group.verdict.prints,
            confidence=group.verdict.confidence,
            limitations=group.verdict.limitations,
            dtypes=group.dtypes,
            locations=tuple(
                _Location(line=str(place.location or ""), count=place.count)
                for place in group.locations
            ),
        )
        for group in report.groups
    ]
    return Told(
        model=report.model,
        target=report.target,
        complete=bool(report.capture["complete"]),
        tracer=str(report.capture["tracer"]),
        packages=dict(packages) if isinstance(packages, dict) else {},
        places=tuple(place for group in groups for place in _places(group)),
    )


def _places(group: _Group) -> Iterator[Place]:
    counted: Counter[str] = Counter()
    for place in group.locations:
        counted[place.line] += place.count
    for line, count in (counted or Counter({"": group.count})).items():
        yield Place(
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
