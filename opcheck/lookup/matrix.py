"""Compute the coverage of a release: a row for every operator overload that it has."""

from collections.abc import Iterable

from opcheck.common.tool import TOOL
from opcheck.common.versions import Version, macos_note
from opcheck.common.vocabulary import Effect, FallbackKind, RouteKind, Status
from opcheck.data.files import Release
from opcheck.data.registrations import OpLists, load
from opcheck.data.statement_model import Statement
from opcheck.data.targets import macos_of, macos_points, release_note, release_of
from opcheck.judge.judge import OUTCOMES
from opcheck.lookup.answer import route_steps
from opcheck.lookup.answer_records import State, find_since, first_native
from opcheck.lookup.plain_call import COMMON_DTYPES, OperatorLookup, target
from opcheck.model.records import Record

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
    past = Past(lookup, system, upto=release.line)
    rows = tuple(_row(op, release, system, past) for op in sorted(known.operators(past.upto)))
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


def short(state: State) -> str:
    """Join a status and its kind into one word: ``native``, ``fallback_env``."""
    return f"{state.status}_{state.kind}" if state.kind else state.status


def cell_state(state: State) -> str:
    """Return the status in one word, with a mark where results are wrong: ``native_wrong``."""
    return short(state) + ("_wrong" if state.wrong else "")


def systems(op: str, release: Release, lookup: OperatorLookup) -> dict[str, str]:
    """Return the status by the first macOS version that has it; empty if all versions agree."""
    steps: dict[str, str] = {}
    # Not answer.cells, which judges all dtypes on each macOS: this halves the time of the page of all releases.
    for system in macos_points(release, lookup.operators.systems(op, release.line)):
        aim = target(release.line, system)
        word = short(lookup.state(op, aim, lookup.default_dtype(op, aim)))
        if word not in list(steps.values())[-1:]:
            steps[system] = word
    return steps if len(steps) > 1 else {}


def counts(states: Iterable[State]) -> dict[str, int]:
    """Count the overloads by status and kind, and in all."""
    numbers = {"overloads": 0} | dict.fromkeys(STATES, 0)
    for state in states:
        numbers["overloads"] += 1
        numbers[short(state)] += 1
    return numbers


class Past:
    """Looks up the statuses of overloads in the releases up to a given one, on one macOS version."""

    def __init__(self, lookup: OperatorLookup, macos: str, *, upto: str) -> None:
        self.lookup = lookup
        self.macos = macos
        self.upto = upto
        last = Version.parse(upto)
        self.lines = tuple(
            release.line for release in lookup.lists.releases if release.version <= last
        )

    def states(self, op: str) -> dict[str, State]:
        """Return the overload's state by release line, where it exists."""
        states: dict[str, State] = {}
        known: dict[object, State] = {}
        for line in self.lines:
            if self.exists(op, line):
                facts = self.lookup.operators.facts(op, line)
                if facts not in known:
                    known[facts] = self.at(op, line)
                states[line] = known[facts]
        return states

    def exists(self, op: str, line: str) -> bool:
        """Return whether a release has the overload."""
        return op in self.lookup.lists.operators(line)

    def at(self, op: str, line: str) -> State:
        """Return the overload's state in one release."""
        aim = target(line, self.macos)
        return self.lookup.state(op, aim, self.lookup.default_dtype(op, aim))


def _row(op: str, release: Release, system: str, past: Past) -> Row:
    lookup, line = past.lookup, release.line
    aim = target(line, system)
    dtype = lookup.default_dtype(op, aim)
    verdict = lookup.verdict(op, aim, dtype)
    states = past.states(op)
    route = route_steps(op, states, lookup)[-1]
    about = [
        s for s in lookup.operators.statements_on(op, line) if Version.parse(system) in s.macos
    ]
    return Row(
        name=op,
        status=verdict.status,
        kind=verdict.kind,
        because=verdict.because,
        since=find_since(states, past.lines),
        first_native=first_native(states, past.lines),
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
    return About(
        effect=statement.effect,
        summary=statement.summary,
        way_out=statement.way_out,
        links=statement.links,
    )
