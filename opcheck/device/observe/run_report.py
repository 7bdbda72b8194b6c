"""Makes a report of an observed run: of the recorder's calls, the warnings and the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from opcheck.common.errors import UnknownTargetError
from opcheck.common.versions import MACOS_MAJORS, Target, Version, parse_macos, parse_torch
from opcheck.data.registrations import OpLists
from opcheck.device.observe.call_timeline import CallTimeline, Recording
from opcheck.device.observe.log_events import ENDS, LogEvent
from opcheck.device.observe.log_report import copies, other_calls, report_of
from opcheck.device.observe.parse import parse
from opcheck.device.observe.request import ObserveRequest, RecordedRow
from opcheck.device.observe.variables import effects
from opcheck.model.records import Problem, Report, Trace


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
    timeline = CallTimeline(recording, events, str(target.torch), start.machine, lists)
    failures = _failures(recording, events, lists)
    calls = [*timeline.fallbacks(), *timeline.detours(), *timeline.native()]
    calls += other_calls([*timeline.warnings(), *failures], target.torch, lists)
    trace = Trace(
        model=" ".join((request.program, *request.arguments)),
        mode="run",
        tracer="stand-in" if request.stand_in else "mac",
        installed_torch=start.torch,
        target_torch=str(target.torch),
        target_macos=str(target.macos),
        problems=tuple(_problems(recording, failures)),
        complete=end is not None and not end.error,
        environment=dict(environment),
        packages={
            "macos": start.macos,
            "machine": start.machine,
            **({"macos build": start.build} if start.build else {}),
        },
    )
    moved = [event for event in events if event.kind == "copy" and timeline.left_mps(event.call)]
    return report_of(
        calls,
        trace,
        target,
        lists,
        copies=copies(moved),
        not_checked=(*_not_checked(timeline, target, environment, request), *notes),
        failed=bool(failures),
    )


def _target(
    recording: Recording, request: ObserveRequest, lists: OpLists
) -> tuple[Target, tuple[str, ...]]:
    start = recording.start
    known = tuple(Version.parse(release.line) for release in lists.releases)
    torch = parse_torch(request.stand_in.partition("/")[0] or start.torch, known)
    minimum = Version.parse(lists.release(str(torch)).minimum_macos)
    notes: tuple[str, ...] = ()
    try:
        macos = parse_macos(start.macos, minimum, torch)
    except UnknownTargetError:
        macos = Version(MACOS_MAJORS[-1])
        known_of = f"what is known of macOS {start.macos}"
        notes = (f"{known_of}: the lists do not have it, {macos} stands for it",)
    return Target(torch=torch, macos=macos, cpu_fallback=request.cpu_fallback), notes


def _failures(recording: Recording, events: Sequence[LogEvent], lists: OpLists) -> list[LogEvent]:
    """The events that ended the program, or calls of it, with the operator that was running."""
    rows = {row.number: row for row in recording.rows}
    end = recording.end
    if end is None:
        return [_in_row(event, rows.get(event.call)) for event in events if event.kind in ENDS]
    if not end.error:
        return []
    raised = parse(f"{end.error}: {end.message}", lists, log="exception")
    return [
        _in_row(msgspec.structs.replace(event, location=end.location), rows.get(end.row))
        for event in [event for event in raised if event.kind in ENDS][:1]
    ]


def _in_row(event: LogEvent, row: RecordedRow | None) -> LogEvent:
    """The event, with the operator and the line of the call during which it was printed."""
    if row is None:
        return event
    location = event.location or row.location
    return msgspec.structs.replace(event, op=event.op or row.op, location=location)


def _problems(recording: Recording, failures: Sequence[LogEvent]) -> Iterator[Problem]:
    end = recording.end
    if end is None:
        how = f": {failures[0].text}" if failures else ""
        text = f"the process ended with code {recording.code}{how}"
        yield Problem(kind="process_died", message=text)
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
        yield (
            "copies inside kernels, bytes and times: the profiler came with torch 2.1, and this is "
            f"{line}"
        )
    yield "calls of threads that the program starts, and of other processes"
    yield (
        "what a graph of torch.compile runs as one kernel: its calls are seen only where they "
        "reach the dispatcher"
    )
    yield (
        "numerical results, and the speed of what ran on the GPU: the observation itself costs time"
    )
    yield (
        "that a call is native where its kernel goes to the CPU without a copy that the profiler "
        "prints"
    )
