"""The frozen records of curated statements, and the values that their fields may have."""

from __future__ import annotations

import functools
from typing import Any

from opcheck.common.versions import Span, Version
from opcheck.common.vocabulary import EFFECTS, Effect, StatementEvidenceKind, StatementSort
from opcheck.data.conditions import Condition, parse
from opcheck.model.records import Record, StatementFacts

#: The effects that decide a verdict; the others are said beside it.
DECISIVE: tuple[Effect, ...] = ("aborts", "raises", "falls_back")

#: How it is known in which release an advisory's fault was mended.
FIXED_BASES = ("binary", "pr", "issue", "date")


class ErrorText(Record, frozen=True, kw_only=True):
    """What the Mac prints; ``{...}`` stands where PyTorch inserts a value."""

    #: the Python exception or warning.
    type: str
    text: str


class StatementEvidence(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Why a statement is believed."""

    kind: StatementEvidenceKind
    torch: str = ""
    where: str = ""
    line: int | None = None
    detail: str = ""


class Argument(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One argument of an operator's schema."""

    #: a list of tensors.
    tensors: bool = False
    #: it has a default, which is the value where a call does not give it.
    optional: bool = False
    default: Any = None


Arguments = dict[str, Argument]


class Statement(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One limitation or advisory: where all that it asks for holds, the effect follows."""

    #: kebab-case, stable, unique over all files.
    id: str
    sort: StatementSort
    #: overloads; a trailing ``*`` stands for any ending, ``*`` alone for making any tensor.
    ops: tuple[str, ...]
    effect: Effect
    torch: Span = Span()
    macos: Span = Span()
    #: some tensor on MPS has one of these; empty: whatever the dtype.
    dtypes: tuple[str, ...] = ()
    #: the arguments whose dtypes count, ``result`` for the output; empty: every tensor's.
    dtypes_of: tuple[str, ...] = ()
    #: an expression over the arguments; see conditions.py.
    condition: str = ""
    #: what must hold besides and no code can tell, in words: such a statement decides nothing.
    when: str = ""
    error: ErrorText | None = None
    summary: str = ""
    way_out: str = ""
    #: of an advisory: the first release without the fault, and how that is known.
    fixed: str = ""
    fixed_basis: str = ""
    links: tuple[str, ...] = ()
    evidence: tuple[StatementEvidence, ...] = ()

    def spans(self, line: str) -> bool:
        """Whether it speaks of that torch release line."""
        return _version(line) in self.torch

    @property
    def parsed(self) -> Condition | None:
        """The condition, if it has one.

        Raises:
            ConditionError: it is none; the reader of the files has refused such a statement.
        """
        return parse(self.condition) if self.condition else None

    @property
    def decides(self) -> bool:
        """Whether it can decide a verdict, where it holds for certain."""
        return self.effect in DECISIVE

    @property
    def rank(self) -> tuple[int, str]:
        """Sorts the statement with the worst effect first, then by id."""
        return (EFFECTS.index(self.effect), self.id)


@functools.cache
def _version(line: str) -> Version:
    return Version.parse(line)


def about(statement: Statement) -> StatementFacts:
    """What a report says of a statement that one of its calls meets."""
    return StatementFacts(
        sort=statement.sort,
        effect=statement.effect,
        summary=statement.summary,
        condition=statement.condition,
        when=statement.when,
        way_out=statement.way_out,
        links=statement.links,
    )


__all__ = [
    "DECISIVE",
    "FIXED_BASES",
    "Argument",
    "Arguments",
    "ErrorText",
    "Statement",
    "StatementEvidence",
    "about",
]
