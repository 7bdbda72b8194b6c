"""Turn statements of the lists into the notes of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opcheck.common.vocabulary import StatementSort
from opcheck.lookup.records import Note
from opcheck.model.records import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opcheck.common.versions import Span, Target
    from opcheck.data.statement_model import Statement, StatementEvidence
    from opcheck.model.records import Verdict


def notes(
    statements: Iterable[Statement],
    sort: StatementSort,
    verdict: Verdict | None = None,
    aim: Target | None = None,
    dtype: str | None = None,
) -> tuple[Note, ...]:
    """Return the statements of one sort that apply to the question: the deciding ones first, then the worst.

    Args:
        statements: of the overload and of those that decide for it.
        sort: ``limitation`` or ``advisory``.
        verdict: of the plain call; None if none was requested, so that no statement decides.
        aim: keep to what can hold on this target; None keeps every macOS.
        dtype: keep to what can hold for this dtype.
    """
    kept = [
        statement
        for statement in statements
        if statement.sort == sort
        and (aim is None or aim.macos in statement.macos)
        and (dtype is None or not statement.dtypes or dtype in statement.dtypes)
    ]
    decided: set[str] = set()
    if verdict is not None and verdict.status != "native":
        decided = {*verdict.limitations, *verdict.advisories}
    kept.sort(key=lambda statement: (not _decides(statement, decided), statement.rank))
    return tuple(_note(statement, _decides(statement, decided)) for statement in kept)


def _decides(statement: Statement, decided: set[str]) -> bool:
    return statement.id in decided and statement.decides


def _note(statement: Statement, decides: bool) -> Note:  # noqa: FBT001  (a field of the record)
    return Note(
        id=statement.id,
        effect=statement.effect,
        summary=statement.summary,
        torch=span_in_words(statement.torch),
        macos=span_in_words(statement.macos),
        dtypes=statement.dtypes,
        dtypes_of=statement.dtypes_of,
        condition=statement.condition,
        when=statement.when,
        prints=statement.error.text if statement.error else "",
        way_out=statement.way_out,
        fixed=statement.fixed,
        decides=decides,
        links=statement.links,
        evidence=tuple(map(_evidence, statement.evidence)),
    )


def _evidence(entry: StatementEvidence) -> Evidence:
    where = f"{entry.where}:{entry.line}" if entry.line else entry.where
    return Evidence(kind=entry.kind, torch=entry.torch, where=where, detail=entry.detail)


def span_in_words(span: Span) -> str:
    """Return a span such as ``from 2.3``, ``before 15.1`` or ``from 13.0, before 14.0``; empty if it has no bound."""
    parts = [f"from {span.since}"] if span.since else []
    return ", ".join(parts + ([f"before {span.until}"] if span.until else []))
