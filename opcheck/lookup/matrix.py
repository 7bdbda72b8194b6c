"""Compute the coverage of a release: a row for every operator overload that it has."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from opcheck.common.picking import pick
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
from opcheck.lookup.answer_words import aliases
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
        op_lists={**lookup.about, "wheel": release.wheel, "sha256": release.sha256, "built": release.built.isoformat()},
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
    dtype, verdict = lookup.plain(op, aim)
    states = past(op, lines, system, lookup)
    route = route_steps(op, states, lookup)[-1]
    about = [s for s in lookup.operators.statements_on(op, line) if aim.macos in s.macos]
    return Row(
        name=op,
        **pick(verdict, "status", "kind", "because"),
        since=find_since(states, lines),
        first_native=first_native(states, lines),
        route=route.route,
        route_since=route.torch,
        dtype=dtype,
        dtypes={n: cell_state(s) for n, s in lookup.states(op, aim, COMMON_DTYPES).items()},
        systems=systems(op, release, lookup),
        registration=lookup.lists.operators(line)[op],
        sparse=tuple(key for key in ("SparseMPS", "SparseCsrMPS") if op in lookup.lists.operators(line, key)),
        autocast=lookup.lists.operators(line, "AutocastMPS").get(op),
        limitations=tuple(s.id for s in about if s.sort == "limitation"),
        advisories=tuple(s.id for s in about if s.sort == "advisory"),
        links=tuple(dict.fromkeys(link for s in about for link in s.links)),
    )


def summarize(statement: Statement) -> About:
    """Return the part of a statement that a table shows."""
    return msgspec.convert(statement, About, from_attributes=True)


#: The number of overloads between two progress messages.
_STEP = 50


class StateRun(msgspec.Struct, frozen=True, kw_only=True):
    """The states of an overload from one release on, until its next run."""

    torch: str
    #: the place of each dtype's state in CELLS, in the order of COMMON_DTYPES.
    states: tuple[int, ...] = ()
    #: the place of the default dtype, for questions that name none.
    default: int = 0
    because: str = ""
    #: states by the first macOS that has them.
    systems: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    #: False: the overload does not exist.
    exists: bool = True


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The coverage of all releases, on one macOS version."""

    macos: str
    digest: str
    releases: tuple[Release, ...]
    operators: dict[str, tuple[StateRun, ...]]
    notes: dict[str, About]
    #: by release: overloads of each state, those that are composites left out.
    counts: dict[str, dict[str, int]]
    #: by operator without overloads: other names that people search for
    aliases: Mapping[str, tuple[str, ...]]


def coverage(
    macos: str | None,
    lookup: OperatorLookup,
    names: Iterable[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Coverage:
    """Return the coverage of every release, on one macOS version.

    Args:
        macos: the macOS version.  None: the newest.
        lookup: what judges plain calls.
        names: the overloads.  None: all.
        progress: called with the number of overloads that are done.

    Raises:
        UsageError: not a version.
        UnknownTargetError: no such macOS.
    """
    system = str(macos_of(macos, lookup.lists.releases[0]))
    wanted = sorted(names or lookup.lists.names())
    operators: dict[str, tuple[StateRun, ...]] = {}
    for number, op in enumerate(wanted):
        if progress and number % _STEP == 0:
            progress(f"{number:,} of {len(wanted):,} operator overloads, in all releases")
        operators[op] = _runs(op, system, lookup)
    named = {note for runs in operators.values() for run in runs for note in run.notes}
    by_id = lookup.lists.statements.by_id
    return Coverage(
        macos=system,
        digest=lookup.lists.digest,
        releases=lookup.lists.releases,
        operators=operators,
        notes={name: summarize(by_id[name]) for name in sorted(named)},
        counts={release.line: count_own(release.line, system, lookup) for release in lookup.lists.releases},
        aliases=aliases(wanted, lookup.lists.releases[-1].line),
    )


def _runs(op: str, system: str, lookup: OperatorLookup) -> tuple[StateRun, ...]:
    runs: list[StateRun] = []
    before: object = None
    for release in lookup.lists.releases:
        line = release.line
        exists = op in lookup.lists.operators(line)
        facts = exists and (lookup.operators.facts(op, line), release.minimum_macos)
        if facts != before and (exists or runs):
            run = _run(op, release, system, lookup)
            if not runs or replace(runs[-1], torch=line) != run:
                runs.append(run)
        before = facts
    return tuple(runs)


def _run(op: str, release: Release, system: str, lookup: OperatorLookup) -> StateRun:
    line = release.line
    if op not in lookup.lists.operators(line):
        return StateRun(torch=line, exists=False)
    aim = target(line, system)
    dtype, verdict = lookup.plain(op, aim)
    states = lookup.states(op, aim, COMMON_DTYPES)
    about = lookup.operators.statements_on(op, line)
    return StateRun(
        torch=line,
        states=tuple(CELLS.index(cell_state(states[name])) for name in COMMON_DTYPES),
        default=COMMON_DTYPES.index(dtype),
        because=without_release(verdict.because, release.torch),
        systems=systems(op, release, lookup) if about else {},
        notes=tuple(statement.id for statement in about if aim.macos in statement.macos),
    )


def without_release(because: str, torch: str) -> str:
    """Return a reason without the name of its release, so that equal reasons of several releases are equal texts."""
    because = because.replace(f" in torch {torch}", "").replace(f"(torch {torch}, ", "(")
    return because.replace(f"torch {torch} ", "the release ")
