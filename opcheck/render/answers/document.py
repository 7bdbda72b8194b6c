"""A page for people: headings, lines, lists and tables, as plain text or as Markdown."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import msgspec

from opcheck.common.sanitize import flat, markdown, markdown_code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIDTH = 100


class Heading(msgspec.Struct, frozen=True):
    """The title (level 1) or that of a section (level 2)."""

    text: str
    level: int = 2


class Lines(msgspec.Struct, frozen=True):
    """A paragraph; each of its lines stands by itself."""

    lines: tuple[str, ...]


class Bullets(msgspec.Struct, frozen=True):
    """A list of short texts."""

    items: tuple[str, ...]


class Table(msgspec.Struct, frozen=True):
    """Rows of cells under their headers; ``code`` are the columns whose cells are names."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    code: tuple[int, ...] = ()


Block = Heading | Lines | Bullets | Table
Document = tuple[Block, ...]


def as_text(document: Document) -> str:
    """Plain text, in which a section is indented below its heading."""
    return "\n".join(_text(document)) + "\n"


def _text(document: Document) -> Iterator[str]:
    for number, block in enumerate(document):
        if number:
            yield ""
        if isinstance(block, Heading):
            yield flat(block.text)
        elif isinstance(block, Lines):
            for line in block.lines:
                yield from textwrap.wrap(
                    flat(line), WIDTH, break_long_words=False, break_on_hyphens=False
                )
        elif isinstance(block, Bullets):
            for item in block.items:
                yield from textwrap.wrap(
                    flat(item),
                    WIDTH,
                    initial_indent="  ",
                    subsequent_indent="    ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
        else:
            yield from _columns(block)


def _columns(table: Table) -> Iterator[str]:
    rows = [tuple(map(flat, row)) for row in (table.headers, *table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.headers))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield ("  " + "  ".join(cells)).rstrip()


def as_markdown(document: Document) -> str:
    """Markdown with pipe tables."""
    return "\n".join(_markdown(document)) + "\n"


def _markdown(document: Document) -> Iterator[str]:
    for number, block in enumerate(document):
        if number:
            yield ""
        if isinstance(block, Heading):
            yield f"{'#' * block.level} {markdown(block.text)}"
        elif isinstance(block, Lines):
            yield "  \n".join(map(markdown, block.lines))
        elif isinstance(block, Bullets):
            yield from (f"- {markdown(item)}" for item in block.items)
        else:
            yield from _pipes(block)


def _pipes(table: Table) -> Iterator[str]:
    yield _row([markdown(header) for header in table.headers])
    yield _row(["---"] * len(table.headers))
    for row in table.rows:
        yield _row(
            [
                markdown_code(cell) if column in table.code else markdown(cell)
                for column, cell in enumerate(row)
            ]
        )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
