"""The pages of the torch releases: what each brought and broke, and what it needs of a Mac."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from opcheck.data import regressions
from opcheck.data.environment import load_environment
from opcheck.data.files import Release as Listed
from opcheck.data.registrations import data_directory
from opcheck.data.statement_model import Statement
from opcheck.data.targets import macos_of
from opcheck.features.site.page_records import Differs, Lost, ReleasePage, StatementRef, Variable
from opcheck.features.site.sweep import Sweep
from opcheck.lookup import diff as differences
from opcheck.lookup.answer_records import State
from opcheck.lookup.matrix import cell_state, count_own
from opcheck.lookup.plain_call import OperatorLookup


def releases(lookup: OperatorLookup, sweep: Sweep | None = None) -> Iterator[ReleasePage]:
    """Yield a page for every release of the lists, the oldest first; compared on the newest macOS.

    Raises:
        OpListError: the lists are damaged.
    """
    before: Listed | None = None
    every = lookup.lists.releases
    lost = regressions.list_regressions(data_directory())
    for number, release in enumerate(every):
        after = every[number + 1].line if number + 1 < len(every) else None
        yield _release(release, before, after, lookup, lost, sweep)
        before = release


def _release(
    release: Listed,
    before: Listed | None,
    after: str | None,
    lookup: OperatorLookup,
    lost: Iterable[regressions.Regression],
    sweep: Sweep | None,
) -> ReleasePage:
    line, system = release.line, str(macos_of(None, release))
    statements = lookup.lists.statements.by_id.values()
    return ReleasePage(
        torch=line,
        release=release.torch,
        wheel=release.wheel,
        sha256=release.sha256,
        commit=release.commit,
        built=release.built.isoformat(),
        minimum_macos=release.minimum_macos,
        minimum_macos_text=release.minimum_macos_text,
        macos=system,
        before=before.line if before else None,
        after=after,
        counts=count_own(line, system, lookup),
        environment=tuple(_environment(line, before)),
        lost=tuple(
            msgspec.convert(entry, Lost, from_attributes=True)
            for entry in lost
            if entry.torch == line
        ),
        differs=tuple(_differs(before.line, line, lookup)) if before else (),
        begins=_references(s for s in statements if before and str(s.torch.since) == line),
        ends=_references(s for s in statements if str(s.torch.until) == line),
        libraries=tuple(_libraries(line, lookup)),
        models=sweep.headlines(line) if sweep else {},
        stops=sweep.stops(line) if sweep else (),
    )


def _environment(line: str, before: Listed | None) -> Iterator[Variable]:
    known = load_environment()
    old = {variable.name for variable in known.known(before.line)} if before else set()
    for variable in known.known(line):
        change = "new" if before and variable.name not in old else ""
        described = msgspec.convert(variable, Variable, from_attributes=True)
        yield replace(described, change=change)


def _differs(before: str, line: str, lookup: OperatorLookup) -> Iterator[Differs]:
    for change in differences.diff(before, line, lookup=lookup).changes:
        yield Differs(
            name=change.name,
            change=change.change,
            before=_word(change.before),
            after=_word(change.after),
            because=change.because,
            dtypes={
                name: (cell_state(was), cell_state(now))
                for name, (was, now) in change.dtypes.items()
            },
        )


def _word(state: State | None) -> str | None:
    return cell_state(state) if state else None


def _references(statements: Iterable[Statement]) -> tuple[StatementRef, ...]:
    ordered = sorted(statements, key=lambda statement: statement.rank)
    return tuple(
        msgspec.convert(statement, StatementRef, from_attributes=True) for statement in ordered
    )


def _libraries(line: str, lookup: OperatorLookup) -> Iterator[str]:
    extensions = lookup.lists.extensions
    for library in extensions.releases:
        release = extensions.release(library, line)
        if release is not None:
            yield f"{library} {release.version}"
