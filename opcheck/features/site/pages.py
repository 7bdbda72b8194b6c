"""All pages of a site, from the op lists and, where there is one, a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import get_args

import msgspec

from opcheck.common.tool import TOOL
from opcheck.common.vocabulary import StatementSort
from opcheck.data.targets import macos_of
from opcheck.features.site import explained
from opcheck.features.site.addresses import Page
from opcheck.features.site.operators import operators
from opcheck.features.site.records import (
    Home,
    Listed,
    ListedRelease,
    Operator,
    Operators,
    Release,
    Releases,
    Rules,
)
from opcheck.features.site.releases import releases
from opcheck.features.site.sweep import Sweep
from opcheck.lookup.diff import CHANGES
from opcheck.lookup.matrix import STATES
from opcheck.lookup.plain_call import OperatorLookup


def pages(
    lookup: OperatorLookup,
    sweep: Sweep | None = None,
    *,
    only: Collection[str] = (),
    progress: Callable[[str], None] | None = None,
) -> tuple[Page, ...]:
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
    rules = tuple(explained.rules())
    models = tuple(sweep.models()) if sweep else ()
    statements = [
        explained.statements(sort, lookup.lists, op_pages) for sort in get_args(StatementSort)
    ]
    return (
        _home(lookup, op_pages, lines, len(models)),
        _listed(op_pages, lines[-1], system),
        *op_pages,
        _releases(lines, system),
        *lines,
        *statements,
        Rules(rules=rules),
        *rules,
        *((sweep.listed(models),) if sweep else ()),
        *models,
    )


def _with_models(operator: Operator, sweep: Sweep) -> Operator:
    names = [overload.name for overload in operator.overloads]
    return msgspec.structs.replace(
        operator, not_native=sweep.not_native(names), used_by=sweep.users(names)
    )


def _home(
    lookup: OperatorLookup, op_pages: Collection[Operator], lines: tuple[Release, ...], models: int
) -> Home:
    newest = lines[-1]
    states = Counter(operator.state for operator in op_pages if operator.torch == newest.torch)
    return Home(
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


def _releases(lines: tuple[Release, ...], system: str) -> Releases:
    listed = []
    for line in lines:
        changes = Counter(differ.change for differ in line.differs)
        listed.append(
            ListedRelease(
                torch=line.torch,
                release=line.release,
                minimum_macos=line.minimum_macos,
                counts=line.counts,
                changes={name: changes[name] for name in CHANGES} if line.before else {},
            )
        )
    return Releases(macos=system, releases=tuple(listed))


def _listed(op_pages: Collection[Operator], newest: Release, system: str) -> Operators:
    return Operators(
        torch=newest.torch,
        macos=system,
        operators=tuple(
            Listed(
                name=operator.name,
                state=operator.state,
                torch=operator.torch,
                since=operator.since,
                overloads=len(operator.overloads),
                notes=len(operator.limitations) + len(operator.advisories),
            )
            for operator in op_pages
        ),
    )
