"""One trace, many targets: headline, totals and what is not native, without the rest of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from opcheck.judge import OUTCOMES, judge_all
from opcheck.model import OpCall, Trace
from opcheck.oplists.registrations import OpLists
from opcheck.pipeline import HEADLINES
from opcheck.versions import Target

FAILS = HEADLINES[0]


class Judged(NamedTuple):
    """What a target makes of a trace."""

    headline: str
    complete: bool
    #: as in a Report
    totals: dict[str, int]
    #: (operator, status, kind, calls), by name
    not_native: tuple[tuple[str, str, str | None, int], ...]


def outcomes(trace: Trace, targets: Sequence[Target], lists: OpLists) -> list[Judged]:
    """For each target what a Report of the trace says in its headline and totals.

    Raises:
        OpListError: the lists hold no such torch release, or are damaged.
    """
    calls, counts = _distinct(trace.calls)
    return [_judged(trace, calls, counts, target, lists) for target in targets]


def _distinct(calls: Sequence[OpCall]) -> tuple[list[OpCall], list[int]]:
    """The calls that a judge can tell apart, and how many of each: which tensors they are it does not ask."""
    seen: dict[object, int] = {}
    kept: list[OpCall] = []
    counts: list[int] = []
    for call in calls:
        specs = tuple(
            (spec.argument, spec.dtype, spec.shape, spec.stride, spec.layout, spec.device)
            for spec in (*call.inputs, *call.outputs)
        )
        key = (
            call.op,
            call.phase == "move",
            len(call.inputs),
            specs,
            # 1, 1.0 and True are one key of a mapping, but not one value to a condition.
            repr(sorted(call.arguments.items())),
            call.inner,
            call.refusal,
            call.registrations,
        )
        place = seen.setdefault(key, len(kept))
        if place == len(kept):
            kept.append(call)
            counts.append(0)
        counts[place] += 1
    return kept, counts


def _judged(
    trace: Trace, calls: Sequence[OpCall], counts: Sequence[int], target: Target, lists: OpLists
) -> Judged:
    found: Counter[tuple[str, str, str | None]] = Counter()
    for call, count, verdict in zip(calls, counts, judge_all(calls, target, lists), strict=True):
        # Moves that work are not told of: a model has one for each tensor.
        if call.phase != "move" or verdict.status != "native":
            found[call.op, verdict.status, verdict.kind] += count
    totals = {"calls": found.total(), "operators": len({op for op, _, _ in found})}
    for status, kind in OUTCOMES:
        name = f"{status}_{kind}" if kind else status
        totals[name] = sum(
            n
            for (_, found_status, found_kind), n in found.items()
            if (found_status, found_kind) == (status, kind)
        )
    return Judged(
        headline=_headline(trace, totals, target),
        complete=trace.complete,
        totals=totals,
        not_native=tuple(
            (op, status, kind, calls)
            for (op, status, kind), calls in sorted(found.items(), key=str)
            if status != "native"
        ),
    )


def _headline(trace: Trace, totals: dict[str, int], target: Target) -> str:
    fails, could_not_tell, only_with_variable, partly, natively = HEADLINES
    if totals["unsupported"]:
        return fails
    if totals["unknown"] or not trace.complete or not totals["calls"]:
        return could_not_tell
    if totals["fallback_env"] and not target.cpu_fallback:
        return only_with_variable
    on_cpu = totals["fallback_env"] + totals["fallback_always"] + totals["fallback_internal"]
    return partly if on_cpu else natively
