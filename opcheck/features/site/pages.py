"""All pages of a site, from the op lists and optionally a sweep."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from opcheck.common.catalogue import groups
from opcheck.common.tool import TOOL
from opcheck.common.vocabulary import StatementSort
from opcheck.data import regressions
from opcheck.data.environment import load_environment
from opcheck.data.files import Release as Listed
from opcheck.data.registrations import OpLists, data_directory, load
from opcheck.data.statement_model import Statement
from opcheck.data.targets import macos_of
from opcheck.features.site import page_records, render
from opcheck.features.site import sweep as sweep_tables
from opcheck.features.site.operators import operators
from opcheck.features.site.page_records import (
    Differs,
    Lost,
    OperatorPage,
    ReleasePage,
    SitePage,
    StatementRef,
    Variable,
)
from opcheck.features.site.sweep import Sweep
from opcheck.judge import remedies
from opcheck.lookup import diff as differences
from opcheck.lookup.answer_records import State
from opcheck.lookup.diff import CHANGES
from opcheck.lookup.matrix import STATES, cell_state, count_own
from opcheck.lookup.notes import notes
from opcheck.lookup.plain_call import OperatorLookup


def pages(
    lookup: OperatorLookup,
    sweep: Sweep | None = None,
    *,
    only: Collection[str] = (),
    progress: Callable[[str], None] | None = None,
) -> tuple[SitePage, ...]:
    """Return every page, in a fixed order: the front page first.

    Args:
        lookup: what judges plain calls.
        sweep: the models.  None: there are none.
        only: the operators.  Empty: all.
        progress: receives the name of each page as it is made.

    Raises:
        OpListError: the lists are damaged.
    """
    say = progress or (lambda _: None)
    op_pages = []
    for operator in operators(lookup, only):
        say(f"operator {operator.name}")
        op_pages.append(_with_models(operator, sweep) if sweep else operator)
    say("releases")
    lines = tuple(releases(lookup, sweep))
    system = str(macos_of(None, lookup.lists.releases[-1]))
    rules = tuple(_rules())
    models = tuple(sweep.models()) if sweep else ()
    statements = [_statements(sort, lookup.lists, op_pages) for sort in get_args(StatementSort)]
    return (
        _home(lookup, op_pages, lines, len(models)),
        page_records.Operators(
            torch=lines[-1].torch,
            macos=system,
            operators=tuple(
                page_records.Listed(
                    name=operator.name,
                    state=operator.state,
                    torch=operator.torch,
                    since=operator.since,
                    overloads=len(operator.overloads),
                    notes=len(operator.limitations) + len(operator.advisories),
                    differs=tuple(operator.tables[operator.overloads[0].table][-1].dtypes),
                )
                for operator in op_pages
            ),
        ),
        *op_pages,
        _releases(lines, system),
        *lines,
        *statements,
        page_records.Rules(rules=rules),
        *rules,
        *((sweep.listed(models),) if sweep else ()),
        *models,
    )


def _with_models(operator: OperatorPage, sweep: Sweep) -> OperatorPage:
    names = [overload.name for overload in operator.overloads]
    return replace(operator, not_native=sweep.not_native(names), used_by=sweep.users(names))


def _home(
    lookup: OperatorLookup,
    op_pages: Collection[OperatorPage],
    lines: tuple[ReleasePage, ...],
    models: int,
) -> page_records.Home:
    newest = lines[-1]
    states = Counter(operator.state for operator in op_pages if operator.torch == newest.torch)
    return page_records.Home(
        tool=TOOL,
        op_lists=lookup.lists.digest,
        torch=newest.torch,
        macos=newest.macos,
        operators=len(op_pages),
        models=models,
        counts={line.torch: line.counts for line in lines},
        states={state: states[state] for state in STATES},
        stops=next((line.stops for line in reversed(lines) if line.models), ()),
        advisories=sum(
            statement.sort == "advisory" for statement in lookup.lists.statements.by_id.values()
        ),
    )


def _releases(lines: tuple[ReleasePage, ...], system: str) -> page_records.Releases:
    listed = []
    for line in lines:
        changes = Counter(differ.change for differ in line.differs)
        listed.append(
            page_records.ListedRelease(
                torch=line.torch,
                release=line.release,
                minimum_macos=line.minimum_macos,
                counts=line.counts,
                changes={name: changes[name] for name in CHANGES} if line.before else {},
            )
        )
    return page_records.Releases(macos=system, releases=tuple(listed))


def _rules() -> Iterator[page_records.Rule]:
    """Yield the page of ``opcheck explain`` for each finding and remedy, in its order."""
    for title, rules_of_verb in groups().items():
        for rule in rules_of_verb:
            yield page_records.Rule(
                sort="finding",
                id=rule.id,
                title=rule.title,
                found_by=title,
                severity=rule.severity,
                page=rule.page,
            )
    for remedy in remedies.REMEDIES:
        yield page_records.Rule(sort="remedy", id=remedy.id, title=remedy.title, page=remedy.page)


def _statements(
    sort: Literal["limitation", "advisory"], lists: OpLists, operators: Iterable[OperatorPage]
) -> page_records.Statements:
    """Return the page of all limitations, or of all advisories, the worst effect first."""
    by_id = lists.statements.by_id
    names: dict[str, list[str]] = {}
    for operator in operators:
        for about in (*operator.limitations, *operator.advisories):
            names.setdefault(about.note.id, []).append(operator.name)
    return page_records.Statements(
        sort=sort,
        statements=tuple(
            page_records.StatementPage(
                note=note,
                operators=tuple(names.get(note.id, ())),
                torch=tuple(
                    release.line
                    for release in lists.releases
                    if release.version in by_id[note.id].torch
                ),
            )
            for note in notes(lists.statements.by_id.values(), sort)
        ),
    )


def build(
    output: Path,
    swept: Path | None = None,
    *,
    lists: OpLists | None = None,
    only: Collection[str] = (),
    progress: Callable[[str], None] | None = None,
) -> tuple[SitePage, ...]:
    """Write the site into a folder, and return its pages.  The same lists give the same bytes.

    Args:
        output: a folder that does not exist, is empty, or has an earlier site, which is replaced.
        swept: the folder of a sweep, for the pages of models.  None: there are none.
        lists: the op lists; those that opcheck ships.
        only: the operators to write pages of.  Empty: all.
        progress: receives the name of each page as it is made and written.

    Raises:
        UsageError: the folder is not to be written to; the sweep cannot be read.
        OpListError: the lists are damaged.
    """
    render.check(output)
    site_pages = pages(
        OperatorLookup(lists or load()),
        sweep_tables.read(swept) if swept else None,
        only=only,
        progress=progress,
    )
    render.write(output, render.files(site_pages, progress))
    return site_pages


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
        yield replace(msgspec.convert(variable, Variable, from_attributes=True), change=change)


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
