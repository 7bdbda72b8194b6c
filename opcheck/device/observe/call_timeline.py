"""The recorder's calls, each with what was printed while it was made: which ran on the CPU, and which did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec

from opcheck.common.text import any_layer
from opcheck.data.environment import load_environment
from opcheck.data.registrations import OpLists
from opcheck.device.observe.log_events import LogEvent
from opcheck.device.observe.log_report import fallback
from opcheck.device.observe.observed import Observed
from opcheck.device.observe.parse import MARK, parse
from opcheck.device.observe.request import End, Row, Start
from opcheck.device.observe.variables import PROFILE
from opcheck.model.records import GroupLocation

#: Operators whose work it is to copy between the devices.
_COPIES = frozenset(
    {
        "aten::_to_copy",
        "aten::copy_",
        "aten::_copy_from",
        "aten::_copy_from_and_resize",
        "aten::_local_scalar_dense",
        "aten::item",
        "aten::to",
    }
)
#: Bytes up to which a copy is a number that a kernel asks for (MPSProfiler.mm: ``sizeof(int64_t)``).
_SCALAR = 8


class Recording(NamedTuple):
    """All that an observed process left behind."""

    start: Start
    rows: tuple[Row, ...]
    #: None: the process was ended from outside
    end: End | None
    log: str
    code: int


class Joined:
    """The recorder's rows, with what was printed during each."""

    def __init__(
        self,
        recording: Recording,
        seen: Sequence[LogEvent],
        line: str,
        machine: str,
        lists: OpLists,
    ) -> None:
        self._line = line
        self._machine = machine
        self._lists = lists
        self._rows = {row.number: row for row in recording.rows}
        end = recording.end
        self._counts = Counter(end.counts) if end else _finished(recording.log)
        self._seen = seen
        self._warned = _warned(end, seen, lists)
        #: rows whose runs are told as something else than native.
        self._told: Counter[int] = Counter()
        self.profiled = PROFILE in {variable.name for variable in load_environment().known(line)}

    def fallbacks(self) -> Iterator[Observed]:
        """Each operator that ran on the CPU, with the lines that called it."""
        runs: dict[tuple[str, int], list[LogEvent]] = {}
        for sighting in self._seen:
            if sighting.kind == "fallback_run":
                runs.setdefault((sighting.op, sighting.call), []).append(sighting)
        totals = {one.op: one for one in self._seen if one.kind == "fallback_total" and one.op}
        by_op: dict[str, list[tuple[int, list[LogEvent]]]] = {}
        for (base, number), printed in runs.items():
            by_op.setdefault(self._overload(base, number), []).append((number, printed))
        for op, parts in by_op.items():
            yield self._fallback(op, parts, totals.get(op.partition(".")[0]))
        for op, warned in self._warned.items():
            if op not in by_op:
                yield self._only_warned(op, warned)

    def _overload(self, base: str, number: int) -> str:
        """The profiler names no overload: the row's operator forwards to it, or a warning named it."""
        row = self._rows.get(number)
        chain = self._lists.resolve(row.op, self._line).chain if row else ()
        named = next((op for op in reversed(chain) if op.partition(".")[0] == base), "")
        return named or next((op for op in self._warned if op.partition(".")[0] == base), base)

    def _fallback(
        self, op: str, parts: Sequence[tuple[int, Sequence[LogEvent]]], total: LogEvent | None
    ) -> Observed:
        warned = self._warned.get(op, ())
        printed = [sighting for _, some in parts for sighting in some]
        entry = fallback(op, warned, printed, self._line, self._lists)
        places = []
        for number, some in parts:
            self._told[number] += len(some)
            if number in self._rows:
                places.append(_place(self._rows[number], len(some)))
        return msgspec.structs.replace(
            entry,
            seen=self._machine,
            ms=float(total.numbers["cpu_ms"]) if total else None,
            places=tuple(_joined(places)) or entry.places,
            dtypes=self._dtypes(number for number, _ in parts),
        )

    def _only_warned(self, op: str, warned: Sequence[LogEvent]) -> Observed:
        """A fallback of a release whose profiler prints nothing: the rows tell how often."""
        entry = fallback(op, warned, (), self._line, self._lists)
        lines = {str(sighting.location) for sighting in warned}
        rows = [
            row
            for row in self._rows.values()
            if op in self._lists.resolve(row.op, self._line).chain
            and (str(row.location) in lines or row.phase == "backward" or not lines)
        ]
        for row in rows or self._around(lines):
            self._told[row.number] += self._counts[row.number]
        count = sum(self._counts[row.number] for row in rows) or entry.count
        places = [_place(row, self._counts[row.number]) for row in rows]
        return msgspec.structs.replace(
            entry,
            seen=self._machine,
            count=count,
            places=tuple(_joined(places)) or entry.places,
            dtypes=self._dtypes(row.number for row in rows),
        )

    def _around(self, lines: Collection[str]) -> tuple[Row, ...]:
        """The composite that calls the operator that fell back, where a line has but one."""
        rows = [row for row in self._rows.values() if str(row.location) in lines]
        around = [
            row for row in rows if self._lists.resolve(row.op, self._line).status == "composite"
        ]
        return tuple(around) if len({row.op for row in around}) == 1 else ()

    def detours(self) -> Iterator[Observed]:
        """Kernels of MPS during which memory went to the CPU and came back."""
        ways: dict[int, dict[str, list[LogEvent]]] = {}
        for sighting in self._seen:
            if sighting.kind == "copy" and sighting.call and sighting.numbers["bytes"] > _SCALAR:
                way = f"{sighting.words['from'][:3]} {sighting.words['to'][:3]}"
                ways.setdefault(sighting.call, {}).setdefault(way, []).append(sighting)
        for number, by_way in ways.items():
            row = self._rows.get(number)
            there, back = by_way.get("MPS CPU"), by_way.get("CPU MPS")
            if row and there and back and not self._told[number] and row.op not in _COPIES:
                runs = min(self._counts[number], len(there))
                self._told[number] += runs
                yield Observed(
                    op=row.op,
                    status="fallback",
                    kind="internal",
                    what="its kernel copied memory to the CPU and back",
                    count=runs,
                    seen=self._machine,
                    nbytes=sum(int(one.numbers["bytes"]) for one in (*there, *back)),
                    places=(_place(row, runs),),
                    dtypes=row.dtypes,
                )

    def left(self, number: int) -> bool:
        """Whether runs of that row went to the CPU; asked after ``fallbacks`` and ``detours``."""
        return self._told[number] > 0

    def native(self) -> Iterator[Observed]:
        """The calls during which nothing was printed."""
        left: dict[str, list[tuple[Row, int]]] = {}
        for row in self._rows.values():
            count = self._counts[row.number] - self._told[row.number]
            if count > 0 and "mps" in row.devices:
                left.setdefault(row.op, []).append((row, count))
        for op, rows in left.items():
            yield Observed(
                op=op,
                status="native",
                what="it was called on mps, and no fallback was printed",
                count=sum(count for _, count in rows),
                seen=self._machine,
                places=tuple(_joined([_place(row, count) for row, count in rows])),
                dtypes=self._dtypes(row.number for row, _ in rows),
            )

    def warnings(self) -> Iterator[LogEvent]:
        """What kernels warned of, each as often as it came."""
        return (sighting for sighting in self._seen if sighting.kind in {"detour", "warned"})

    def _dtypes(self, numbers: Iterator[int]) -> tuple[str, ...]:
        rows = (self._rows[number] for number in numbers if number in self._rows)
        return tuple(sorted({dtype for row in rows for dtype in row.dtypes}))


def _finished(log: str) -> Counter[int]:
    """How often each call came to its end, by the marks that an aborted process left."""
    return Counter(int(mark[1]) for mark in MARK.finditer(log) if mark[2] == ">")


def _warned(
    end: End | None, seen: Sequence[LogEvent], lists: OpLists
) -> dict[str, tuple[LogEvent, ...]]:
    """The fallbacks' warnings by operator: the recorder's, which have the program's own lines, or the log's."""
    found: dict[str, list[LogEvent]] = {}
    if end is None:
        given = [one for one in seen if one.kind == "fallback"]
    else:
        given = []
        for warning in end.warned:
            for sighting in parse(warning.text, lists, log="warnings"):
                if sighting.kind == "fallback":
                    placed = msgspec.structs.replace(sighting, location=warning.location)
                    given += [placed] * warning.count
        if end.error == "UserWarning":
            # --strict: the first fallback's warning was raised.
            raised = [
                one for one in parse(end.message, lists, log="exception") if one.kind == "fallback"
            ]
            given += [msgspec.structs.replace(one, location=end.location) for one in raised]
    for sighting in given:
        found.setdefault(sighting.op, []).append(sighting)
    return {op: tuple(some) for op, some in found.items()}


def _place(row: Row, count: int) -> GroupLocation:
    return GroupLocation.at(
        row.location, module=any_layer(row.module), count=count, phase=row.phase
    )


def _joined(places: Sequence[GroupLocation]) -> Iterator[GroupLocation]:
    """Entries of one line are one."""
    counts: Counter[GroupLocation] = Counter()
    for place in places:
        counts[msgspec.structs.replace(place, count=0)] += place.count
    for place, count in counts.items():
        yield msgspec.structs.replace(place, count=count)
