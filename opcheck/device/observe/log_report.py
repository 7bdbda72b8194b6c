"""What was printed in logs -> a report of the same form as an audit's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from opcheck.common.errors import UsageError
from opcheck.common.text import filesize, plural
from opcheck.common.versions import Version
from opcheck.common.vocabulary import FallbackKind, Status
from opcheck.data.registrations import OpLists
from opcheck.device.observe import observed
from opcheck.device.observe.log_events import ENDS, KINDS, LogEvent
from opcheck.device.observe.observed import Observed
from opcheck.device.observe.parse import parse
from opcheck.device.observe.system import System, resolution, system
from opcheck.model.records import GroupLocation, Partition, Report, SourceLocation, Trace

#: How a trace says that it is made of logs.
TRACER = "log"

_FALLBACKS = frozenset({"fallback", "fallback_run", "fallback_total"})
_RUNS = frozenset({"fallback_run", "fallback_total"})

_ONCE = (
    "fallbacks after the first: PyTorch (1.12 to 2.15) warns for the first CPU fallback of a process only, unless it "
    "calls torch.set_warn_always(True); PYTORCH_MPS_LOG_PROFILE_INFO=68 prints each (2.1 and newer)"
)
_NOT_PRINTED = "calls that print nothing: that an operator is not in the log does not say that it ran on the GPU"
_DETOURS = "what kernels copy to the CPU and back by themselves, as far as they give no warning"
_NUMBERS = "numerical results and speed"


def read(
    logs: Sequence[tuple[str, str]],
    lists: OpLists,
    *,
    torch: str | None = None,
    macos: str | None = None,
) -> Report:
    """The report of what Macs printed.

    Args:
        logs: name and text of each.
        lists: the op lists, for texts and ways out.
        torch: the release, where the logs do not tell it.
        macos: the macOS, likewise.

    Raises:
        UsageError: no log, or not a version.
        UnknownTargetError: there is no list for that release.
        OpListError: the lists are damaged.
    """
    if not logs:
        raise UsageError(
            "no log to read",
            context="opcheck observe",
            hint="opcheck observe train.log, or - for stdin",
        )
    seen = [sighting for name, text in logs for sighting in parse(text, lists, log=name)]
    found = system("\n".join(text for _, text in logs), seen, lists, torch=torch, macos=macos)
    ended = [sighting for sighting in seen if sighting.kind in ENDS]
    trace = Trace(
        model=", ".join(name for name, _ in logs),
        mode="run",
        tracer=TRACER,
        installed_torch=found.torch,
        target_torch=str(found.target.torch),
        target_macos=str(found.target.macos),
        complete=not ended,
    )
    return observed.report(
        [*_fallbacks(seen, found, lists), *others(seen, found.target.torch, lists)],
        trace,
        found.target,
        lists,
        copies=copies(()),
        not_checked=tuple(_not_checked(seen, found)),
        failed=bool(ended),
    )


def _fallbacks(seen: Sequence[LogEvent], found: System, lists: OpLists) -> Iterator[Observed]:
    """Operators that ran on the CPU: warnings name the overload, the profiler how often."""
    warned: dict[str, list[LogEvent]] = {}
    profiled: dict[str, list[LogEvent]] = {}
    for sighting in seen:
        if sighting.kind in _FALLBACKS and sighting.op:
            (profiled if sighting.kind in _RUNS else warned).setdefault(sighting.op, []).append(
                sighting
            )
    for op, given in warned.items():
        runs = profiled.pop(op.partition(".")[0], [])
        yield fallback(op, given, runs, str(found.target.torch), lists)
    for op, runs in profiled.items():
        yield fallback(op, [], runs, str(found.target.torch), lists)


def fallback(
    op: str, warned: Sequence[LogEvent], runs: Sequence[LogEvent], line: str, lists: OpLists
) -> Observed:
    """One operator that ran on the CPU, from its warnings and from what the profiler prints of it."""
    totals = [run for run in runs if run.kind == "fallback_total"]
    each = [run for run in runs if run.kind == "fallback_run"]
    count = sum(int(total.numbers["runs"]) for total in totals) or len(each) or len(warned)
    numbered = totals or each
    times = [sighting.numbers["cpu_ms"] for sighting in numbered if "cpu_ms" in sighting.numbers]
    first = (*warned, *runs)[0]
    status, kind = resolution(op, line, lists)
    return Observed(
        op=op,
        status="fallback",
        kind=kind if status == "fallback" else "env",
        what="it ran on the CPU",
        count=count,
        seen=first.where,
        prints=warned[0].text if warned else "",
        nbytes=sum(int(sighting.numbers["bytes"]) for sighting in numbered) if numbered else None,
        ms=sum(times) if times else None,
        places=tuple(_places(warned)),
    )


def others(seen: Sequence[LogEvent], torch: Version, lists: OpLists) -> Iterator[Observed]:
    """What raised, ended the process, left for the CPU inside a kernel, or was warned about."""
    members: dict[tuple[str, str, tuple[str, ...], str], list[LogEvent]] = {}
    for sighting in seen:
        if sighting.kind in ENDS or sighting.kind in {"detour", "warned"}:
            # Without an operator or a statement, the text is what tells two apart.
            text = "" if sighting.op or sighting.statements else sighting.text
            members.setdefault((sighting.kind, sighting.op, sighting.statements, text), []).append(
                sighting
            )
    for alike in members.values():
        yield _other(alike, torch, lists)


#: Kind of sighting -> status and kind of a verdict.
_STATUS: dict[str, tuple[Status, FallbackKind | None]] = {
    "detour": ("fallback", "internal"),
    "warned": ("native", None),
    "no_kernel": ("fallback", "env"),
}


def _other(alike: Sequence[LogEvent], torch: Version, lists: OpLists) -> Observed:
    first = alike[0]
    line = str(torch)
    status, kind = _STATUS.get(first.kind, ("unsupported", None))
    if first.kind == "no_kernel" and not _can_fall_back(first.op, line, lists):
        status, kind = "unsupported", None
    by_id = lists.statements.by_id
    met = [name for name in first.statements if torch in by_id[name].torch]
    stated = met or list(first.statements)
    return Observed(
        op=first.op,
        status=status,
        kind=kind,
        what=KINDS[first.kind].meaning,
        count=len(alike),
        seen=first.where,
        prints=first.text,
        places=tuple(_places(alike)),
        limitations=tuple(name for name in stated if by_id[name].sort == "limitation")
        or tuple(filter(None, [KINDS[first.kind].refusal])),
        advisories=tuple(name for name in stated if by_id[name].sort == "advisory"),
        met=tuple(met),
    )


def _can_fall_back(op: str, line: str, lists: OpLists) -> bool:
    """MPSFallback.mm: distributed operators cannot; nor can what has no CPU kernel."""
    return not op.startswith("c10d::") and resolution(op, line, lists)[0] != "unsupported"


def _places(alike: Sequence[LogEvent]) -> Iterator[GroupLocation]:
    counts: Counter[SourceLocation] = Counter(
        sighting.location for sighting in alike if sighting.location
    )
    for location, count in counts.items():
        yield GroupLocation.at(location, module="", count=count)


def copies(seen: Sequence[LogEvent]) -> Partition:
    """What the profiler prints of copies between the devices: one by one, or else their totals."""
    each = [one for one in seen if one.kind == "copy"]
    counted = each or [one for one in seen if one.kind == "copy_total"]
    sums = {"to_cpu": [0, 0], "to_mps": [0, 0]}
    for sighting in counted:
        ends = (sighting.words["from"][:3], sighting.words["to"][:3])
        way = {("MPS", "CPU"): "to_cpu", ("CPU", "MPS"): "to_mps"}.get(ends)
        if way:
            sums[way][0] += int(sighting.numbers.get("runs", 1))
            sums[way][1] += int(sighting.numbers["bytes"])
    return Partition(
        regions=(),
        transfers_to_cpu=sums["to_cpu"][0],
        transfers_to_mps=sums["to_mps"][0],
        bytes_to_cpu=sums["to_cpu"][1],
        bytes_to_mps=sums["to_mps"][1],
    )


def _not_checked(seen: Sequence[LogEvent], found: System) -> Iterator[str]:
    yield _NOT_PRINTED
    warned = {sighting.op for sighting in seen if sighting.kind == "fallback"}
    if not any(sighting.kind in _RUNS for sighting in seen) and len(warned) < 2:
        yield _ONCE
    if not any(sighting.kind == "copy" for sighting in seen):
        yield _DETOURS
    ran = [sighting for sighting in seen if sighting.kind in {"operation", "operation_total"}]
    if ran:
        yield (
            f"which operators {plural(len(ran), 'line')} of the profiler are of: it names graphs and kernels by keys "
            "of its own"
        )
    printed = copies(seen)
    if printed.transfers_to_cpu + printed.transfers_to_mps:
        yield (
            f"whose the printed copies are, the program's own or a fallback's: {printed.transfers_to_cpu:,} to the CPU "
            f"({filesize(printed.bytes_to_cpu)}), {printed.transfers_to_mps:,} to mps ({filesize(printed.bytes_to_mps)})"
        )
    yield from found.notes
    yield _NUMBERS
