"""Apply the curated statements that a call matches to the verdict that the registrations gave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from opcheck.common.versions import Target
from opcheck.common.vocabulary import Effect, FallbackKind, Status
from opcheck.data.matching import depends_on_more_than_dtypes, holds
from opcheck.data.messages import filled
from opcheck.data.registrations import OpLists
from opcheck.data.statement_model import ErrorText, Statement
from opcheck.data.statements import EVERY_OPERATOR
from opcheck.model.records import Evidence, OpCall, Verdict


class Matches(NamedTuple):
    """The statements that a call matches: for certain, or perhaps; each tuple in the order of the ids."""

    certain: tuple[Statement, ...]
    perhaps: tuple[Statement, ...]

    @property
    def decisive(self) -> Statement | None:
        """Return the statement that decides: the worst effect, then the first id."""
        deciding = [statement for statement in self.certain if statement.decides]
        return min(deciding, key=lambda statement: statement.rank, default=None)

    @property
    def stops(self) -> bool:
        """Return whether the program ends at the call, by an exception or a crash."""
        return self.decisive is not None and self.decisive.effect not in _DECIDED


def matching(
    call: OpCall, target: Target, lists: OpLists, *, everywhere: bool, composite: bool = False
) -> Matches:
    """Return the statements on the call's operator that the call matches on the target.

    Args:
        call: the call.
        target: the torch release and the macOS version.
        lists: the op lists with their statements.
        everywhere: those on every operator, which speak of making a tensor; else the others.
        composite: the call has no kernel of its own, so that statements on every kernel leave it out.
    """
    certain: list[Statement] = []
    perhaps: list[Statement] = []
    arguments = lists.statements.arguments.get(call.op)
    for statement in lists.statements.for_op(call.op, str(target.torch)):
        if composite and statement.on_every_kernel:
            continue
        if (EVERY_OPERATOR in statement.ops) is everywhere:
            held = holds(statement, call, target, arguments)
            if held is not False:
                (certain if held else perhaps).append(statement)
    return Matches(tuple(certain), tuple(perhaps))


def answered(call: OpCall, target: Target, lists: OpLists) -> frozenset[ErrorText]:
    """Return the refusals for which a statement on the call's own operator decides whether they apply."""
    arguments = lists.statements.arguments.get(call.op)
    return frozenset(
        statement.error
        for statement in lists.statements.for_op(call.op, str(target.torch))
        if statement.error and holds(statement, call, target, arguments) is not None
    )


def both(first: Matches, second: Matches) -> Matches:
    """Return the union of two sets of matches, in the order of the ids."""
    certain = sorted((*first.certain, *second.certain), key=lambda statement: statement.id)
    perhaps = sorted((*first.perhaps, *second.perhaps), key=lambda statement: statement.id)
    return Matches(tuple(certain), tuple(perhaps))


def apply(verdict: Verdict, matches: Matches, call: OpCall, case: Where, worse: Worse) -> Verdict:
    """Return the verdict with the effect of its statements; a statement never makes a verdict better.

    Args:
        verdict: what the registrations say.
        matches: the statements that the call meets.
        call: the call.
        case: the torch release and the macOS version, as they are called.
        worse: whether a status with its kind is worse than the verdict's.
    """
    if not matches.certain and not matches.perhaps:
        return verdict
    texts = (
        filled(statement.error.text, call, statement.dtypes)
        for statement in matches.certain
        if statement.error and not statement.decides
    )
    noted = msgspec.structs.replace(
        attach(verdict, (*matches.certain, *matches.perhaps)),
        evidence=(*verdict.evidence, *evidence(matches.certain)),
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
        because=f"{decisive.summary.rstrip('.')} (torch {case.torch}, macOS {case.macos})",
        confidence=confidence(decisive),
        prints=filled(decisive.error.text, call, decisive.dtypes) if decisive.error else "",
    )


class Where(NamedTuple):
    """The torch release and the macOS version as a verdict names them."""

    torch: str
    macos: str


Worse = Callable[[Verdict, Status, FallbackKind | None], bool]
_DECIDED: dict[Effect, tuple[Status, FallbackKind | None]] = {
    "falls_back": ("fallback", "internal")
}


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


def detail_needed(op: str, target: Target, lists: OpLists) -> bool:
    """Return whether two calls of the operator with the same set of dtypes may get different verdicts."""
    return any(map(depends_on_more_than_dtypes, lists.statements.for_op(op, str(target.torch))))
