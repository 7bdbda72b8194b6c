"""The texts that curated statements quote, as patterns that tell which statement a line quotes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from opcheck.common.versions import Span, Version
from opcheck.common.vocabulary import EFFECTS
from opcheck.data.registrations import OpLists
from opcheck.data.statement_model import Statement

#: The kind of an event by the effect of the statement that quotes its text.
_KINDS = {
    "aborts": "aborted",
    "raises": "refused",
    "falls_back": "detour",
    "wrong_result": "warned",
    "narrows": "warned",
    "warns": "warned",
}

_PLACEHOLDER = re.compile(r"\{[^{}]{1,20}\}")
#: A text without any of them counts only after the type of an exception or of a warning.
_TELLING = ("MPS", "mps", "Metal", "acOS")
_TYPED = ("Error: ", "Warning: ")


class Quoted(NamedTuple):
    """A text, and the statements that quote it."""

    needle: str
    regex: re.Pattern[str]
    statements: tuple[Statement, ...]
    #: the length of the text without its placeholders
    letters: int

    @property
    def kind(self) -> str:
        """The kind of an event with this text, by the worst effect of the statements."""
        return _KINDS[min((each.effect for each in self.statements), key=EFFECTS.index)]

    @property
    def span(self) -> Span:
        """From the first release of any of the statements to the last."""
        starts = [statement.torch.since for statement in self.statements]
        ends = [statement.torch.until for statement in self.statements]
        return Span(since=_outer_version(min, starts), until=_outer_version(max, ends))


def _outer_version(
    choose: Callable[..., Version], versions: Sequence[Version | None]
) -> Version | None:
    """The least or the greatest version; None where a span is open at that end."""
    return None if None in versions else choose(versions)


@functools.lru_cache(maxsize=4)
def quoted_texts(lists: OpLists) -> tuple[Quoted, ...]:
    """All texts of the lists, the longest first."""
    by_text: dict[str, list[Statement]] = {}
    for statement in lists.statements.all:
        if statement.error is not None:
            by_text.setdefault(statement.error.text.strip(), []).append(statement)
    made = [_quoted_text(text, tuple(statements)) for text, statements in by_text.items()]
    return tuple(sorted(made, key=lambda text: -text.letters))


def _quoted_text(text: str, statements: tuple[Statement, ...]) -> Quoted:
    literals = _PLACEHOLDER.split(text)
    needle = max(literals, key=len).strip()
    pattern = r"[^\n]{1,80}?".join(re.escape(part) for part in literals)
    if text.startswith("{"):
        # C++ inserts a name at the beginning.
        pattern = r"\w{1,80}" + pattern.removeprefix(r"[^\n]{1,80}?")
    if not any(word in text for word in _TELLING):
        pattern = r"(?:Error|Warning): {1,2}" + pattern
    return Quoted(needle, re.compile(pattern), statements, sum(map(len, literals)))


def matching(text: str, lists: OpLists) -> Quoted | None:
    """The longest quoted text in the line.

    Raises:
        OpListError: the lists are damaged.
    """
    if not any(word in text for word in (*_TELLING, *_TYPED, "failed assertion")):
        return None
    return next(
        (each for each in quoted_texts(lists) if each.needle in text and each.regex.search(text)),
        None,
    )


def operator_of(statements: Sequence[Statement]) -> str:
    """The operator of the statements; empty if they name several or a wildcard."""
    ops = [op for statement in statements for op in statement.ops]
    bases = {_base(op) for op in ops}
    if "*" in ops or len(bases) != 1:
        return ""
    return next((op for op in ops if op.endswith("." + _base(op))), ops[0])


def _base(op: str) -> str:
    """``topk`` of ``aten::topk.values``, of ``aten::topk`` and of ``aten::topk_``."""
    name = op.partition("::")[2].partition(".")[0]
    return name.removesuffix("_").removesuffix("_out")
