"""The texts that curated statements quote, as patterns: which statement a printed line is of."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

from opcheck.common.versions import Span, Version
from opcheck.common.vocabulary import EFFECTS
from opcheck.data.registrations import OpLists
from opcheck.data.statement_model import Statement

#: What a statement's effect makes of a text that is printed.
_KINDS = {
    "aborts": "aborted",
    "raises": "refused",
    "falls_back": "detour",
    "wrong_result": "warned",
    "narrows": "warned",
    "warns": "warned",
}

_PLACEHOLDER = re.compile(r"\{[^{}]{1,20}\}")
#: A text that names none of them is taken only where an exception's or a warning's type stands before it.
_TELLING = ("MPS", "mps", "Metal", "acOS")
_TYPED = ("Error: ", "Warning: ")


class Quoted(NamedTuple):
    """One text, and the statements that quote it."""

    needle: str
    regex: re.Pattern[str]
    statements: tuple[Statement, ...]
    #: how long the text is without what PyTorch inserts
    letters: int

    @property
    def kind(self) -> str:
        """What the worst effect of the statements makes of it."""
        worst = min(self.statements, key=lambda one: EFFECTS.index(one.effect))
        return _KINDS[worst.effect]

    @property
    def span(self) -> Span:
        """From the first release that some statement speaks of to the last."""
        starts = [statement.torch.since for statement in self.statements]
        ends = [statement.torch.until for statement in self.statements]
        return Span(since=_least(starts), until=_most(ends))


def _least(versions: Sequence[Version | None]) -> Version | None:
    known = [version for version in versions if version is not None]
    return min(known) if len(known) == len(versions) else None


def _most(versions: Sequence[Version | None]) -> Version | None:
    known = [version for version in versions if version is not None]
    return max(known) if len(known) == len(versions) else None


@functools.lru_cache(maxsize=4)
def quoted(lists: OpLists) -> tuple[Quoted, ...]:
    """All texts of the lists, the one with the most letters of its own first."""
    by_text: dict[str, list[Statement]] = {}
    for statement in lists.statements.all:
        if statement.error is not None:
            by_text.setdefault(statement.error.text.strip(), []).append(statement)
    made = [_quoted(text, tuple(statements)) for text, statements in by_text.items()]
    return tuple(sorted(made, key=lambda one: -one.letters))


def _quoted(text: str, statements: tuple[Statement, ...]) -> Quoted:
    literals = _PLACEHOLDER.split(text)
    needle = max(literals, key=len).strip()
    pattern = r"[^\n]{1,80}?".join(re.escape(part) for part in literals)
    if text.startswith("{"):
        # What C++ inserts first is a name.
        pattern = r"\w{1,80}" + pattern.removeprefix(r"[^\n]{1,80}?")
    if not any(word in text for word in _TELLING):
        pattern = r"(?:Error|Warning): {1,2}" + pattern
    return Quoted(needle, re.compile(pattern), statements, sum(map(len, literals)))


def matching(text: str, lists: OpLists) -> Quoted | None:
    """The longest quoted text that the line holds.

    Raises:
        OpListError: the lists are damaged.
    """
    if not any(word in text for word in (*_TELLING, *_TYPED, "failed assertion")):
        return None
    for one in quoted(lists):
        if one.needle in text and one.regex.search(text) is not None:
            return one
    return None


def operator_of(statements: Sequence[Statement]) -> str:
    """The operator that the statements speak of, where all of them name overloads of one; else empty."""
    ops = [op for statement in statements for op in statement.ops]
    bases = {_base(op) for op in ops}
    if "*" in ops or len(bases) != 1:
        return ""
    return next((op for op in ops if op.endswith("." + _base(op))), ops[0])


def _base(op: str) -> str:
    """``aten::topk.values`` and ``aten::topk`` are one operator; a wildcard is none."""
    name = op.partition("::")[2].partition(".")[0]
    return name.removesuffix("_").removesuffix("_out")
