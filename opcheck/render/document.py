"""The content of a page, independent of its format: text, Markdown or HTML.

A verb makes a ``Document`` of blocks. Texts are plain: each writer makes them fit for its format.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from opcheck.common.text import filesize

#: How a piece of text is shown. ``name`` and ``code`` are words of a program, ``strong`` is emphasized;
#: the severities of findings and the sides of calls have colours.
Style = Literal[
    "name", "code", "strong", "dim",
    "error", "warning", "note",
    "mps", "cpu", "unknown", "raises",
]  # fmt: skip


Severity = Literal["error", "warning", "note"]


class TextSpan(msgspec.Struct, frozen=True):
    """A piece of text with a style; ``brief`` replaces it where there is little room."""

    text: str
    style: Style = "code"
    brief: str = ""
    #: A fact that a terminal cuts at so many lines, before its tail; 0: it is never cut.
    lines: int = 0
    tail: str = ""


#: One text, or several that are joined by a space.
Words = str | TextSpan | tuple[str | TextSpan, ...]


class Title(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a report, the answer, the target, and the numbers that decide the answer."""

    answer: TextSpan
    subject: str
    target: str
    numbers: str


class Heading(msgspec.Struct, frozen=True):
    """The title of a page (level 1) or of a section (level 2)."""

    text: str
    level: int = 2


class Lines(msgspec.Struct, frozen=True):
    """A paragraph of separate lines."""

    lines: tuple[Words, ...]


class Bullets(msgspec.Struct, frozen=True):
    """A list of short texts; only the first ``shown`` are seen at once."""

    items: tuple[Words, ...]
    shown: int | None = None
    #: What the others are, in words.
    rest: str = ""


class Facts(msgspec.Struct, frozen=True):
    """Short texts, each behind its name."""

    items: tuple[tuple[str, Words], ...]
    #: A terminal cuts each text after so many lines, but for those with a style.
    short: bool = False
    lines: int = 1
    #: So many lines in all of a page of the usual width: where they are more, each text is cut after its first.
    #: 0: no limit.
    most: int = 0


class Table(msgspec.Struct, frozen=True):
    """Rows of cells under their headers; only the first ``shown`` are seen at once."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str | TextSpan, ...], ...]
    #: The columns whose cells are names, and those that are flush right.
    code: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    #: Columns that text has no room for, and columns of sentences, which text may break into lines.
    wide: tuple[int, ...] = ()
    prose: tuple[int, ...] = ()
    shown: int | None = None


class FindingPlace(msgspec.Struct, frozen=True):
    """A place of a finding, with its line of source; ``call`` is its first call in the graph."""

    text: str
    source: str = ""
    call: int | None = None


class FindingEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A finding: what is wrong, where, and what to do; only the first ``shown`` places are seen."""

    severity: Severity
    rule: str
    message: str
    places: tuple[FindingPlace, ...]
    details: tuple[tuple[str, str | TextSpan], ...]
    shown: int = 3
    #: A terminal shows three lines: the finding, its first place, and the last detail.
    short: bool = False


Block = Title | Heading | Lines | Bullets | Facts | Table | FindingEntry
Document = Iterable[Block]


#: What makes a cell of a record: the name of a field, with a format behind a colon (``calls:,``), or a function.
Column = str | Callable[[Any], str | TextSpan]


def table_of(records: Iterable[Any], columns: Mapping[str, Column], **form: Any) -> Table:
    """Make a table with a row for each record.

    Args:
        records: what the rows are of.
        columns: by header what makes its cells.
        form: the other fields of ``Table``.
    """
    rows = tuple(tuple(_cell(record, column) for column in columns.values()) for record in records)
    return Table(tuple(columns), rows, **form)


def _cell(record: Any, column: Column) -> str | TextSpan:
    if not isinstance(column, str):
        return column(record)
    name, _, form = column.partition(":")
    return format(getattr(record, name), form)


def size_of(field: str, zero: str = "") -> Column:
    """Return the column of a field that counts bytes; ``zero`` replaces 0 bytes."""
    return lambda record: (not getattr(record, field) and zero) or filesize(getattr(record, field))


def section(title: str, *blocks: Block) -> Iterator[Block]:
    """Yield the blocks with content below a heading; nothing if all are empty."""
    filled = [block for block in blocks if all(getattr(block, name, True) for name in ("rows", "items", "lines"))]
    if filled:
        yield Heading(title)
        yield from filled


def parts(words: Words) -> tuple[str | TextSpan, ...]:
    """Return the pieces of a text."""
    return words if isinstance(words, tuple) else (words,)


def plain(part: str | TextSpan) -> str:
    """Return a piece without its style."""
    return part.text if isinstance(part, TextSpan) else part
