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
        names = [overload.name for overload in operator.overloads]
        models = (
            {"not_native": sweep.not_native(names), "used_by": sweep.users(names)} if sweep else {}
        )
        op_pages.append(replace(operator, **models))
    say("releases")
    lines = tuple(releases(lookup, sweep))
    newest, lists = lines[-1], lookup.lists
    system = str(macos_of(None, lists.releases[-1]))
    rules = tuple(_rules())
    model_pages = tuple(sweep.models()) if sweep else ()
    states = Counter(page.state for page in op_pages if page.torch == newest.torch)
    home = page_records.Home(
        tool=TOOL,
        op_lists=lists.digest,
        torch=newest.torch,
        macos=newest.macos,
        operators=len(op_pages),
        models=len(model_pages),
        counts={line.torch: line.counts for line in lines},
        states={state: states[state] for state in STATES},
        stops=next((line.stops for line in reversed(lines) if line.models), ()),
        advisories=sum(each.sort == "advisory" for each in lists.statements.by_id.values()),
    )
    listed = page_records.Operators(
        torch=newest.torch, macos=system, operators=tuple(map(_listed, op_pages))
    )
    of_all = page_records.Releases(macos=system, releases=tuple(map(_listed_release, lines)))
    return (
        *(home, listed, *op_pages, of_all, *lines),
        *(_statements(sort, lists, op_pages) for sort in get_args(StatementSort)),
        *(page_records.Rules(rules=rules), *rules),
        *((sweep.listed(model_pages),) if sweep else ()),
        *model_pages,
    )


def _listed(operator: OperatorPage) -> page_records.Listed:
    return page_records.Listed(
        name=operator.name,
        state=operator.state,
        torch=operator.torch,
        since=operator.since,
        overloads=len(operator.overloads),
        notes=len(operator.limitations) + len(operator.advisories),
        differs=tuple(operator.tables[operator.overloads[0].table][-1].dtypes),
    )


def _listed_release(line: ReleasePage) -> page_records.ListedRelease:
    changes = Counter(differ.change for differ in line.differs)
    return page_records.ListedRelease(
        torch=line.torch,
        release=line.release,
        minimum_macos=line.minimum_macos,
        counts=line.counts,
        changes={name: changes[name] for name in CHANGES} if line.before else {},
    )


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
    statements = sorted(lookup.lists.statements.by_id.values(), key=lambda each: each.rank)
    known, extensions = load_environment(), lookup.lists.extensions
    old = {variable.name for variable in known.known(before.line)} if before else set()
    environment = [
        replace(
            msgspec.convert(variable, Variable, from_attributes=True),
            change="new" if before and variable.name not in old else "",
        )
        for variable in known.known(line)
    ]
    changes = differences.diff(before.line, line, lookup=lookup).changes if before else ()
    differs = [
        Differs(
            name=change.name,
            change=change.change,
            before=cell_state(change.before) if change.before else None,
            after=cell_state(change.after) if change.after else None,
            because=change.because,
            dtypes={n: (cell_state(a), cell_state(b)) for n, (a, b) in change.dtypes.items()},
        )
        for change in changes
    ]
    libraries = {name: extensions.release(name, line) for name in extensions.releases}

    def references(chosen: Iterable[Statement]) -> tuple[StatementRef, ...]:
        return tuple(msgspec.convert(each, StatementRef, from_attributes=True) for each in chosen)

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
        environment=tuple(environment),
        lost=tuple(
            msgspec.convert(entry, Lost, from_attributes=True)
            for entry in lost
            if entry.torch == line
        ),
        differs=tuple(differs),
        begins=references(s for s in statements if before and str(s.torch.since) == line),
        ends=references(s for s in statements if str(s.torch.until) == line),
        libraries=tuple(f"{n} {paired.version}" for n, paired in libraries.items() if paired),
        models=sweep.headlines(line) if sweep else {},
        stops=sweep.stops(line) if sweep else (),
    )
