"""What a person concluded of each text that the wheels hold: op_lists/texts.yaml.

A text of op_lists/extracted/texts.json is accounted for by a statement that quotes it, or by an
entry here that gives the reason why there is none.  What neither accounts for is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from opcheck.data.extracted import fragments, read_texts
from opcheck.data.statement_model import Statement
from opcheck.data.strict_yaml import Problem, read_entries
from opcheck.model.records import Record

FILE = "texts.yaml"
#: A shorter text stands in messages of many kinds: only a statement with the same piece accounts for it.
_ENOUGH = 12


class Reason(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Texts without a statement, and why there is none."""

    why: str
    texts: tuple[str, ...]


def lint_texts(statements: Iterable[Statement], directory: Path) -> Iterator[Problem]:
    """Yield the texts that nothing accounts for, and the entries that account for nothing."""
    extracted = read_texts(directory).texts
    entries, document = read_entries(directory / FILE, "reasons", Reason)
    yield from document.problems
    if not extracted:
        return
    quoted = {
        piece
        for statement in statements
        if statement.error is not None
        for piece in fragments(statement.error.text)
    }
    counts = Counter(text for _, entry in entries for text in entry.texts)
    for text in extracted:
        if text not in counts and not is_quoted(text, quoted):
            yield Problem(FILE, 0, "reasons", f"open, no statement and no reason: {text!r}")
    for text, count in counts.items():
        if text not in extracted:
            yield Problem(FILE, 0, "reasons", f"stands in no wheel: {text!r}")
        elif count > 1:
            yield Problem(FILE, 0, "reasons", f"listed {count} times: {text!r}")


def is_quoted(text: str, pieces: Iterable[str]) -> bool:
    """Return whether a piece of a statement's text stands in this one, or this one in a piece."""
    own = text.strip()
    if len(own) < _ENOUGH:
        return any(own == piece.strip() for piece in pieces)
    return any(piece in text or own in piece for piece in pieces)
