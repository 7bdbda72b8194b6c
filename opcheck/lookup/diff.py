"""Compare two torch releases operator by operator: regressions first."""

from collections.abc import Iterable, Iterator

from opcheck.common.errors import located_at
from opcheck.common.names import parse_dtype
from opcheck.common.tool import TOOL
from opcheck.data.files import Release
from opcheck.data.registrations import OpLists, load
from opcheck.data.targets import macos_of, release_note, release_of
from opcheck.lookup.answer import route_steps
from opcheck.lookup.answer_records import RouteStep, State
from opcheck.lookup.plain_call import COMMON_DTYPES, OperatorLookup, severity, target
from opcheck.model.records import Record

SCHEMA = "opcheck-diff/1"

#: How an overload can change, in the order of the report.
CHANGES = ("regressed", "dtypes_lost", "removed", "improved", "dtypes_gained", "added", "other")

#: The changes that can break a program that ran before, and the others.
REGRESSIONS = CHANGES[:3]
IMPROVEMENTS = CHANGES[3:]


class OverloadChange(Record, frozen=True, kw_only=True):
    """One overload that differs between the releases."""

    name: str
    change: str
    before: State | None
    after: State | None
    because: str
    #: the overload whose registration decides in the newer release.
    decided_by: str
    #: dtype: before and after, where they differ.
    dtypes: dict[str, tuple[State, State]]


class RouteChange(Record, frozen=True, kw_only=True):
    """An overload with a kernel in both releases that computes in another way in the second."""

    name: str
    before: RouteStep
    after: RouteStep


class DiffAnswer(Record, frozen=True, kw_only=True):
    """The answer to ``opcheck diff``."""

    schema: str = SCHEMA
    tool: str
    before: dict[str, str]
    after: dict[str, str]
    macos: str
    dtype: str | None
    counts: dict[str, int]
    changes: tuple[OverloadChange, ...]
    #: overloads with a kernel in both releases that is another sort of kernel now.
    routes: tuple[RouteChange, ...] = ()
    notes: tuple[str, ...]
    op_lists: dict[str, str]


def diff(
    before: str,
    after: str,
    macos: str | None = None,
    dtype: str | None = None,
    *,
    lists: OpLists | None = None,
    lookup: OperatorLookup | None = None,
) -> DiffAnswer:
    """Return every overload whose plain call has another result in the second release.

    Args:
        before: the release that one comes from.
        after: the release that one goes to.
        macos: the macOS version that both run on.  Left out: the newest.
        dtype: compare for this dtype only.
        lists: the op lists; those that opcheck ships.
        lookup: used in their place, with what it has judged already.

    Raises:
        UsageError: no version, no dtype.
        UnknownTargetError: no list for a release, or one of them does not run on that macOS.
    """
    lookup = lookup or OperatorLookup(lists or load())
    pair = (release_of(before, lookup.lists, "BEFORE"), release_of(after, lookup.lists, "AFTER"))
    system = str(macos_of(macos, pair[0]))
    macos_of(system, pair[1])
    with located_at("--dtype"):
        wanted = parse_dtype(dtype) if dtype else None
    names = {op for release in pair for op in lookup.lists.operators(release.line)}
    changes = [change for op in names if (change := _change(op, pair, system, wanted, lookup))]
    changes.sort(key=lambda change: (CHANGES.index(change.change), change.name))
    return DiffAnswer(
        tool=TOOL,
        before={"torch": pair[0].line, "release": pair[0].torch},
        after={"torch": pair[1].line, "release": pair[1].torch},
        macos=system,
        dtype=wanted,
        counts={name: sum(c.change == name for c in changes) for name in CHANGES},
        changes=tuple(changes),
        routes=tuple(_route_changes(sorted(names), (pair[0].line, pair[1].line), lookup)),
        notes=tuple(_notes(pair, (before, after))),
        op_lists=lookup.about,
    )


def _change(
    op: str, pair: tuple[Release, Release], system: str, dtype: str | None, lookup: OperatorLookup
) -> OverloadChange | None:
    lines = [release.line for release in pair]
    exists = [op in lookup.lists.operators(line) for line in lines]
    facts = [lookup.operators.facts(op, line) for line in lines] if all(exists) else []
    if facts and facts[0] == facts[1]:
        return None
    states = [lookup.state(op, target(line, system), dtype) for line in lines]
    dtypes: dict[str, tuple[State, State]] = {}
    if all(exists):
        names = (dtype,) if dtype else COMMON_DTYPES
        before, after = (lookup.states(op, target(line, system), names) for line in lines)
        dtypes = {n: (before[n], after[n]) for n in names if before[n] != after[n]}
        if states[0] == states[1] and not dtypes:
            return None
    newest = lines[exists[1]]
    aim = target(newest, system)
    _, verdict = lookup.plain(op, aim, dtype)
    removed = f"torch {pair[1].torch} has no operator {op}"
    return OverloadChange(
        name=op,
        change=_kind(exists, states, dtypes),
        before=states[0] if exists[0] else None,
        after=states[1] if exists[1] else None,
        because=verdict.because if exists[1] else removed,
        decided_by=lookup.lists.resolve(op, newest).chain[-1],
        dtypes=dtypes,
    )


def _route_changes(names: Iterable[str], lines: tuple[str, str], lookup: OperatorLookup) -> Iterator[RouteChange]:
    """Yield the overloads with a kernel in both releases whose route differs."""
    for op in names:
        if all(lookup.lists.operators(line).get(op) == "kernel" for line in lines):
            steps = route_steps(op, lines, lookup)
            if len(steps) > 1 and "unknown" not in {step.route for step in steps}:
                yield RouteChange(name=op, before=steps[0], after=steps[1])


def _kind(exists: list[bool], states: list[State], dtypes: dict[str, tuple[State, State]]) -> str:
    if not all(exists):
        return "removed" if exists[0] else "added"
    was, now = map(severity, states)
    if was != now:
        return "regressed" if now > was else "improved"
    steps = [severity(after) - severity(before) for before, after in dtypes.values()]
    if any(step > 0 for step in steps):
        return "dtypes_lost"
    return "dtypes_gained" if any(step < 0 for step in steps) else "other"


def _notes(pair: tuple[Release, Release], texts: tuple[str, str]) -> Iterator[str]:
    yield from filter(None, map(release_note, texts, pair))
    old, new = (release.minimum for release in pair)
    if new > old:
        starts = f"torch {pair[1].torch} starts on macOS {new} and newer"
        yield f"{starts}, torch {pair[0].torch} on {old}"
