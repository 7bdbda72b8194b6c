"""Judge one trace on many targets: headline, totals and calls that are not native, without the rest of a report.

What a status depends on is looked up once for all calls of an operator; a call is judged once for all targets on
which it meets the same registrations and statements.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from opcheck.common.grouping import group_values
from opcheck.common.versions import Target
from opcheck.common.vocabulary import FallbackKind, Headline, Status
from opcheck.data.registrations import OpLists
from opcheck.judge.assembly import headline, totals
from opcheck.judge.judge import OUTCOMES, certain, judge, likeness, sparse_key
from opcheck.judge.memory.estimate import estimate, may_run_out
from opcheck.model.records import OpCall, Record, Trace


class TargetSummary(Record, frozen=True, kw_only=True):
    """The headline and the totals of a trace on one target, as in its Report."""

    target: Target
    headline: Headline
    totals: dict[str, int]
    #: (operator, status, kind, calls) of all that is not native; in the order of a report's groups.
    operators: tuple[tuple[str, Status, FallbackKind | None, int], ...]


def summaries(trace: Trace, targets: Sequence[Target], lists: OpLists) -> tuple[TargetSummary, ...]:
    """Return for each target, in their order, the headline and the totals of a Report of the trace.

    Raises:
        OpListError: the lists have no such torch release, or are damaged.
    """
    ways = _Ways(targets, lists)
    columns: list[Counter[tuple[str, Status, FallbackKind | None]]] = [Counter() for _ in targets]
    for call, library, count in _distinct(trace, ways):
        for places in ways.alike(call):
            target = targets[places[0]]
            verdict = certain(judge(call, target, lists), library, target)
            # Moves that succeed are not reported: a model moves each tensor.
            if call.phase != "move" or verdict.status != "native":
                for place in places:
                    columns[place][call.op, verdict.status, verdict.kind] += count
    return tuple(_summary(trace, target, column) for target, column in zip(targets, columns, strict=True))


def _summary(
    trace: Trace, target: Target, column: Mapping[tuple[str, Status, FallbackKind | None], int]
) -> TargetSummary:
    worst_first = sorted(column, key=lambda row: (-OUTCOMES[row[1], row[2]].severity, row[0]))
    outcomes = {(status, kind) for _, status, kind in column}
    memory = estimate(trace, target) if may_run_out(trace) else None
    return TargetSummary(
        target=target,
        headline=headline(trace, outcomes, target, memory),
        totals=totals((*row, count) for row, count in column.items()),
        operators=tuple((*row, column[row]) for row in worst_first if row[1] != "native"),
    )


def _distinct(trace: Trace, ways: _Ways) -> list[tuple[OpCall, str, int]]:
    """Return one call for each set of calls that no target distinguishes, its differing library, and the set's size."""

    def key(call: OpCall) -> tuple[Hashable, str, bool]:
        library = trace.differing_library(call.location)
        return likeness(call, details=ways.details(call)), library, call.phase == "move"

    alike_calls = group_values((key(call), call) for call in trace.calls)
    return [(alike[0], library, len(alike)) for (_, library, _), alike in alike_calls.items()]


class _Ways:
    """The data of each target that the status of an operator's calls can depend on."""

    def __init__(self, targets: Sequence[Target], lists: OpLists) -> None:
        self._targets = targets
        self._lists = lists
        self._alike: dict[Hashable, tuple[tuple[int, ...], ...]] = {}
        #: each target's registration of an operator, and the statements in force there
        self._column = functools.cache(lambda op: [self._way(op, each) for each in targets])
        self._has_details = functools.cache(lists.statements.need_details)

    def alike(self, call: OpCall) -> tuple[tuple[int, ...], ...]:
        """Return the positions of the targets, grouped by the status and kind that they give the call.

        ``judge`` looks at the registrations and statements of the operator and, for a composite, of those that its body
        calls; PYTORCH_ENABLE_MPS_FALLBACK changes only what a Mac prints.
        """
        key = (call.op, call.inner, sparse_key(call))
        if key not in self._alike:
            columns = [self._column(op) for op in (call.op, *(call.inner or ()))]
            if key[2]:
                lines = [str(target.torch) for target in self._targets]
                columns.append([self._lists.registration(call.op, line, key[2]) for line in lines])
            places = group_values((way, place) for place, way in enumerate(zip(*columns, strict=True)))
            self._alike[key] = tuple(map(tuple, places.values()))
        return self._alike[key]

    def _way(self, op: str, target: Target) -> Hashable:
        line = str(target.torch)
        statements = self._lists.statements.for_op(op, line)
        in_force = (statement.id for statement in statements if target.macos in statement.macos)
        return self._lists.resolve(op, line), *in_force

    def details(self, call: OpCall) -> bool:
        """Return whether two calls of the operator with the same dtypes may differ on some target."""
        return any(map(self._has_details, (call.op, *(call.inner or ()))))
