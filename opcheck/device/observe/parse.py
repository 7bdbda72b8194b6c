"""Reads what a Mac printed in a log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from opcheck.data.registrations import OpLists
from opcheck.device.observe import log_text, statement_texts
from opcheck.device.observe.log_events import KINDS, LogEvent
from opcheck.device.observe.patterns import Match, first_match, profile_event, table

#: How many lines a sentence may span that a narrow terminal broke.
_JOINED = 4
#: A line without any of these holds no text of the table.
_SIGNALS = (
    *("MPS", "mps", "Metal", "metal", "aten::", "Error", "Warning", "ssert", "LLVM", "compile"),
    *("error:", "watermark", "buffer", "same device", "expected it", "operator"),
    *("program_source", "Copy", "heap", "::"),
)
#: The mark that a recorder leaves in the log around each call; see recorder.py.
MARK = re.compile(r"\x1e(\d{1,12})([<>])\x1e")


def parse(text: str, lists: OpLists, *, log: str = "log") -> tuple[LogEvent, ...]:
    """Return the events of everything that a Mac printed, in the order of the log, without unknown texts.

    Args:
        text: the log, with all that terminals and CI services add.
        lists: the op lists, whose statements quote texts.
        log: the name of the log in the records.

    Raises:
        OpListError: the lists are damaged.
    """
    return tuple(_events(text, lists, log))


def _events(text: str, lists: OpLists, log: str) -> Iterator[LogEvent]:
    calls = _calls(text) if "\x1e" in text else None
    lines = log_text.clean_lines(MARK.sub("", text) if calls else text)
    traceback = log_text.Traceback()
    read = 0
    for index, line in enumerate(lines):
        if index < read or not line or traceback.take_line(line):
            continue
        event, read = _parse_line(lines, index, lists)
        if event is None:
            continue
        call = calls[index] if calls else 0
        event = msgspec.structs.replace(event, log=log, line=index + 1, call=call)
        yield _with_place(event, lines, index, traceback) if KINDS[event.kind].placed else event


def _calls(text: str) -> list[int]:
    """The recorder's number of the call during which each line was printed; 0: during none."""
    numbers: list[int] = []
    current = 0
    for line in text.split("\n"):
        number = current
        for mark in MARK.finditer(line):
            current = int(mark[1]) if mark[2] == "<" else 0
            # A line that begins before the mark was written after it: C++ ends its lines, a
            # progress bar does not.
            number = current or number
        numbers.append(number)
    return numbers


def _parse_line(lines: Sequence[str], index: int, lists: OpLists) -> tuple[LogEvent | None, int]:
    """The event that begins in a line, and the number of the first line after it."""
    line, after = lines[index], index + 1
    if not any(signal in line for signal in _SIGNALS):
        return None, after
    event = profile_event(line)
    if event is not None:
        return event, after
    rest = [part.strip() for part in lines[after : index + _JOINED]]
    for text in (line, " ".join((line, *rest))[: log_text.LONGEST]):
        for match, event in _tries(text, lists):
            # What begins in a later line is that line's own.
            if match is not None and match.start() <= len(line):
                return event, after + _lines_reached(match.end(), line, rest)
    return None, after


def _tries(text: str, lists: OpLists) -> Iterator[Match]:
    yield first_match(table().texts, text)
    yield _match_quoted(text, lists)
    yield first_match(table().cut_short, text)


def _lines_reached(end: int, line: str, rest: Sequence[str]) -> int:
    """How many of the joined lines a match that ends there reaches into."""
    length, number = len(line), 0
    while number < len(rest) and end > length + 1:
        length += 1 + len(rest[number])
        number += 1
    return number


def _match_quoted(text: str, lists: OpLists) -> Match:
    quoted = statement_texts.matching(text, lists)
    match = quoted.regex.search(text) if quoted else None
    if quoted is None or match is None:
        return None, None
    event = LogEvent(
        kind=quoted.kind,
        op=statement_texts.operator_of(quoted.statements),
        torch=quoted.span,
        statements=tuple(sorted(statement.id for statement in quoted.statements)),
        text=match[0].strip(),
    )
    return match, event


def _with_place(
    event: LogEvent, lines: Sequence[str], index: int, traceback: log_text.Traceback
) -> LogEvent:
    """The event with the line of the program that a warning names, or the last traceback."""
    place = log_text.place_of_warning(lines[index])
    if place is None:
        location, own = traceback.end()
        words = {**event.words, "own": own} if own else event.words
        return msgspec.structs.replace(event, location=location, words=words)
    after = lines[index + 1] if index + 1 < len(lines) else ""
    text = after.strip()[:200] if after.startswith(" ") else ""
    return msgspec.structs.replace(event, location=place._replace(text=text).location)
