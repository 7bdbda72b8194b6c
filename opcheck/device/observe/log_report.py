"""Makes a report, in the form of an audit's, of the lines of logs."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from opcheck.common.errors import UnknownTargetError, UsageError
from opcheck.common.grouping import group_values
from opcheck.common.text import filesize, plural
from opcheck.common.versions import MACOS_MAJORS, Target, Version, parse_macos, parse_torch
from opcheck.common.vocabulary import HEADLINES, PHASES, FallbackKind
from opcheck.data.registrations import OpLists
from opcheck.device.emulator.emulation_request import make_run_trace
from opcheck.device.observe.log_parsing import CONFIDENCE, ENDS, KINDS, NOT_NAMED, LogEvent, parse, table
from opcheck.judge.assembly import assemble
from opcheck.judge.judge import outcome
from opcheck.judge.rules.rule import Audited
from opcheck.model.records import CallGroup, Evidence, GroupLocation, Partition, Record, Report, Trace, Verdict

_RUNS = frozenset({"fallback_run", "fallback_total"})
_FALLBACKS = _RUNS | {"fallback"}


class System(NamedTuple):
    """The target of a log, and which parts of it were assumed."""

    target: Target
    #: torch's version as the log writes it, or empty
    torch: str
    notes: tuple[str, ...]


def system(
    text: str, events: Sequence[LogEvent], lists: OpLists, *, torch: str | None = None, macos: str | None = None
) -> System:
    """Find the target of a log: as the user names it, as the log has it, or as its texts allow.

    Args:
        text: the logs.
        events: what was read in them.
        lists: the releases that are known.
        torch: ``--torch``.
        macos: ``--macos``.

    Raises:
        UsageError, UnknownTargetError: ``torch`` or ``macos`` is no version, or has no list.
    """
    notes: list[str] = []
    written = _first(table().torch, text)
    line = parse_torch(torch, lists.versions) if torch else _line(written, events, lists, notes)
    minimum = Version.parse(lists.release(str(line)).minimum_macos)
    version = parse_macos(macos, minimum, line) if macos else _macos(_first(table().macos, text), minimum, notes)
    raised = any(event.kind == "no_kernel" for event in events)
    fallen_back = {event.op for event in events if event.kind in _FALLBACKS and event.op}
    fell_back = any(resolution(op, str(line), lists) != ("fallback", "always") for op in fallen_back)
    if not fell_back and not raised:
        notes.append("whether PYTORCH_ENABLE_MPS_FALLBACK was set: the log does not show it")
    target = Target(torch=line, macos=version, cpu_fallback=fell_back and not raised)
    return System(target, written, tuple(notes))


def _first(patterns: Sequence[re.Pattern[str]], text: str) -> str:
    matches = (pattern.search(text) for pattern in patterns)
    return next((match[1] for match in matches if match), "")


def _line(written: str, events: Sequence[LogEvent], lists: OpLists, notes: list[str]) -> Version:
    releases = lists.versions
    commits = {event.words.get("commit") for event in events}
    built = [Version.parse(release.line) for release in lists.releases if release.commit in commits]
    if built:
        return max(built)
    if written:
        version = Version.parse(written)
        if version in releases:
            return version
        nearest = min(releases, key=lambda line: abs(line.minor - version.minor + 100 * (line.major - version.major)))
        what = f"what torch {written}, the release of the log, registers"
        notes.append(f"{what}: the nearest release with a list is {nearest}")
        return nearest
    possible = [line for line in releases if all(line in event.torch for event in events)]
    assumed = max(possible, default=min(releases))
    why = "the log does not name it" if possible else "no known release prints all texts of the log"
    newest = ", the newest that prints all texts of the log" if possible else ""
    notes.append(f"the torch release: {why}; {assumed} was assumed{newest} (--torch)")
    return assumed


def _macos(written: str, minimum: Version, notes: list[str]) -> Version:
    newest = max(Version(MACOS_MAJORS[-1]), minimum)
    if not written:
        notes.append(f"the macOS version: the log does not name it; {newest} was assumed (--macos)")
        return newest
    version = Version.parse(written)
    try:
        return parse_macos(written, Version(0), version)
    except UnknownTargetError:
        notes.append(f"macOS {written}, the version of the log: the lists do not have it; {newest} was assumed")
        return newest


def resolution(op: str, line: str, lists: OpLists) -> tuple[str, FallbackKind | None]:
    """The status and kind of an operator in the lists.

    For a name without its overload, a fallback of any of its overloads counts.
    """
    resolved = lists.resolve(op, line)
    if resolved.status != "unknown" or "." in op:
        return resolved.status, resolved.kind
    overloads = (lists.resolve(name, line) for name in lists.overloads(line).get(op, ()))
    kinds = {(each.status, each.kind) for each in overloads}
    # The kinds of fallback come first.
    ordered = sorted(kinds, key=lambda each: (each not in _KINDS_OF_FALLBACK, str(each)))
    return ordered[0] if ordered else ("unknown", None)


_KINDS_OF_FALLBACK: tuple[tuple[str, FallbackKind], ...] = (("fallback", "always"), ("fallback", "env"))


# -- makes a report, in the form of an audit's, of the lines of logs --

#: How a trace names its source where that is logs.
TRACER = "log"


class ObservedCalls(Record, frozen=True, kw_only=True):
    """The calls of an operator that did the same."""

    #: empty where the printed text names none
    op: str
    #: ``because`` describes what the calls did, without numbers; there is no evidence yet
    verdict: Verdict
    #: how many calls there were at least
    count: int
    #: where they were seen: a log and its line, or a device
    where: str
    #: bytes copied between the devices, and ms on the CPU; None where they are unknown
    nbytes: int | None = None
    ms: float | None = None
    places: tuple[GroupLocation, ...] = ()
    dtypes: tuple[str, ...] = ()
    #: those of the curated statements that describe the calls whose span contains the release
    matching: tuple[str, ...] = ()

    def group(self, torch: str) -> CallGroup:
        """The group of a report, on this release."""
        numbers = [plural(self.count, "time")]
        numbers += [] if self.nbytes is None else [f"{filesize(self.nbytes)} copied"]
        numbers += [] if self.ms is None else [f"{self.ms:.3f} ms on the CPU"]
        detail = ", ".join(numbers)
        measured = Evidence(kind="measured", torch=torch, where=self.where, detail=detail)
        stated = (Evidence(kind="limitation", torch=torch, detail=id_) for id_ in self.matching)
        because = f"{self.verdict.because}: {detail} ({self.where})"
        verdict = msgspec.structs.replace(
            self.verdict, because=because, evidence=(measured, *stated), confidence=CONFIDENCE
        )
        phases = tuple(sorted({place.phase for place in self.places}, key=PHASES.index))
        return CallGroup.judged(
            self.op or NOT_NAMED, verdict, count=self.count, locations=self.places, dtypes=self.dtypes, phases=phases
        )


def report_of(
    observed: Iterable[ObservedCalls],
    trace: Trace,
    target: Target,
    lists: OpLists,
    *,
    copies: Partition,
    not_checked: Sequence[str],
    failed: bool,
) -> Report:
    """The report of an observation.

    Args:
        observed: the calls, an entry for each operator and what it did.
        trace: how they were observed; it has no calls.
        target: where they were observed.
        lists: the op lists, for the remedies.
        copies: what was copied between the devices.
        not_checked: what the observation cannot show.
        failed: whether the program, or a call of it, failed.

    Raises:
        OpListError: the lists lack the release, or are damaged.
    """
    groups = [calls.group(str(target.torch)) for calls in observed]
    groups.sort(key=lambda group: (-outcome(group.verdict).severity, group.op))
    report = assemble(Audited(groups=tuple(groups), trace=trace, target=target, partition=copies, lists=lists))
    headline = HEADLINES[0] if failed else report.headline
    return msgspec.structs.replace(report, headline=headline, not_checked=tuple(not_checked))


def read(
    logs: Sequence[tuple[str, str]], lists: OpLists, *, torch: str | None = None, macos: str | None = None
) -> Report:
    """Make the report of the texts that Macs printed.

    Args:
        logs: name and text of each.
        lists: the op lists, for texts and remedies.
        torch: the release; None takes it from the logs.
        macos: the macOS version; None takes it from the logs.

    Raises:
        UsageError: there is no log, or a version is none.
        UnknownTargetError: there is no list for that release.
        OpListError: the lists are damaged.
    """
    if not logs:
        raise UsageError("no log to read", context="opcheck observe", hint="opcheck observe train.log, or - for stdin")
    events = [event for name, text in logs for event in parse(text, lists, log=name)]
    machine = system("\n".join(text for _, text in logs), events, lists, torch=torch, macos=macos)
    failed = any(event.kind in ENDS for event in events)
    model = ", ".join(name for name, _ in logs)
    trace = make_run_trace(model, TRACER, machine.torch, machine.target, complete=not failed)
    calls = [*_fallbacks(events, machine, lists), *other_calls(events, machine.target.torch, lists)]
    unchecked = tuple(_not_checked(events, machine))
    return report_of(calls, trace, machine.target, lists, copies=copies(()), not_checked=unchecked, failed=failed)


def _fallbacks(events: Sequence[LogEvent], machine: System, lists: OpLists) -> Iterator[ObservedCalls]:
    """Operators that ran on the CPU: warnings name the overload, the profiler has the counts."""
    warned = group_values((event.op, event) for event in events if event.op and event.kind == "fallback")
    profiled = group_values((event.op, event) for event in events if event.op and event.kind in _RUNS)
    line = str(machine.target.torch)
    for op, warnings in warned.items():
        yield fallback(op, warnings, profiled.pop(op.partition(".")[0], []), line, lists)
    for op, runs in profiled.items():
        yield fallback(op, [], runs, line, lists)


def fallback(op: str, warned: Sequence[LogEvent], runs: Sequence[LogEvent], line: str, lists: OpLists) -> ObservedCalls:
    """An operator that ran on the CPU, by its warnings and the profiler's lines."""
    totals = [run for run in runs if run.kind == "fallback_total"]
    each = [run for run in runs if run.kind == "fallback_run"]
    count = sum(int(total.numbers["runs"]) for total in totals) or len(each) or len(warned)
    numbered = totals or each
    times = [event.numbers["cpu_ms"] for event in numbered if "cpu_ms" in event.numbers]
    first = (*warned, *runs)[0]
    status, kind = resolution(op, line, lists)
    kind = kind if status == "fallback" else "env"
    prints = warned[0].text if warned else ""
    return ObservedCalls(
        op=op,
        verdict=Verdict(status="fallback", kind=kind, because="it ran on the CPU", prints=prints),
        count=count,
        where=first.where,
        nbytes=sum(int(event.numbers["bytes"]) for event in numbered) if numbered else None,
        ms=sum(times) if times else None,
        places=_places(warned),
    )


def other_calls(events: Sequence[LogEvent], torch: Version, lists: OpLists) -> Iterator[ObservedCalls]:
    """The calls that raised, ended the process, left for the CPU inside a kernel, or warned."""
    others = (event for event in events if event.kind in ENDS or event.kind in {"detour", "warned"})
    # Without an operator or a statement, the text distinguishes two events.
    keys = ((e, "" if e.op or e.statements else e.text) for e in others)
    for members in group_values(((e.kind, e.op, e.statements, text), e) for e, text in keys).values():
        yield _other_calls(members, torch, lists)


def _other_calls(events: Sequence[LogEvent], torch: Version, lists: OpLists) -> ObservedCalls:
    first, line = events[0], str(torch)
    text_kind = KINDS[first.kind]
    status, kind = text_kind.status, text_kind.fallback
    # MPSFallback.mm: distributed operators cannot fall back; nor can those without a CPU kernel.
    if first.kind == "no_kernel" and (
        first.op.startswith("c10d::") or resolution(first.op, line, lists)[0] == "unsupported"
    ):
        status, kind = "unsupported", None
    by_id = lists.statements.by_id
    matching = tuple(name for name in first.statements if torch in by_id[name].torch)
    stated = matching or first.statements
    limitations = tuple(name for name in stated if by_id[name].sort == "limitation")
    verdict = Verdict(
        status=status,
        kind=kind,
        because=text_kind.meaning,
        prints=first.text,
        limitations=limitations or ((text_kind.refusal,) if text_kind.refusal else ()),
        advisories=tuple(name for name in stated if by_id[name].sort == "advisory"),
    )
    places, count = _places(events), len(events)
    return ObservedCalls(op=first.op, verdict=verdict, count=count, where=first.where, places=places, matching=matching)


def _places(events: Sequence[LogEvent]) -> tuple[GroupLocation, ...]:
    counts = Counter(event.location for event in events if event.location is not None)
    return tuple(GroupLocation.at(location, module="", count=count) for location, count in counts.items())


def copies(events: Sequence[LogEvent]) -> Partition:
    """The copies between the devices that the profiler prints: each, or else their totals."""
    each = [event for event in events if event.kind == "copy"]
    sums = {("MPS", "CPU"): [0, 0], ("CPU", "MPS"): [0, 0]}
    for event in each or [event for event in events if event.kind == "copy_total"]:
        if (total := sums.get((event.words["from"][:3], event.words["to"][:3]))) is not None:
            total[0] += int(event.numbers.get("runs", 1))
            total[1] += int(event.numbers["bytes"])
    (to_cpu, bytes_to_cpu), (to_mps, bytes_to_mps) = sums.values()
    return Partition(
        transfers_to_cpu=to_cpu, transfers_to_mps=to_mps, bytes_to_cpu=bytes_to_cpu, bytes_to_mps=bytes_to_mps
    )


def _not_checked(events: Sequence[LogEvent], machine: System) -> Iterator[str]:
    yield "calls that print nothing: an operator that is missing from the log need not have run on the GPU"
    warned = {event.op for event in events if event.kind == "fallback"}
    if not any(event.kind in _RUNS for event in events) and len(warned) < 2:
        yield (
            "fallbacks after the first: PyTorch (1.12 to 2.15) warns for the first CPU fallback of a process only, "
            "unless it calls torch.set_warn_always(True); PYTORCH_MPS_LOG_PROFILE_INFO=68 prints each (2.1 and newer)"
        )
    if not any(event.kind == "copy" for event in events):
        yield "what kernels copy to the CPU and back by themselves, as far as they give no warning"
    if ran := [event for event in events if event.kind in {"operation", "operation_total"}]:
        yield (
            f"which operators {plural(len(ran), 'line')} of the profiler are of: it names graphs "
            "and kernels by keys of its own"
        )
    printed = copies(events)
    if printed.transfers_to_cpu + printed.transfers_to_mps:
        yield (
            "whose the printed copies are, the program's own or a fallback's: "
            f"{printed.transfers_to_cpu:,} to the CPU ({filesize(printed.bytes_to_cpu)}), "
            f"{printed.transfers_to_mps:,} to mps ({filesize(printed.bytes_to_mps)})"
        )
    yield from machine.notes
    yield "numerical results and speed"
