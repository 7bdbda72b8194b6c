"""What a person concluded of each text that the wheels hold: op_lists/texts.yaml.

A text of op_lists/extracted/texts.json is accounted for by a statement that quotes it, or by an
entry here that gives the reason why there is none.  What neither accounts for is open.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from opcheck.data.history import SCHEMA
from opcheck.data.statement_model import Statement
from opcheck.data.strict_yaml import Problem, read_entries
from opcheck.data.tables import read_table
from opcheck.model.records import Record

FILE = "texts.yaml"
#: Where ``MADE_BY`` writes what it reads out of the wheels, for this review only.
DIRECTORY, TEXTS = "extracted", "texts.json"
MADE_BY = "python -m scripts.extract_limits"
#: The placeholder in a statement's text for a value that C++ inserts.
_ASSERTION = re.compile(
    r'.* INTERNAL ASSERT FAILED at "[^"]*":[^,]*, please report a bug to PyTorch\. ?'
)
_VALUE = re.compile(r"\{[^{}]*\}")
#: A shorter piece occurs in any library, and may be an immediate operand instead of a string.
_LONG = 6
#: A shorter text stands in messages of many kinds: only a statement with the same piece accounts for it.
_ENOUGH = 12


#: Where a text is printed, in the newest release that has it: file, function, line.
Place = tuple[str | None, str | None, int | None]
#: From this release line on, and the first in which it is gone.
HalfOpen = tuple[str, str | None]


class Extracted(Record, frozen=True, forbid_unknown_fields=True):
    """The texts that MPS sources print, as the wheels hold them."""

    schema: int
    #: the release lines whose wheels were read, in order.
    releases: tuple[str, ...]
    texts: dict[str, tuple[str | None, str | None, int | None, tuple[HalfOpen, ...]]]


class Reason(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Texts without a statement, and why there is none."""

    why: str
    texts: tuple[str, ...]


def read_texts(op_lists: Path) -> Extracted:
    """Read the extracted texts below the op lists' directory; none where the file does not exist.

    Raises:
        OpListError: the file is damaged.
    """
    path = op_lists / DIRECTORY / TEXTS
    if not path.exists():
        return Extracted(SCHEMA, (), {})
    return read_table(path, Extracted, SCHEMA, what="an extracted list", made_by=MADE_BY)


def fragments(text: str) -> tuple[str, ...]:
    """Return the pieces of a statement's text between the values that C++ inserts.

    Pieces too short to identify a message are left out, unless all of them are short.
    """
    # The macro's own words surround the message (c10/util/Exception.h, TORCH_INTERNAL_ASSERT).
    message = _ASSERTION.sub("", text) or text
    pieces = [piece for piece in _VALUE.split(message) if piece.strip()]
    long = [piece for piece in pieces if len(piece.strip()) >= _LONG]
    return tuple(long or sorted(pieces, key=len)[-1:])


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
