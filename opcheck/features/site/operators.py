"""The pages of the operators: each with all of its overloads, over all releases and macOS versions."""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby

import msgspec
from msgspec.structs import replace

from opcheck.common.errors import UsageError
from opcheck.common.vocabulary import StatementSort
from opcheck.data import composites, regressions
from opcheck.data.registrations import data_directory
from opcheck.data.targets import macos_of
from opcheck.features.site.page_records import (
    AffectingStatement,
    Lost,
    Macos,
    OperatorPage,
    Overload,
    ReleaseChange,
    Standing,
)
from opcheck.lookup.answer import TRACKING, cells
from opcheck.lookup.answer_records import Cell, State, find_since, first_native
from opcheck.lookup.coverage import without_release
from opcheck.lookup.matrix import cell_state, short
from opcheck.lookup.notes import notes
from opcheck.lookup.operator_history import steps
from opcheck.lookup.plain_call import OperatorLookup, target
from opcheck.lookup.query import resolve, usual
from opcheck.render.wording import runs

#: Cells by release line, where the release has the overload.
_CellsByLine = dict[str, tuple[Cell, ...]]


def operators(lookup: OperatorLookup, only: Collection[str] = ()) -> Iterator[OperatorPage]:
    """Yield a page for every operator of torch and of the extension libraries, in the order of their names.

    Args:
        lookup: what judges plain calls.
        only: the operators, as ``aten::nonzero``.  Empty: all.

    Raises:
        OpListError: the lists are damaged.
    """
    python = _python(lookup)
    lost: dict[str, list[Lost]] = {}
    for entry in regressions.list_regressions(data_directory()):
        base = entry.op.partition(".")[0]
        lost.setdefault(base, []).append(msgspec.convert(entry, Lost, from_attributes=True))
    for base, members in groupby(_overloads(lookup), key=lambda op: op.partition(".")[0]):
        if not only or base in only:
            yield _operator(base, tuple(members), lookup, python.get(base, ()), lost.get(base, []))


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
    for function, called in composites.apis().items():
        with contextlib.suppress(UsageError):
            base = resolve(f"torch.{function}", lookup.lists).main.partition(".")[0]
            if len(called) == 1 or function.rpartition(".")[2] in base:
                functions_of.setdefault(base, []).append(f"torch.{function}")
    return {base: tuple(sorted(functions)) for base, functions in functions_of.items()}


def _operator(
    base: str,
    members: tuple[str, ...],
    lookup: OperatorLookup,
    python: tuple[str, ...],
    lost: Iterable[Lost],
) -> OperatorPage:
    by_op = {op: _cells(op, lookup) for op in members}
    newest = lookup.lists.releases[-1].line
    first = usual([op for op in members if newest in by_op[op]] or members)
    ordered = sorted(members, key=lambda op: (op != first, newest not in by_op[op], op))
    tables: dict[object, tuple[Standing, ...]] = {}
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
    limitations, advisories = (
        _statements_on(sort, ordered, by_op, line, lookup) for sort in _SORTS
    )
    links = dict.fromkeys(
        link for limitation in (*limitations, *advisories) for link in limitation.note.links
    )
    if base.startswith("aten::") and any(overload.state != "native" for overload in overloads):
        links |= dict.fromkeys(TRACKING)
    return OperatorPage(
        name=base,
        python=python,
        main=first,
        torch=line,
        macos=_newest(lookup),
        state=main.state,
        because=verdict.because,
        prints=verdict.prints if main.state != "native" else "",
        since=main.since,
        first_native=main.first_native,
        overloads=tuple(overloads),
        tables=tuple(tables.values()),
        limitations=limitations,
        advisories=advisories,
        everywhere=tuple(statement.id for statement in lookup.operators.everywhere(line)),
        lost=tuple(lost),
        history=tuple(
            ReleaseChange(
                torch=step.torch,
                state=short(State(status=step.status, kind=step.kind)),
                change=step.change,
                changed=step.changed,
            )
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


def _standings(op: str, by_line: _CellsByLine, lookup: OperatorLookup) -> Iterator[Standing]:
    """Yield what spans of releases do; a release without the overload ends a span."""
    for exists, group in groupby(lookup.lists.releases, key=lambda each: each.line in by_line):
        releases = {release.line: release for release in group}
        cells_of_span = (cell for line in releases for cell in by_line[line]) if exists else ()
        for lines, alike in runs(cells_of_span):
            last = releases[lines[-1]]
            for place, cell in enumerate(alike):
                own = State(status=cell.status, kind=cell.kind)
                # The last release of a span may start on a newer macOS than the first.
                aim = target(last.line, by_line[last.line][place].macos)
                because = lookup.verdict(op, aim, cell.dtype).because
                until = alike[place + 1].macos if place + 1 < len(alike) else None
                states = {n: cell_state(s) for n, s in cell.dtypes.items() if s != own}
                yield Standing(
                    torch=(lines[0], lines[-1]),
                    macos=Macos(since=cell.macos if place else None, until=until),
                    state=short(own),
                    dtype=cell.dtype,
                    dtypes=states,
                    because=without_release(because, last.torch),
                )


def _overload(op: str, by_line: _CellsByLine, lookup: OperatorLookup, table: int) -> Overload:
    states = {
        line: State(status=group[-1].status, kind=group[-1].kind) for line, group in by_line.items()
    }
    line = list(by_line)[-1]
    cell = by_line[line][-1]
    verdict = lookup.verdict(op, target(line, _newest(lookup)), cell.dtype)
    release = lookup.lists.release(line)
    return Overload(
        name=op,
        torch=line,
        state=short(states[line]),
        because=without_release(verdict.because, release.torch),
        since=find_since(states, tuple(states)),
        first_native=first_native(states, tuple(states)),
        registration=lookup.lists.operators(line).get(op)
        or lookup.operators.resolution(op, line).value
        or "",
        evidence=verdict.evidence,
        table=table,
    )


def _statements_on(
    sort: StatementSort,
    ordered: Iterable[str],
    by_op: Mapping[str, _CellsByLine],
    page_line: str,
    lookup: OperatorLookup,
) -> tuple[AffectingStatement, ...]:
    """Return the statements on some overload in some release, the worst effect first."""
    speaking: dict[str, list[str]] = {}
    current: set[str] = set()
    for op in ordered:
        ids: set[str] = set()
        for line in by_op[op]:
            of_line = {each.id for each in lookup.operators.statements_on(op, line)}
            ids |= of_line
            current |= of_line if line == page_line else set()
        for name in ids:
            speaking.setdefault(name, []).append(op)
    statements = [lookup.lists.statements.by_id[name] for name in speaking]
    return tuple(
        AffectingStatement(
            note=note, overloads=tuple(speaking[note.id]), current=note.id in current
        )
        for note in notes(statements, sort)
    )
