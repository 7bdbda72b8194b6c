"""Compute the states of all overloads in all releases, for the coverage page and its plot."""

from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from opcheck.data.files import Release
from opcheck.data.targets import macos_of
from opcheck.lookup.aliases import aliases
from opcheck.lookup.matrix import CELLS, About, cell_state, count_own, summarize, systems
from opcheck.lookup.plain_call import COMMON_DTYPES, OperatorLookup, target

#: The number of overloads between two progress messages.
_STEP = 50


class StateRun(msgspec.Struct, frozen=True, kw_only=True):
    """The states of an overload from one release on, until its next run."""

    torch: str
    #: the place of each dtype's state in CELLS, in the order of COMMON_DTYPES.
    states: tuple[int, ...]
    #: the place of the default dtype, for questions that name none.
    default: int
    because: str
    #: states by the first macOS that has them.
    systems: dict[str, str]
    notes: tuple[str, ...]
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
        counts={
            release.line: count_own(release.line, system, lookup)
            for release in lookup.lists.releases
        },
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
        return StateRun(
            torch=line, states=(), default=0, because="", systems={}, notes=(), exists=False
        )
    aim = target(line, system)
    dtype = lookup.default_dtype(op, aim)
    states = lookup.states(op, aim, COMMON_DTYPES)
    about = lookup.operators.statements_on(op, line)
    because = lookup.verdict(op, aim, dtype).because
    return StateRun(
        torch=line,
        states=tuple(CELLS.index(cell_state(states[name])) for name in COMMON_DTYPES),
        default=COMMON_DTYPES.index(dtype),
        because=without_release(because, release.torch),
        systems=systems(op, release, lookup) if about else {},
        notes=tuple(statement.id for statement in about if aim.macos in statement.macos),
    )


def without_release(because: str, torch: str) -> str:
    """Return a reason without the name of its release, so that equal reasons of several releases are equal texts."""
    because = because.replace(f" in torch {torch}", "").replace(f"(torch {torch}, ", "(")
    return because.replace(f"torch {torch} ", "the release ")
