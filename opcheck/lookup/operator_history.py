"""Trace how an operator's status changed from release to release, and what changed it."""

from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from opcheck.common.errors import located_at
from opcheck.common.names import parse_dtype
from opcheck.common.picking import pick
from opcheck.common.tool import TOOL
from opcheck.common.vocabulary import FallbackKind, RouteKind, Status
from opcheck.data.registrations import OpLists, load
from opcheck.data.targets import macos_of
from opcheck.judge.judge import outcome
from opcheck.lookup.answer import route_steps
from opcheck.lookup.answer_records import RouteStep, State, route_words
from opcheck.lookup.plain_call import COMMON_DTYPES, OperatorLookup, target
from opcheck.lookup.query import resolve
from opcheck.model.records import Record

SCHEMA = "opcheck-history/1"


class Step(Record, frozen=True, kw_only=True):
    """A release where something changed; the first step is the oldest release that has the overload."""

    torch: str
    status: Status
    kind: FallbackKind | None
    because: str
    #: ``first``, ``better``, ``worse``, ``same`` (only dtypes or limits), ``removed``.
    change: str
    #: what changed it: registrations, limitations and advisories, one a text.
    changed: tuple[str, ...]
    #: dtypes whose status changed with it.
    dtypes: dict[str, State]
    #: what computes a plain call.
    route: RouteKind = "unknown"


class OverloadHistory(Record, frozen=True, kw_only=True):
    """The history of one overload."""

    name: str
    steps: tuple[Step, ...]


class HistoryAnswer(Record, frozen=True, kw_only=True):
    """The answer to ``opcheck history``."""

    schema: str = SCHEMA
    tool: str
    op: str
    macos: str
    dtype: str | None
    overloads: tuple[OverloadHistory, ...]
    op_lists: dict[str, str]


def history(
    query: str, macos: str | None = None, dtype: str | None = None, *, lists: OpLists | None = None
) -> HistoryAnswer:
    """Return the steps of each overload that the query means, the usual overload first.

    Args:
        query: as for ``answer``.
        macos: the macOS version, on which older releases are asked too.  Left out: the newest.
        dtype: the dtype.  Left out: the first usual one that does best.
        lists: the op lists; those that opcheck ships.

    Raises:
        UsageError: no such operator, dtype or version.
        UnknownTargetError: the newest release does not run on that macOS.
    """
    lookup = OperatorLookup(lists or load())
    meant = resolve(query, lookup.lists)
    # Checked against the release with the lowest requirement, so that old systems are allowed.
    system = str(macos_of(macos, lookup.lists.releases[0]))
    with located_at("--dtype"):
        wanted = parse_dtype(dtype) if dtype else None
    ordered = sorted(meant.overloads, key=lambda op: (op != meant.main, op))
    return HistoryAnswer(
        tool=TOOL,
        op=meant.asked,
        macos=system,
        dtype=wanted,
        overloads=tuple(OverloadHistory(name=op, steps=steps(op, system, wanted, lookup)) for op in ordered),
        op_lists=lookup.about,
    )


class _Moment(NamedTuple):
    """An overload in one release; a step is made where two releases differ."""

    #: as the first of a history, with every dtype
    step: Step
    severity: int
    #: (overload, registration) of those that decide, and the ids of the statements on them.
    registrations: dict[str, str]
    statements: frozenset[str]
    route: RouteStep
    #: the statements on every operator, with the dtypes that they name.
    general: dict[str, tuple[str, ...]]

    @property
    def is_native(self) -> bool:
        return self.step.status == "native"


#: What two releases may differ in, besides their routes.
_compared = attrgetter("step.status", "step.kind", "step.dtypes", "registrations", "statements")


def steps(op: str, system: str, dtype: str | None, lookup: OperatorLookup) -> tuple[Step, ...]:
    """Return the releases where something changed for an overload, on one macOS version."""
    changes: list[Step] = []
    before: _Moment | None = None
    for release in lookup.lists.releases:
        line = release.line
        if lookup.operators.resolution(op, line).value is None:
            if before is not None:
                changes.append(_make_removal(op, line, release.torch))
            before = None
            continue
        now = _moment(op, line, system, dtype, lookup)
        if before is None or _routes_differ(before, now) or _compared(before) != _compared(now):
            changes.append(_step(before, now))
        before = now
    return tuple(changes)


def _moment(op: str, line: str, system: str, dtype: str | None, lookup: OperatorLookup) -> _Moment:
    aim = target(line, system)
    _, verdict = lookup.plain(op, aim, dtype)
    column = lookup.lists.operators(line)
    (route,) = route_steps(op, (line,), lookup)
    statements = (each for each in lookup.operators.statements_on(op, line) if aim.macos in each.macos)
    general = (each for each in lookup.operators.everywhere(line) if aim.macos in each.macos)
    return _Moment(
        step=Step(
            torch=line,
            **pick(verdict, "status", "kind", "because"),
            change="first",
            changed=(),
            dtypes=lookup.states(op, aim, (dtype,) if dtype else COMMON_DTYPES),
            route=route.route,
        ),
        severity=outcome(verdict).severity,
        registrations={
            name: column.get(name) or lookup.operators.resolution(name, line).value or "absent"
            for name in lookup.operators.deciding(op, line)
        },
        statements=frozenset(each.id for each in statements if not (dtype and each.dtypes) or dtype in each.dtypes),
        route=route,
        general={each.id: each.dtypes for each in general},
    )


def _routes_differ(before: _Moment, now: _Moment) -> bool:
    """Return whether native calls are computed in another way; other changes show in the status."""
    is_known = before.is_native and now.is_native and now.route.route != "unknown"
    return is_known and not before.route.is_like(now.route)


def _step(before: _Moment | None, now: _Moment) -> Step:
    if before is None:
        changed = [f"{op}: {value}" for op, value in now.registrations.items()]
        if now.is_native and now.route.route != "unknown":
            changed.append(f"computed by: {route_words(now.route)}")
        return replace(now.step, changed=tuple(changed))
    change = "better" if now.severity < before.severity else "worse"
    return replace(
        now.step,
        change="same" if now.severity == before.severity else change,
        changed=tuple(_changes(before, now)),
        dtypes={name: state for name, state in now.step.dtypes.items() if before.step.dtypes.get(name) != state},
    )


def _changes(before: _Moment, now: _Moment) -> Iterator[str]:
    for op in dict.fromkeys([*before.registrations, *now.registrations]):
        was, value = before.registrations.get(op), now.registrations.get(op)
        if was != value:
            yield f"{op}: {was or 'not called'} -> {value or 'not called'}"
    if _routes_differ(before, now):
        yield f"computed by: {route_words(before.route)} -> {route_words(now.route)}"
    # A statement on every operator is listed only where it changes a state.
    shown = {name for name, state in now.step.dtypes.items() if before.step.dtypes[name] != state}
    sides = (("no longer applies", before, now), ("applies from here", now, before))
    for text, side, other in sides:
        yield from (f"{text}: {name}" for name in sorted(side.statements - other.statements))
    for text, side, other in sides:
        for name in sorted(side.general.keys() - other.general.keys()):
            if shown & {*side.general[name]}:
                yield f"{text}: {name}"


def _make_removal(op: str, line: str, torch: str) -> Step:
    because, changed = f"torch {torch} has no operator {op}", (f"{op}: removed",)
    return Step(torch=line, status="unknown", kind=None, because=because, change="removed", changed=changed, dtypes={})
