"""A log -> what a Mac printed in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from opcheck.data.registrations import OpLists
from opcheck.device.observe import clean, frames, profile, statement_texts
from opcheck.device.observe.pattern import DECIMALS, INTEGERS, SIZES, Pattern
from opcheck.device.observe.patterns import CUT_SHORT, PATTERNS
from opcheck.device.observe.records import Sighting
from opcheck.device.observe.sizes import size
from opcheck.model.records import SourceLocation

#: A sentence that a narrow terminal broke is looked for over so many lines.
_JOINED = 4
#: A line without any of these says nothing that the table has.
_SIGNALS = (
    "MPS",
    "mps",
    "Metal",
    "metal",
    "aten::",
    "Error",
    "Warning",
    "ssert",
    "LLVM",
    "compile",
    "error:",
    "watermark",
    "buffer",
    "same device",
    "expected it",
    "operator",
    "program_source",
    "Copy",
    "heap",
    "::",
)
#: The mark that a recorder leaves in the log around each call; see recorder.py.
MARK = re.compile(r"\x1e(\d{1,12})([<>])\x1e")


def parse(text: str, lists: OpLists, *, log: str = "log") -> tuple[Sighting, ...]:
    """Everything that a Mac printed, in the order of the log; what nobody knows is left out.

    Args:
        text: the log, with all that terminals and CI services add.
        lists: the op lists, whose statements quote texts.
        log: what the records call it.

    Raises:
        OpListError: the lists are damaged.
    """
    return tuple(_sightings(text, lists, log))


def _sightings(text: str, lists: OpLists, log: str) -> Iterator[Sighting]:
    calls = _calls(text) if "\x1e" in text else None
    lines = clean.lines(MARK.sub("", text) if calls else text)
    trace = frames.Frames()
    read = 0
    for index, line in enumerate(lines):
        if index < read or not line or trace.feed(line):
            continue
        sighting, read = _of_line(lines, index, lists)
        if sighting is None:
            continue
        call = calls[index] if calls else 0
        sighting = msgspec.structs.replace(sighting, log=log, line=index + 1, call=call)
        if sighting.location is None and sighting.kind in _PLACED:
            sighting = _placed(sighting, lines, index, trace)
        yield sighting


def _calls(text: str) -> list[int]:
    """The recorder's number of the call that each line was printed in; 0: in none."""
    numbers: list[int] = []
    current = 0
    for line in text.split("\n"):
        seen = current
        for mark in MARK.finditer(line):
            current = int(mark[1]) if mark[2] == "<" else 0
            # A line that begins before the mark was written after it: C++ ends its lines, a progress bar does not.
            seen = current or seen
        numbers.append(seen)
    return numbers


#: The kinds that a traceback, or a warning's place, leads to.
_PLACED = frozenset(
    {
        "fallback",
        "detour",
        "no_kernel",
        "no_cpu_kernel",
        "refused",
        "device_mix",
        "out_of_memory",
        "compile_failed",
        "setting",
        "warned",
    }
)


def _of_line(lines: Sequence[str], index: int, lists: OpLists) -> tuple[Sighting | None, int]:
    """What begins in a line, and the first line that it does not reach into."""
    line, after = lines[index], index + 1
    if not any(signal in line for signal in _SIGNALS):
        return None, after
    seen = profile.sighting(line)
    if seen is not None:
        return seen, after
    rest = [part.strip() for part in lines[after : index + _JOINED]]
    for text in (line, " ".join((line, *rest))[: clean.LONGEST]):
        for table in (PATTERNS, None, CUT_SHORT):
            pair = _quoted(text, lists) if table is None else _first(table, text)
            # What begins in a later line is that line's own.
            if pair is not None and pair[0].start() <= len(line):
                return pair[1], after + _reached(pair[0].end(), line, rest)
    return None, after


def _reached(end: int, line: str, rest: Sequence[str]) -> int:
    """How many of the joined lines a match reaches into."""
    length, number = len(line), 0
    while number < len(rest) and end > length + 1:
        length += 1 + len(rest[number])
        number += 1
    return number


def _first(table: Sequence[Pattern], text: str) -> tuple[re.Match[str], Sighting] | None:
    for row in table:
        if row.needle in text:
            match = row.regex.search(text)
            if match is not None:
                return match, _made(row, match)
    return None


def _made(row: Pattern, match: re.Match[str]) -> Sighting:
    groups = {name: text.strip() for name, text in match.groupdict().items() if text is not None}
    op = groups.pop("op", row.op)
    numbers: dict[str, int | float] = {}
    for name in [name for name in groups if name in INTEGERS | SIZES | DECIMALS]:
        text = groups.pop(name)
        numbers[name] = (
            int(text) if name in INTEGERS else size(text) if name in SIZES else float(text)
        )
    return Sighting(
        kind=_kind(row, groups),
        op=op.rstrip("."),
        torch=row.torch,
        numbers=numbers,
        words=groups,
        source=row.source,
        text=match[0].strip(),
    )


def _kind(row: Pattern, words: dict[str, str]) -> str:
    """The dispatcher's own text about MPS is that of a release from before the fallback had one."""
    return "no_kernel" if words.get("backend") == "MPS" else row.kind


def _quoted(text: str, lists: OpLists) -> tuple[re.Match[str], Sighting] | None:
    found = statement_texts.matching(text, lists)
    match = found.regex.search(text) if found else None
    if found is None or match is None:
        return None
    seen = Sighting(
        kind=found.kind,
        op=statement_texts.operator_of(found.statements),
        torch=found.span,
        statements=tuple(sorted(statement.id for statement in found.statements)),
        text=match[0].strip(),
    )
    return match, seen


def _placed(found: Sighting, lines: Sequence[str], index: int, trace: frames.Frames) -> Sighting:
    place = frames.of_warning(lines[index])
    location: SourceLocation | None
    if place is not None:
        after = lines[index + 1] if index + 1 < len(lines) else ""
        text = after.strip()[:200] if after.startswith(" ") else ""
        location, own = place._replace(text=text).location, ""
    else:
        location, own = trace.take()
    words = {**found.words, "own": own} if own else found.words
    return msgspec.structs.replace(found, location=location, words=words)
