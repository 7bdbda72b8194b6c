"""All pages of a site, from the op lists and optionally a sweep."""

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Literal, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from opcheck.common.catalogue import groups
from opcheck.common.errors import UsageError
from opcheck.common.grouping import group_values
from opcheck.common.picking import pick
from opcheck.common.tool import TOOL
from opcheck.common.vocabulary import StatementSort
from opcheck.data import composites, lint
from opcheck.data.environment import ENVIRONMENT
from opcheck.data.files import Release as Listed
from opcheck.data.registrations import OpLists, data_directory, load
from opcheck.data.targets import macos_of
from opcheck.features.site import page_records as records
from opcheck.features.site import render
from opcheck.features.site import sweep as sweep_tables
from opcheck.features.site.sweep import Sweep
from opcheck.judge import remedies
from opcheck.lookup import diff as differences
from opcheck.lookup.answer import TRACKING, cells
from opcheck.lookup.answer_records import Cell, State, find_since, first_native
from opcheck.lookup.matrix import STATES, cell_state, count_own, short, without_release
from opcheck.lookup.notes import notes
from opcheck.lookup.operator_history import Step, steps
from opcheck.lookup.plain_call import OperatorLookup, target
from opcheck.lookup.query import resolve, usual
from opcheck.model.records import Record
from opcheck.render.wording import runs
from opcheck.worker.worker import Progress

_Kind = TypeVar("_Kind", bound=Record)
#: Cells by release line, where the release has the overload.
_CellsByLine = dict[str, tuple[Cell, ...]]


def operators(lookup: OperatorLookup, only: Collection[str] = ()) -> Iterator[records.OperatorPage]:
    """Yield a page for every operator of torch and of the extension libraries, in the order of their names.

    Args:
        lookup: what judges plain calls.
        only: the operators, as ``aten::nonzero``.  Empty: all.

    Raises:
        OpListError: the lists are damaged.
    """
    python = _python(lookup)
    lost = group_values((entry.op.partition(".")[0], entry) for entry in lint.list_regressions(data_directory()))
    for base, members in groupby(_overloads(lookup), key=lambda op: op.partition(".")[0]):
        if not only or base in only:
            yield _operator(base, list(members), lookup, python.get(base, ()), lost.get(base, []))


def _overloads(lookup: OperatorLookup) -> list[str]:
    names = {*lookup.lists.names()}
    for library, releases in lookup.lists.extensions.releases.items():
        for release in releases:
            names |= lookup.lists.extensions.operators(library, release.line).keys()
    return sorted(names, key=lambda op: (op.partition(".")[0], op))


def _python(lookup: OperatorLookup) -> Mapping[str, tuple[str, ...]]:
    """Return the functions of Python that ``opcheck op`` answers by an operator, by its name.

    Only those that are called much as it is: what a function does with several others is no name of theirs.
    """
    functions_of: dict[str, list[str]] = {}
    for function, called in composites.SAMPLED.load().apis.items():
        with contextlib.suppress(UsageError):
            base = resolve(f"torch.{function}", lookup.lists).main.partition(".")[0]
            if len(called) == 1 or function.rpartition(".")[2] in base:
                functions_of.setdefault(base, []).append(f"torch.{function}")
    return {base: tuple(sorted(functions)) for base, functions in functions_of.items()}


def _operator(
    base: str, members: list[str], lookup: OperatorLookup, python: tuple[str, ...], lost: list[lint.Regression]
) -> records.OperatorPage:
    by_op = {op: _cells(op, lookup) for op in members}
    newest = lookup.lists.releases[-1].line
    first = usual([op for op in members if newest in by_op[op]] or members)
    ordered = sorted(members, key=lambda op: (op != first, newest not in by_op[op], op))
    tables: dict[object, tuple[records.Standing, ...]] = {}
    overloads = []
    for op in ordered:
        rows = tuple(_standings(op, by_op[op], lookup))
        # Why may differ in words: each overload has its own reason.
        alike = msgspec.json.encode([replace(row, because="") for row in rows])
        tables.setdefault(alike, rows)
        overloads.append(_overload(op, by_op[op], lookup, list(tables).index(alike)))
    main = overloads[0]
    line = main.torch
    verdict = lookup.verdict(first, target(line, _newest(lookup)), by_op[first][line][-1].dtype)
    limitations, advisories = _statements_on(ordered, by_op, line, lookup)
    links = dict.fromkeys(link for limitation in (*limitations, *advisories) for link in limitation.note.links)
    if base.startswith("aten::") and any(overload.state != "native" for overload in overloads):
        links |= dict.fromkeys(TRACKING)
    return records.OperatorPage(
        name=base,
        python=python,
        main=first,
        macos=_newest(lookup),
        because=verdict.because,
        prints=verdict.prints if main.state != "native" else "",
        **pick(main, "torch", "state", "since", "first_native"),
        overloads=tuple(overloads),
        tables=tuple(tables.values()),
        limitations=limitations,
        advisories=advisories,
        everywhere=tuple(statement.id for statement in lookup.operators.everywhere(line)),
        lost=tuple(lost),
        history=tuple(
            records.ReleaseChange(torch=step.torch, state=short(_state(step)), change=step.change, changed=step.changed)
            for step in steps(first, _newest(lookup), None, lookup)
        ),
        links=tuple(links),
    )


_SORTS: tuple[StatementSort, ...] = ("limitation", "advisory")


def _newest(lookup: OperatorLookup) -> str:
    return str(macos_of(None, lookup.lists.releases[-1]))


def _cells(op: str, lookup: OperatorLookup) -> _CellsByLine:
    """Return the cells by release; releases between which the overload is the same are looked up once."""
    known: dict[object, tuple[Cell, ...]] = {}
    by_line: _CellsByLine = {}
    for release in lookup.lists.releases:
        line = release.line
        if lookup.operators.resolution(op, line).value is not None:
            facts = (lookup.operators.facts(op, line), release.minimum_macos)
            if facts not in known:
                known[facts] = cells(op, (release,), lookup)
            by_line[line] = tuple(replace(c, torch=line) for c in known[facts])
    return by_line


def _standings(op: str, by_line: _CellsByLine, lookup: OperatorLookup) -> Iterator[records.Standing]:
    """Yield what spans of releases do; a release without the overload ends a span."""
    for exists, group in groupby(lookup.lists.releases, key=lambda each: each.line in by_line):
        releases = {release.line: release for release in group}
        cells_of_span = (cell for line in releases for cell in by_line[line]) if exists else ()
        for lines, alike in runs(cells_of_span):
            last = releases[lines[-1]]
            for place, cell in enumerate(alike):
                own = _state(cell)
                # The last release of a span may start on a newer macOS than the first.
                aim = target(last.line, by_line[last.line][place].macos)
                because = lookup.verdict(op, aim, cell.dtype).because
                until = alike[place + 1].macos if place + 1 < len(alike) else None
                states = {n: cell_state(s) for n, s in cell.dtypes.items() if s != own}
                yield records.Standing(
                    torch=(lines[0], lines[-1]),
                    macos=records.Macos(since=cell.macos if place else None, until=until),
                    state=short(own),
                    dtype=cell.dtype,
                    dtypes=states,
                    because=without_release(because, last.torch),
                )


def _state(entry: Cell | Step) -> State:
    return State(status=entry.status, kind=entry.kind)


def _overload(op: str, by_line: _CellsByLine, lookup: OperatorLookup, table: int) -> records.Overload:
    states = {line: _state(group[-1]) for line, group in by_line.items()}
    line = list(by_line)[-1]
    cell = by_line[line][-1]
    verdict = lookup.verdict(op, target(line, _newest(lookup)), cell.dtype)
    release = lookup.lists.release(line)
    return records.Overload(
        name=op,
        torch=line,
        state=short(states[line]),
        because=without_release(verdict.because, release.torch),
        since=find_since(states, tuple(states)),
        first_native=first_native(states, tuple(states)),
        registration=lookup.lists.operators(line).get(op) or lookup.operators.resolution(op, line).value or "",
        evidence=verdict.evidence,
        table=table,
    )


def _statements_on(
    ordered: Sequence[str], by_op: Mapping[str, _CellsByLine], page_line: str, lookup: OperatorLookup
) -> Iterator[tuple[records.AffectingStatement, ...]]:
    """Yield the limitations, then the advisories on some overload in some release, the worst effect first."""
    speaking: dict[str, list[str]] = {}
    current: set[str] = set()
    for op in ordered:
        by_line = {line: {each.id for each in lookup.operators.statements_on(op, line)} for line in by_op[op]}
        current |= by_line.get(page_line, set())
        for name in set().union(*by_line.values()):
            speaking.setdefault(name, []).append(op)
    statements = [lookup.lists.statements.by_id[name] for name in speaking]
    for sort in _SORTS:
        yield tuple(
            records.AffectingStatement(note=note, overloads=tuple(speaking[note.id]), current=note.id in current)
            for note in notes(statements, sort)
        )


def pages(
    lookup: OperatorLookup, sweep: Sweep | None = None, *, only: Collection[str] = (), progress: Progress | None = None
) -> tuple[records.SitePage, ...]:
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
        models = {"not_native": sweep.not_native(names), "used_by": sweep.users(names)} if sweep else {}
        op_pages.append(replace(operator, **models))
    say("releases")
    lines = tuple(releases(lookup, sweep))
    newest, lists = lines[-1], lookup.lists
    system = str(macos_of(None, lists.releases[-1]))
    rules = tuple(_rules())
    model_pages = tuple(sweep.models()) if sweep else ()
    states = Counter(page.state for page in op_pages if page.torch == newest.torch)
    home = records.Home(
        tool=TOOL,
        op_lists=lists.digest,
        **pick(newest, "torch", "macos"),
        operators=len(op_pages),
        models=len(model_pages),
        counts={line.torch: line.counts for line in lines},
        states={state: states[state] for state in STATES},
        stops=next((line.stops for line in reversed(lines) if line.models), ()),
        advisories=sum(each.sort == "advisory" for each in lists.statements.by_id.values()),
    )
    listed = records.Operators(torch=newest.torch, macos=system, operators=tuple(map(_list_operator, op_pages)))
    of_all = records.Releases(macos=system, releases=tuple(map(_list_release, lines)))
    return (
        *(home, listed, *op_pages, of_all, *lines),
        *(_statements(sort, lists, op_pages) for sort in get_args(StatementSort)),
        *(records.Rules(rules=rules), *rules),
        *((sweep.listed(model_pages),) if sweep else ()),
        *model_pages,
    )


def _list_operator(operator: records.OperatorPage) -> records.Listed:
    return records.Listed(
        **pick(operator, "name", "state", "torch", "since"),
        overloads=len(operator.overloads),
        notes=len(operator.limitations) + len(operator.advisories),
        differs=tuple(operator.tables[operator.overloads[0].table][-1].dtypes),
    )


def _list_release(line: records.ReleasePage) -> records.ListedRelease:
    changes = Counter(differ.change for differ in line.differs)
    counted = {name: changes[name] for name in differences.CHANGES} if line.before else {}
    return records.ListedRelease(changes=counted, **pick(line, "torch", "release", "minimum_macos", "counts"))


def _rules() -> Iterator[records.Rule]:
    """Yield the page of ``opcheck explain`` for each finding and remedy, in its order."""
    for title, rules_of_verb in groups().items():
        for rule in rules_of_verb:
            yield records.Rule(sort="finding", found_by=title, **pick(rule, "id", "title", "severity", "page"))
    for remedy in remedies.REMEDIES:
        yield records.Rule(sort="remedy", **pick(remedy, "id", "title", "page"))


def _statements(
    sort: Literal["limitation", "advisory"], lists: OpLists, operators: Iterable[records.OperatorPage]
) -> records.Statements:
    """Return the page of all limitations, or of all advisories, the worst effect first."""
    by_id = lists.statements.by_id
    noted = ((page.name, about.note.id) for page in operators for about in (*page.limitations, *page.advisories))
    names = group_values((statement, name) for name, statement in noted)
    return records.Statements(
        sort=sort,
        statements=tuple(
            records.StatementPage(
                note=note,
                operators=tuple(names.get(note.id, ())),
                torch=tuple(release.line for release in lists.releases if release.version in by_id[note.id].torch),
            )
            for note in notes(lists.statements.by_id.values(), sort)
        ),
    )


def build(output: Path, swept: Path | None = None, progress: Progress | None = None) -> tuple[records.SitePage, ...]:
    """Write the site into a folder, and return its pages.  The same lists give the same bytes.

    Args:
        output: a folder that does not exist, is empty, or has an earlier site, which is replaced.
        swept: the folder of a sweep, for the pages of models.  None: there are none.
        progress: receives the name of each page as it is made and written.

    Raises:
        UsageError: the folder is not to be written to; the sweep cannot be read.
        OpListError: the lists are damaged.
    """
    render.check(output)
    lookup, tables = OperatorLookup(load()), sweep_tables.read(swept) if swept else None
    render.check_room(output, len({op.partition(".")[0] for op in _overloads(lookup)}))
    site_pages = pages(lookup, tables, progress=progress)
    render.write(output, render.files(site_pages, progress))
    return site_pages


def releases(lookup: OperatorLookup, sweep: Sweep | None = None) -> Iterator[records.ReleasePage]:
    """Yield a page for every release of the lists, the oldest first; compared on the newest macOS.

    Raises:
        OpListError: the lists are damaged.
    """
    every, lost = lookup.lists.releases, lint.list_regressions(data_directory())
    for before, release, after in zip((None, *every), every, (*every[1:], None), strict=False):
        yield _release(release, before, after.line if after else None, lookup, lost, sweep)


def _release(
    release: Listed,
    before: Listed | None,
    after: str | None,
    lookup: OperatorLookup,
    lost: Iterable[lint.Regression],
    sweep: Sweep | None,
) -> records.ReleasePage:
    line, system = release.line, str(macos_of(None, release))
    statements = sorted(lookup.lists.statements.by_id.values(), key=lambda each: each.rank)
    known, extensions = ENVIRONMENT.load(), lookup.lists.extensions
    old = {variable.name for variable in known.known(before.line)} if before else set()
    environment = [
        replace(_convert(each, records.Variable), change="new" if before and each.name not in old else "")
        for each in known.known(line)
    ]
    changes = differences.diff(before.line, line, lookup=lookup).changes if before else ()
    differs = [
        records.Differs(
            before=cell_state(change.before) if change.before else None,
            after=cell_state(change.after) if change.after else None,
            dtypes={n: (cell_state(a), cell_state(b)) for n, (a, b) in change.dtypes.items()},
            **pick(change, "name", "change", "because"),
        )
        for change in changes
    ]
    libraries = {name: extensions.release(name, line) for name in extensions.releases}
    return records.ReleasePage(
        torch=line,
        release=release.torch,
        built=release.built.isoformat(),
        **pick(release, "wheel", "sha256", "commit", "minimum_macos", "minimum_macos_text"),
        macos=system,
        before=before.line if before else None,
        after=after,
        counts=count_own(line, system, lookup),
        environment=tuple(environment),
        lost=tuple(entry for entry in lost if entry.torch == line),
        differs=tuple(differs),
        begins=tuple(_convert(s, records.StatementRef) for s in statements if before and str(s.torch.since) == line),
        ends=tuple(_convert(s, records.StatementRef) for s in statements if str(s.torch.until) == line),
        libraries=tuple(f"{n} {paired.version}" for n, paired in libraries.items() if paired),
        models=sweep.headlines(line) if sweep else {},
        stops=sweep.stops(line) if sweep else (),
    )


def _convert(entry: object, kind: type[_Kind]) -> _Kind:
    """Return the fields of a record that the site shows."""
    return msgspec.convert(entry, kind, from_attributes=True)
