"""Apply the curated statements that a call matches to the verdict that the registrations gave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from opcheck.common.vocabulary import Effect, FallbackKind, Status
from opcheck.data.matching import Matches
from opcheck.data.messages import fill_text
from opcheck.data.statement_model import Statement
from opcheck.model.records import Evidence, OpCall, Verdict


def apply(verdict: Verdict, matches: Matches, call: OpCall, where: str, worse: Worse) -> Verdict:
    """Return the verdict with the effect of its statements; a statement never makes a verdict better.

    Args:
        verdict: what the registrations say.
        matches: the statements on the call's operator.
        call: the call.
        where: the torch release and the macOS version, as a sentence names them.
        worse: whether a status with its kind is worse than the verdict's.
    """
    if not matches.possible:
        return verdict
    certain = matches.certain
    texts = (
        fill_text(statement.error.text, call, statement.dtypes)
        for statement in certain
        if statement.error and not statement.decides
    )
    noted = msgspec.structs.replace(
        attach(verdict, matches.possible),
        evidence=(*verdict.evidence, *evidence(certain)),
        prints=verdict.prints or next(texts, ""),
    )
    decisive = matches.decisive
    if decisive is None:
        return noted
    status, kind = _DECIDED.get(decisive.effect, ("unsupported", None))
    if not worse(verdict, status, kind):
        return noted
    return msgspec.structs.replace(
        noted,
        status=status,
        kind=kind,
        because=f"{decisive.summary.rstrip('.')} ({where})",
        confidence=confidence(decisive),
        prints=fill_text(decisive.error.text, call, decisive.dtypes) if decisive.error else "",
    )


Worse = Callable[[Verdict, Status, FallbackKind | None], bool]
_DECIDED: dict[Effect, tuple[Status, FallbackKind | None]] = {"falls_back": ("fallback", "internal")}


def attach(verdict: Verdict, statements: Sequence[Statement]) -> Verdict:
    """Return the verdict with the ids of these statements added, sorted."""
    ids = {
        sort: {statement.id for statement in statements if statement.sort == sort}
        for sort in ("limitation", "advisory")
    }
    return msgspec.structs.replace(
        verdict,
        limitations=tuple(sorted({*verdict.limitations, *ids["limitation"]})),
        advisories=tuple(sorted({*verdict.advisories, *ids["advisory"]})),
    )


def evidence(certain: Iterable[Statement]) -> tuple[Evidence, ...]:
    """Return the evidence of statements that certainly apply; an entry with the statement's id precedes it."""
    return tuple(
        entry
        for statement in certain
        for entry in (
            Evidence(kind=statement.sort, detail=statement.id),
            *(
                Evidence(
                    kind=source.kind,
                    torch=source.torch,
                    where=f"{source.where}:{source.line}" if source.line else source.where,
                    detail=source.detail,
                )
                for source in statement.evidence
            ),
        )
    )


def confidence(statement: Statement) -> str:
    """Return the confidence of a verdict that this statement decides."""
    in_test_list = any(entry.kind == "opinfo" for entry in statement.evidence)
    return "test list" if in_test_list else "source check"
