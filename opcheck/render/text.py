"""A document as text for a terminal.

It is laid out here and not by rich, whose import takes a quarter of the time of ``opcheck op``.
"""

import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from opcheck.common.sanitize import flat, for_log
from opcheck.common.text import plural
from opcheck.render import document as blocks
from opcheck.render.document import TextSpan, Words

WIDTH = 100
#: Columns of a cell of sentences, at least.
_NARROWEST = 30
_WORD = re.compile(r"\s*\S+\s*")
_CODES = {"dim": "2", "mps": "32", "unknown": "35", "note": "36"}
_CODES |= {"name": "1", "strong": "1", "error": "31", "raises": "31", "warning": "33", "cpu": "33"}


class _Layout(NamedTuple):
    width: int
    color: bool
    full: bool
    #: Whether sections are indented below their headings and words are broken to keep the width.
    tight: bool


def as_text(document: blocks.Document, *, width: int = WIDTH, color: bool = False, full: bool = False) -> str:
    """Write a document as lines.

    Below a ``Title`` no line is wider than ``width``, and sections are indented. In other documents
    tables and words that are wider stay whole, so that names can be copied; only cells of sentences are broken.

    Args:
        document: What to write.
        width: Columns, at most 100.
        color: Use escape sequences.
        full: Show what is otherwise left out: further places, rows and texts.
    """
    page = tuple(document)
    tight = any(isinstance(block, blocks.Title) for block in page)
    layout = _Layout(min(width, WIDTH), color, full, tight)
    before: blocks.Block | None = None
    lines: list[str] = []
    for block in page:
        if before is not None and _apart(before, block, tight=tight):
            lines.append("")
        lines += _block(block, layout)
        before = block
    return for_log("\n".join(line.rstrip() for line in lines) + "\n")


def _apart(before: blocks.Block, block: blocks.Block, *, tight: bool) -> bool:
    if not tight or isinstance(block, blocks.Heading):
        return True
    if isinstance(before, blocks.Heading):
        return False
    return blocks.Table in {type(before), type(block)} or isinstance(block, blocks.Facts)


def _block(block: blocks.Block, layout: _Layout) -> Iterator[str]:
    indent = 2 if layout.tight else 0
    if isinstance(block, blocks.Title):
        answer = TextSpan(f"{block.answer.text}:", block.answer.style)
        rest = f"{block.subject} on {block.target}; {block.numbers}"
        yield from _wrap((answer, TextSpan(rest, "strong")), layout, strong=True)
    elif isinstance(block, blocks.Heading):
        heading = TextSpan(block.text, "strong") if layout.tight else block.text
        yield from _wrap(heading, layout, 0, indent or 4)
    elif isinstance(block, blocks.Lines):
        for line in block.lines:
            yield from _wrap(line, layout, indent, indent)
    elif isinstance(block, blocks.Bullets):
        yield from _bullets(block, layout)
    elif isinstance(block, blocks.Facts):
        yield from _facts(block, layout)
    elif isinstance(block, blocks.FindingEntry):
        yield from _entry(block, layout)
    else:
        yield from _table(block, layout)


def _bullets(block: blocks.Bullets, layout: _Layout) -> Iterator[str]:
    shown = len(block.items) if layout.full or block.shown is None else block.shown
    for item in block.items[:shown]:
        yield from _wrap(item, layout, 2, 2 if layout.tight else 4)
    if len(block.items) > shown:
        rest = block.rest or f"{len(block.items) - shown:,} more"
        yield from _wrap(f"{rest} (-v shows all)", layout, 2, 2)


def _facts(block: blocks.Facts, layout: _Layout) -> Iterator[str]:
    """Write each fact; in one line where all would be too many lines, unless the page is narrower than usual."""
    lines = [line for fact in block.items for line in _fact(fact, block, layout, block.lines)]
    if block.short and 0 < block.most < len(lines) and layout.width == WIDTH:
        lines = [line for fact in block.items for line in _fact(fact, block, layout, 1)]
    yield from lines


def _fact(fact: tuple[str, Words], block: blocks.Facts, layout: _Layout, lines: int) -> Iterator[str]:
    name, words = fact
    width = max(len(name) for name, _ in block.items)
    cut = words if layout.full else _cut(words, layout.width - width - 4)
    whole = (TextSpan(name.ljust(width), "dim"), "", *blocks.parts(cut))
    if block.short and not isinstance(words, TextSpan):
        yield from _first_lines(whole, layout, 2, width + 4, lines)
    else:
        yield from _wrap(whole, layout, 2, width + 4)


def _cut(words: Words, columns: int) -> Words:
    """Return a text that fits into its lines; a word that does not fit leaves up to ten columns empty."""
    if not isinstance(words, TextSpan) or not words.lines:
        return words
    room = columns * words.lines - 10 * (words.lines - 1) - len(words.tail)
    body = words.text.removesuffix(words.tail)
    return textwrap.shorten(body, max(room, 10), placeholder=" ...") + words.tail


def _entry(block: blocks.FindingEntry, layout: _Layout) -> Iterator[str]:
    head = (TextSpan(f"{block.severity} {block.rule}", block.severity), block.message)
    if block.short and not layout.full:
        yield from _first_lines(head, layout, 2, 2, 1)
        for place in block.places[:1]:
            more = len(block.places) - 1
            where = f"{place.text}{f' and {more:,} more' if more else ''}:"
            yield from _first_lines((where, TextSpan(place.source, "dim")), layout, 4, 4, 1)
        for name, text in block.details[-1:]:
            yield from _first_lines((f"{name}:", text), layout, 4, 4, 1)
        return
    yield from _wrap(head, layout, 2, 2)
    shown = len(block.places) if layout.full else block.shown
    for place in block.places[:shown]:
        yield from _wrap(place.text, layout, 4, 4)
        if place.source:
            yield from _wrap(TextSpan(place.source, "dim"), layout, 6, 6)
    if len(block.places) > shown:
        rest = plural(len(block.places) - shown, "more place")
        yield from _wrap(f"and {rest} (-v shows all)", layout, 4, 4)
    for name, text in block.details:
        yield from _wrap((f"{name}:", text), layout, 4, 4)


def _table(block: blocks.Table, layout: _Layout) -> Iterator[str]:
    columns = [n for n in range(len(block.headers)) if n not in block.wide]
    rows = block.rows if layout.full else block.rows[: block.shown]
    head = tuple(TextSpan(header, "dim") if layout.tight else header for header in block.headers)
    cells = [[_text(row[n], layout) for n in columns] for row in (head, *rows)]
    widths = [max(_width(text) for text, _ in column) for column in zip(*cells, strict=True)]
    room = layout.width - 2 * len(columns)
    foldable = [at for at, n in enumerate(columns) if layout.tight or n in block.prose]
    while foldable and sum(widths) > room:
        widest = max(foldable, key=lambda at: widths[at])
        if widths[widest] <= (1 if layout.tight else _NARROWEST):
            break
        widths[widest] -= 1
    for row in cells:
        folded = [
            [_paint(text, styles, *span, layout) for span in _spans(text, width, fold=True)]
            for (text, styles), width in zip(row, widths, strict=True)
        ]
        for number in range(max(map(len, folded))):
            line = []
            for column, width, column_lines in zip(columns, widths, folded, strict=True):
                painted, length = column_lines[number] if number < len(column_lines) else ("", 0)
                gap = " " * (width - length)
                line.append(gap + painted if column in block.right else painted + gap)
            yield "  " + "  ".join(line)


def _wrap(words: Words, layout: _Layout, first: int = 0, rest: int = 0, *, strong: bool = False) -> Iterator[str]:
    text, styles = _text(words, layout)
    if strong:
        styles = [(start, end, f"1;{code}") for start, end, code in styles]
    indent = first
    if not text.strip():
        return
    for span in _spans(text, layout.width - first, layout.width - rest, fold=layout.tight):
        yield " " * indent + _paint(text, styles, *span, layout)[0]
        indent = rest


def _first_lines(words: Words, layout: _Layout, first: int, rest: int, most: int) -> Iterator[str]:
    """Write a text on at most so many lines; a longer text is cut."""
    lines = [*_wrap(words, layout, first, rest)]
    if len(lines) > most:
        lines = [*_wrap(words, layout._replace(width=layout.width - 4), first, rest)]
        lines[most - 1] += " ..."
    yield from lines[:most]


def _text(words: Words, layout: _Layout) -> tuple[str, list[tuple[int, int, str]]]:
    """Join the pieces to one line, and say from where to where it has which style."""
    text, styles = "", []
    for part in blocks.parts(words):
        if isinstance(part, str):
            piece, code = flat(part), ""
        else:
            piece = flat(part.text if layout.full else part.brief or part.text)
            code = _CODES.get(part.style, "")
        start = len(text) + bool(text)
        text = f"{text} {piece}" if text else piece
        if code:
            styles.append((start, len(text), code))
    return text, styles


def _paint(text: str, styles: list[tuple[int, int, str]], start: int, end: int, layout: _Layout) -> tuple[str, int]:
    """Return a part of a text with its escape sequences, and how many columns it takes."""
    width = _width(text[start:end])
    if not layout.color:
        return text[start:end], width
    pieces, place = [], start
    for styled_from, styled_to, code in styles:
        first, last = max(styled_from, start), min(styled_to, end)
        if first < last:
            pieces += [text[place:first], f"\x1b[{code}m{text[first:last]}\x1b[0m"]
            place = last
    return "".join((*pieces, text[place:end])), width


def _spans(text: str, first: int, rest: int | None = None, *, fold: bool) -> Iterator[tuple[int, int]]:
    """Break a text into lines: from where to where each goes, without the spaces at its end.

    Args:
        text: What to break.
        first: Columns of the first line.
        rest: Columns of the others.  None: as many.
        fold: Break words that are wider than a line.
    """
    start, used, width = 0, 0, max(first, 1)
    for match in _WORD.finditer(text):
        word = match[0]
        begin = match.start()
        needed = _width(word.rstrip())
        if used and used + needed > width:
            yield start, start + len(text[start:begin].rstrip())
            start, used, width = begin, 0, max(first if rest is None else rest, 1)
        while fold and needed > width:
            cut = _fitting(text, begin, width)
            yield begin, cut
            start = begin = cut
            word = text[begin : match.end()]
            needed, width = _width(word.rstrip()), max(first if rest is None else rest, 1)
        used += _width(word)
    yield start, len(text.rstrip())


def _fitting(text: str, begin: int, width: int) -> int:
    """Return where the columns end that begin there; at least one character is in them."""
    end = begin + 1
    while _width(text[begin : end + 1]) <= width:
        end += 1
    return end


def _width(text: str) -> int:
    """Return how many columns a terminal takes for a text."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
