"""Makes a report of an observed run from the recorder's calls, the warnings and the log."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from opcheck.common.errors import UnknownTargetError
from opcheck.common.grouping import group_values
from opcheck.common.text import any_layer
from opcheck.common.versions import MACOS_MAJORS, Target, Version, parse_macos, parse_torch
from opcheck.data.environment import ENVIRONMENT
from opcheck.data.registrations import OpLists
from opcheck.device.emulator.emulation_request import make_run_trace
from opcheck.device.observe.log_parsing import ENDS, MARK, LogEvent, parse
from opcheck.device.observe.log_report import ObservedCalls, copies, fallback, other_calls, report_of
from opcheck.device.observe.profiler_variables import PROFILE, effects
from opcheck.device.observe.recording import End, ObserveRequest, RecordedRow, Start
from opcheck.model.records import GroupLocation, Problem, Report, Verdict

#: Operators whose work it is to copy between the devices.
_COPIES = frozenset(
    f"aten::{name}"
    for name in ("_to_copy", "copy_", "_copy_from", "_copy_from_and_resize", "_local_scalar_dense", "item", "to")
)
#: A copy of at most so many bytes is a number that a kernel reads (MPSProfiler.mm:
#: ``sizeof(int64_t)``).
_SCALAR = 8


class Recording(NamedTuple):
    """Everything that an observed process left behind."""

    start: Start
    rows: tuple[RecordedRow, ...]
    #: None if the process was ended from outside
    end: End | None
    log: str
    code: int


class CallTimeline:
    """The recorder's rows, and the texts printed during the calls of each.

    Args:
        recording: what the process left behind.
        events: what was printed.
        line: the release line of torch.
        lists: the op lists, with the operators that an operator calls.
    """

    def __init__(self, recording: Recording, events: Sequence[LogEvent], line: str, lists: OpLists) -> None:
        self._line = line
        self._machine = recording.start.machine
        self._lists = lists
        self._rows = {row.number: row for row in recording.rows}
        end = recording.end
        # Of an aborted process the marks show which calls ended.
        ended = (int(mark[1]) for mark in MARK.finditer(recording.log) if mark[2] == ">")
        self._counts = Counter(end.counts) if end else Counter(ended)
        self._events = events
        self._warned = _fallback_warnings(end, events, lists)
        #: how many calls of each row are reported as something else than native
        self._left: Counter[int] = Counter()
        self.profiled = PROFILE in {variable.name for variable in ENVIRONMENT.load().known(line)}

    def fallbacks(self) -> Iterator[ObservedCalls]:
        """Each operator that ran on the CPU, with the lines that called it."""
        runs = group_values(((e.op, e.call), e) for e in self._events if e.kind == "fallback_run")
        totals = {event.op: event for event in self._events if event.kind == "fallback_total"}
        by_op: defaultdict[str, dict[int, list[LogEvent]]] = defaultdict(dict)
        for (base, number), printed in runs.items():
            by_op[self._overload(base, number)][number] = printed
        for op, by_row in by_op.items():
            yield self._printed_fallback(op, by_row, totals.get(op.partition(".")[0]))
        for op, warned in self._warned.items():
            if op not in by_op:
                yield self._warned_fallback(op, warned)

    def _overload(self, base: str, number: int) -> str:
        """The overload of an operator that the profiler names without it.

        The row's operator forwards to it, or a warning names it.
        """
        row = self._rows.get(number)
        chain = self._lists.resolve(row.op, self._line).chain if row else ()
        names = (*reversed(chain), *self._warned)
        return next((op for op in names if op.partition(".")[0] == base), base)

    def _printed_fallback(self, op: str, by_row: dict[int, list[LogEvent]], total: LogEvent | None) -> ObservedCalls:
        printed = [event for events in by_row.values() for event in events]
        calls = fallback(op, self._warned.get(op, ()), printed, self._line, self._lists)
        counts = {number: len(events) for number, events in by_row.items()}
        self._left.update(counts)
        return self._place_calls(calls, counts, ms=float(total.numbers["cpu_ms"]) if total else None)

    def _warned_fallback(self, op: str, warned: Sequence[LogEvent]) -> ObservedCalls:
        """A fallback of a release whose profiler prints nothing: the rows have the counts."""
        calls = fallback(op, warned, (), self._line, self._lists)
        lines = {str(event.location) for event in warned}
        rows = [
            row
            for row in self._rows.values()
            if op in self._lists.resolve(row.op, self._line).chain
            and (str(row.location) in lines or row.phase == "backward" or not lines)
        ]
        for row in rows or self._composite_at(lines):
            self._left[row.number] += self._counts[row.number]
        counts = {row.number: self._counts[row.number] for row in rows}
        return self._place_calls(calls, counts, count=sum(counts.values()) or calls.count)

    def _place_calls(self, calls: ObservedCalls, counts: dict[int, int], **changes: Any) -> ObservedCalls:
        """The calls with the records of so many of each row."""
        places, dtypes = self._places(counts) or calls.places, self._dtypes(counts)
        return msgspec.structs.replace(calls, where=self._machine, places=places, dtypes=dtypes, **changes)

    def _composite_at(self, lines: Collection[str]) -> tuple[RecordedRow, ...]:
        """The rows of the composite that these lines call, if there is a single composite."""
        rows = tuple(
            row
            for row in self._rows.values()
            if str(row.location) in lines and self._lists.resolve(row.op, self._line).status == "composite"
        )
        return rows if len({row.op for row in rows}) == 1 else ()

    def detours(self) -> Iterator[ObservedCalls]:
        """Kernels of MPS during which memory went to the CPU and came back."""
        copies: defaultdict[int, dict[str, list[LogEvent]]] = defaultdict(dict)
        for event in self._events:
            if event.kind == "copy" and event.call and event.numbers["bytes"] > _SCALAR:
                way = f"{event.words['from'][:3]} {event.words['to'][:3]}"
                copies[event.call].setdefault(way, []).append(event)
        for number, by_way in copies.items():
            row = self._rows.get(number)
            there, back = by_way.get("MPS CPU"), by_way.get("CPU MPS")
            if row and there and back and not self._left[number] and row.op not in _COPIES:
                runs = min(self._counts[number], len(there))
                self._left[number] += runs
                what = "its kernel copied memory to the CPU and back"
                nbytes = sum(int(event.numbers["bytes"]) for event in (*there, *back))
                verdict = Verdict(status="fallback", kind="internal", because=what)
                yield self._make_calls(row.op, {number: runs}, verdict, nbytes=nbytes)

    def left_mps(self, number: int) -> bool:
        """Return whether calls of that row went to the CPU; known after ``fallbacks`` and ``detours``."""
        return self._left[number] > 0

    def native(self) -> Iterator[ObservedCalls]:
        """The calls on MPS during which no fallback was printed."""
        by_op: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for row in self._rows.values():
            count = self._counts[row.number] - self._left[row.number]
            if count > 0 and "mps" in row.devices:
                by_op[row.op][row.number] = count
        for op, counts in by_op.items():
            verdict = Verdict(status="native", because="it was called on mps, and no fallback was printed")
            yield self._make_calls(op, counts, verdict)

    def _make_calls(self, op: str, counts: dict[int, int], verdict: Verdict, **more: Any) -> ObservedCalls:
        calls = ObservedCalls(op=op, verdict=verdict, count=sum(counts.values()), where=self._machine, **more)
        return self._place_calls(calls, counts)

    def warnings(self) -> Iterator[LogEvent]:
        """The warnings of kernels, each as often as it was printed."""
        return (event for event in self._events if event.kind in {"detour", "warned"})

    def _dtypes(self, numbers: Iterable[int]) -> tuple[str, ...]:
        rows = (self._rows[number] for number in numbers if number in self._rows)
        return tuple(sorted({dtype for row in rows for dtype in row.dtypes}))

    def _places(self, counts: dict[int, int]) -> tuple[GroupLocation, ...]:
        """The places of so many calls of each row; calls of one line, module and phase together."""
        by_place: Counter[GroupLocation] = Counter()
        for number, count in counts.items():
            if row := self._rows.get(number):
                place = GroupLocation.at(row.location, module=any_layer(row.module), count=0, phase=row.phase)
                by_place[place] += count
        return tuple(msgspec.structs.replace(place, count=count) for place, count in by_place.items())


def _fallback_warnings(end: End | None, events: Sequence[LogEvent], lists: OpLists) -> dict[str, tuple[LogEvent, ...]]:
    """The warnings of CPU fallbacks by operator: the recorder's, or else those of the log.

    The recorder's have the program's own lines.
    """
    warnings = [event for event in events if event.kind == "fallback"] if end is None else []
    for warning in end.warned if end else ():
        for event in parse(warning.text, lists, log="warnings"):
            if event.kind == "fallback":
                placed = msgspec.structs.replace(event, location=warning.location)
                warnings += [placed] * warning.count
    if end is not None and end.error == "UserWarning":
        # --strict: the warning of the first fallback was raised.
        warnings += [
            msgspec.structs.replace(event, location=end.location)
            for event in parse(end.message, lists, log="exception")
            if event.kind == "fallback"
        ]
    return {op: tuple(members) for op, members in group_values((event.op, event) for event in warnings).items()}


def report_of_run(
    recording: Recording, request: ObserveRequest, environment: Mapping[str, str], lists: OpLists
) -> Report:
    """Make the report of an observed run.

    Args:
        recording: what the process left behind.
        request: what was run.
        environment: the variables that were set before torch was imported.
        lists: the op lists.

    Raises:
        UnknownTargetError: there is no list for the release that ran.
        OpListError: the lists are damaged.
    """
    start, end = recording.start, recording.end
    target, notes = _target(recording, request, lists)
    events = parse(recording.log, lists, log="stderr")
    timeline = CallTimeline(recording, events, str(target.torch), lists)
    failures = _failures(recording, events, lists)
    calls = [*timeline.fallbacks(), *timeline.detours(), *timeline.native()]
    calls += other_calls([*timeline.warnings(), *failures], target.torch, lists)
    build = {"macos build": start.build} if start.build else {}
    trace = make_run_trace(
        " ".join((request.program, *request.arguments)),
        "stand-in" if request.stand_in else "mac",
        start.torch,
        target,
        problems=tuple(_problems(recording, failures)),
        complete=end is not None and not end.error,
        environment=dict(environment),
        packages={"macos": start.macos, "machine": start.machine} | build,
    )
    moved = [event for event in events if event.kind == "copy" and timeline.left_mps(event.call)]
    unchecked = (*_not_checked(timeline, target, environment, request), *notes)
    return report_of(calls, trace, target, lists, copies=copies(moved), not_checked=unchecked, failed=bool(failures))


def _target(recording: Recording, request: ObserveRequest, lists: OpLists) -> tuple[Target, tuple[str, ...]]:
    start = recording.start
    torch = parse_torch(request.stand_in.partition("/")[0] or start.torch, lists.versions)
    minimum = Version.parse(lists.release(str(torch)).minimum_macos)
    notes: tuple[str, ...] = ()
    try:
        macos = parse_macos(start.macos, minimum, torch)
    except UnknownTargetError:
        macos = Version(MACOS_MAJORS[-1])
        notes = (f"macOS {start.macos}, which the lists do not have: it was judged as macOS {macos}",)
    return Target(torch=torch, macos=macos, cpu_fallback=request.cpu_fallback), notes


def _failures(recording: Recording, events: Sequence[LogEvent], lists: OpLists) -> list[LogEvent]:
    """The events that ended the program, or calls of it, with the operator that was running."""
    rows = {row.number: row for row in recording.rows}
    if (end := recording.end) is None:
        return [_in_row(event, rows.get(event.call)) for event in events if event.kind in ENDS]
    if not end.error:
        return []
    events = parse(f"{end.error}: {end.message}", lists, log="exception")
    raised = [msgspec.structs.replace(event, location=end.location) for event in events if event.kind in ENDS]
    return [_in_row(event, rows.get(end.row)) for event in raised[:1]]


def _in_row(event: LogEvent, row: RecordedRow | None) -> LogEvent:
    """The event, with the operator and the line of the call during which it was printed."""
    if row is None:
        return event
    # Where statements alone give the operator, others may print the same text.
    op = row.op if event.statements else event.op or row.op
    return msgspec.structs.replace(event, op=op, location=event.location or row.location)


def _problems(recording: Recording, failures: Sequence[LogEvent]) -> Iterator[Problem]:
    if (end := recording.end) is None:
        how = f": {failures[0].text}" if failures else ""
        yield Problem(kind="process_died", message=f"the process ended with code {recording.code}{how}")
    elif end.error and not failures:
        first_line = end.message.splitlines()[0] if end.message else ""
        text = f"the program ended with {end.error}: {first_line}"
        yield Problem(kind="program_raised", message=text, location=end.location)


def _not_checked(
    timeline: CallTimeline, target: Target, environment: Mapping[str, str], request: ObserveRequest
) -> Iterator[str]:
    if request.stand_in:
        yield "anything on a Mac: the device was emulated, to test the observation"
    line = str(target.torch)
    yield from effects(environment, line)
    if not timeline.profiled:
        yield (f"copies inside kernels, bytes and times: the profiler came with torch 2.1, and this is {line}")
    yield "calls of threads that the program starts, and of other processes"
    yield ("what a graph of torch.compile runs as one kernel: its calls are seen only where they reach the dispatcher")
    yield ("numerical results, and the speed on the GPU: the observation itself costs time")
    yield ("that a call is native where its kernel goes to the CPU without a copy that the profiler prints")
