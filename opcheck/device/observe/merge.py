"""Three sources, one report: the recorder's calls, the warnings, and what PyTorch printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from opcheck.common.errors import UnknownTargetError
from opcheck.common.versions import MACOS_MAJORS, Target, Version, parse_macos, parse_torch
from opcheck.data.registrations import OpLists
from opcheck.device.observe import observed
from opcheck.device.observe.call_timeline import Joined, Recording
from opcheck.device.observe.log_events import ENDS, LogEvent
from opcheck.device.observe.log_report import copies, others
from opcheck.device.observe.parse import parse
from opcheck.device.observe.request import ObserveRequest, Row
from opcheck.device.observe.variables import said
from opcheck.model.records import Problem, Report, Trace


def merged(
    recording: Recording, request: ObserveRequest, environment: Mapping[str, str], lists: OpLists
) -> Report:
    """The report of an observed run.

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
    seen = parse(recording.log, lists, log="stderr")
    name = " ".join((request.program, *request.arguments))
    joined = Joined(recording, seen, str(target.torch), start.machine, lists)
    ended = _ended(recording, seen, lists)
    entries = [*joined.fallbacks(), *joined.detours(), *joined.native()]
    entries += others([*joined.warnings(), *ended], target.torch, lists)
    trace = Trace(
        model=name,
        mode="run",
        tracer="stand-in" if request.stand_in else "mac",
        installed_torch=start.torch,
        target_torch=str(target.torch),
        target_macos=str(target.macos),
        problems=tuple(_problems(recording, ended)),
        complete=end is not None and not end.error,
        environment=dict(environment),
        packages={
            "macos": start.macos,
            "machine": start.machine,
            **({"macos build": start.build} if start.build else {}),
        },
    )
    return observed.report(
        entries,
        trace,
        target,
        lists,
        copies=copies(
            [
                sighting
                for sighting in seen
                if sighting.kind == "copy" and joined.left(sighting.call)
            ]
        ),
        not_checked=(*_not_checked(joined, target, environment, request), *notes),
        failed=bool(ended),
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
        notes = (
            f"what is known of macOS {start.macos}: the lists do not have it, {macos} stands for it",
        )
    return Target(torch=torch, macos=macos, cpu_fallback=request.cpu_fallback), notes


def _ended(recording: Recording, seen: Sequence[LogEvent], lists: OpLists) -> list[LogEvent]:
    """What ended the program, or calls of it, with the operator that was running."""
    rows = {row.number: row for row in recording.rows}
    end = recording.end
    if end is None:
        last = [sighting for sighting in seen if sighting.kind in ENDS]
        return [_running(sighting, rows.get(sighting.call)) for sighting in last]
    if not end.error:
        return []
    sightings = parse(f"{end.error}: {end.message}", lists, log="exception")
    ends = [sighting for sighting in sightings if sighting.kind in ENDS][:1]
    return [
        _running(msgspec.structs.replace(sighting, location=end.location), rows.get(end.row))
        for sighting in ends
    ]


def _running(one: LogEvent, row: Row | None) -> LogEvent:
    if row is None:
        return one
    return msgspec.structs.replace(one, op=one.op or row.op, location=one.location or row.location)


def _problems(recording: Recording, ended: Sequence[LogEvent]) -> Iterator[Problem]:
    end = recording.end
    if end is None:
        how = f"the process ended with code {recording.code}" + (
            f": {ended[0].text}" if ended else ""
        )
        yield Problem(kind="process_died", message=how)
    elif end.error and not ended:
        text = f"the program ended with {end.error}: {end.message.splitlines()[0] if end.message else ''}"
        yield Problem(kind="program_raised", message=text, location=end.location)


def _not_checked(
    found: Joined, target: Target, environment: Mapping[str, str], request: ObserveRequest
) -> Iterator[str]:
    if request.stand_in:
        yield "anything on a Mac: the device was emulated, to test the observation"
    line = str(target.torch)
    yield from said(environment, line)
    if not found.profiled:
        yield f"copies inside kernels, bytes and times: the profiler came with torch 2.1, and this is {line}"
    yield "calls of threads that the program starts, and of other processes"
    yield "what a graph of torch.compile runs as one kernel: its calls are seen only where they reach the dispatcher"
    yield "numerical results, and the speed of what ran on the GPU: the observation itself costs time"
    yield "that a call is native where its kernel goes to the CPU without a copy that the profiler prints"
