"""Compute the coverage of a release: a row for every operator overload that it has."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from opcheck.common.tool import TOOL
from opcheck.common.versions import Version, macos_note
from opcheck.common.vocabulary import Effect, FallbackKind, RouteKind, Status
from opcheck.data.files import Release
from opcheck.data.registrations import OpLists, load
from opcheck.data.statement_model import Statement
from opcheck.data.targets import macos_of, macos_points, release_note, release_of
from opcheck.judge.judge import OUTCOMES
from opcheck.lookup.answer import lines_until, past, route_steps
from opcheck.lookup.answer_records import State, find_since, first_native
from opcheck.lookup.plain_call import COMMON_DTYPES, OperatorLookup, target
from opcheck.model.records import Record, Verdict

SCHEMA = "opcheck-matrix/1"

#: Every status with its kind in one word, from best to worst.
STATES = tuple(f"{status}_{kind}" if kind else status for status, kind in OUTCOMES)
#: A native cell whose results are wrong beyond rare cases.
WRONG = "native_wrong"
#: What the cell of a dtype can be.
CELLS = (*STATES, WRONG)


class Row(Record, frozen=True, kw_only=True):
    """The states of one overload."""

    name: str
    status: Status
    kind: FallbackKind | None
    because: str
    #: first release line of those with the same status up to this one; ``≤2.13``: or longer.
    since: str
    #: first release line where it was native on this macOS; null: never.
    first_native: str | None
    #: what computes a plain call, and since which release line.
    route: RouteKind
    route_since: str
    #: the dtype that the status is of.
    dtype: str
    #: by dtype ``native``, ``fallback_env`` ...; ``native_wrong``: an advisory holds, beyond rare cases.
    dtypes: dict[str, str]
    #: the same by the first macOS version that has it; empty where all of them are alike.
    systems: dict[str, str]
    #: what the library registers; op_lists/README.md explains the values.
    registration: str
    sparse: tuple[str, ...]
    autocast: str | None
    #: ids of ``statements``.
    limitations: tuple[str, ...]
    advisories: tuple[str, ...]
    links: tuple[str, ...]


class About(Record, frozen=True, kw_only=True):
    """A statement to which rows refer by its id."""

    effect: Effect
    summary: str
    way_out: str
    links: tuple[str, ...]


class Matrix(Record, frozen=True, kw_only=True):
    """The answer to ``opcheck matrix``."""

    schema: str = SCHEMA
    tool: str
    torch: str
    release: str
    macos: str
    counts: dict[str, int]
    rows: tuple[Row, ...]
    statements: dict[str, About]
    notes: tuple[str, ...]
    op_lists: dict[str, str]


def matrix(
    torch: str | None = None,
    macos: str | None = None,
    *,
    lists: OpLists | None = None,
    lookup: OperatorLookup | None = None,
) -> Matrix:
    """Return the coverage of a release on a macOS version.

    Args:
        torch: the release.  Left out: the newest.
        macos: the macOS version.  Left out: the newest.
        lists: the op lists; those that opcheck ships.
        lookup: used in their place, with what it has judged already.

    Raises:
        UsageError: not a version.
        UnknownTargetError: no list for the release, or it does not run on that macOS.
    """
    lookup = lookup or OperatorLookup(lists or load())
    known = lookup.lists
    release = release_of(torch, known)
    note = release_note(torch, release)
    system = str(macos_of(macos, release))
    rows = tuple(_row(op, release, system, lookup) for op in sorted(known.operators(release.line)))
    named = {name for row in rows for name in (*row.limitations, *row.advisories)}
    return Matrix(
        tool=TOOL,
        torch=release.line,
        release=release.torch,
        macos=system,
        counts=counts(State(status=row.status, kind=row.kind) for row in rows),
        rows=rows,
        statements={name: summarize(known.statements.by_id[name]) for name in sorted(named)},
        notes=tuple(filter(None, (note, macos_note(Version.parse(system))))),
        op_lists={
            "digest": known.digest,
            "newest": known.releases[-1].torch,
            "wheel": release.wheel,
            "sha256": release.sha256,
            "built": release.built.isoformat(),
        },
    )


def short(entry: State | Verdict | Row) -> str:
    """Join a status and its kind into one word: ``native``, ``fallback_env``."""
    return f"{entry.status}_{entry.kind}" if entry.kind else entry.status


def cell_state(state: State) -> str:
    """Return the status in one word, with a mark where results are wrong: ``native_wrong``."""
    return short(state) + ("_wrong" if state.wrong else "")


def systems(op: str, release: Release, lookup: OperatorLookup) -> dict[str, str]:
    """Return the status by the first macOS version that has it; empty if all versions agree."""
    steps: dict[str, str] = {}
    # Not answer.cells, which judges all dtypes on each macOS: this halves the time of the page of all releases.
    for system in macos_points(release, lookup.operators.systems(op, release.line)):
        word = short(lookup.state(op, target(release.line, system)))
        if word not in list(steps.values())[-1:]:
            steps[system] = word
    return steps if len(steps) > 1 else {}


def count_own(line: str, system: str, lookup: OperatorLookup) -> dict[str, int]:
    """Count the overloads of a release that are no composites, on one macOS version."""
    own = (op for op in lookup.lists.operators(line) if not lookup.operators.composite(op, line))
    return counts(lookup.state(op, target(line, system)) for op in own)


def counts(states: Iterable[State]) -> dict[str, int]:
    """Count the overloads by status and kind, and in all."""
    numbers = Counter(map(short, states))
    return {"overloads": numbers.total()} | {state: numbers[state] for state in STATES}


def _row(op: str, release: Release, system: str, lookup: OperatorLookup) -> Row:
    line = release.line
    aim = target(line, system)
    lines = lines_until(line, lookup)
    dtype = lookup.default_dtype(op, aim)
    verdict = lookup.verdict(op, aim, dtype)
    states = past(op, lines, system, lookup)
    route = route_steps(op, states, lookup)[-1]
    about = [
        s for s in lookup.operators.statements_on(op, line) if Version.parse(system) in s.macos
    ]
    return Row(
        name=op,
        status=verdict.status,
        kind=verdict.kind,
        because=verdict.because,
        since=find_since(states, lines),
        first_native=first_native(states, lines),
        route=route.route,
        route_since=route.torch,
        dtype=dtype,
        dtypes={n: cell_state(s) for n, s in lookup.states(op, aim, COMMON_DTYPES).items()},
        systems=systems(op, release, lookup),
        registration=lookup.lists.operators(line)[op],
        sparse=tuple(
            key for key in ("SparseMPS", "SparseCsrMPS") if op in lookup.lists.operators(line, key)
        ),
        autocast=lookup.lists.operators(line, "AutocastMPS").get(op),
        limitations=tuple(s.id for s in about if s.sort == "limitation"),
        advisories=tuple(s.id for s in about if s.sort == "advisory"),
        links=tuple(dict.fromkeys(link for s in about for link in s.links)),
    )


def summarize(statement: Statement) -> About:
    """Return the part of a statement that a table shows."""
    return msgspec.convert(statement, About, from_attributes=True)
