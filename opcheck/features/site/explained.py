"""The pages of what audits and scans find, of the ways out, and of what the curated statements say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from opcheck.common.catalogue import groups
from opcheck.data.registrations import OpLists
from opcheck.features.site.records import Operator, Rule, Statement, Statements
from opcheck.judge import remedies
from opcheck.lookup.notes import notes


def rules() -> Iterator[Rule]:
    """Yield a page for every finding and remedy, as ``opcheck explain`` has it and in its order."""
    for title, rules_of_verb in groups().items():
        for rule in rules_of_verb:
            yield Rule(
                sort="finding",
                id=rule.id,
                title=rule.title,
                found_by=title,
                severity=rule.severity,
                page=rule.page,
            )
    for remedy in remedies.REMEDIES:
        yield Rule(sort="remedy", id=remedy.id, title=remedy.title, page=remedy.page)


def statements(
    sort: Literal["limitation", "advisory"], lists: OpLists, operators: Iterable[Operator]
) -> Statements:
    """Return the page of all limitations, or of all advisories, the worst effect first."""
    names: dict[str, list[str]] = {}
    for operator in operators:
        for about in (*operator.limitations, *operator.advisories):
            names.setdefault(about.note.id, []).append(operator.name)
    return Statements(
        sort=sort,
        statements=tuple(
            Statement(note=note, operators=tuple(names.get(note.id, ())))
            for note in notes(lists.statements.by_id.values(), sort)
        ),
    )
