"""Parses what a Mac printed in a log: lines, tracebacks, warnings, and the events among them."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from opcheck.data.registrations import OpLists
from opcheck.device.observe import mac_texts
from opcheck.device.observe.mac_texts import (
    KINDS,
    LogEvent,
    Match,
    first_match,
    profile_event,
    table,
)
from opcheck.model.records import SourceLocation

# -- lines -----------------------------------------------------------------------------------------

#: No line of a Mac's that matters is longer; the rest is cut off.
LONGEST = 4000

_ANSI = re.compile(
    r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[=>()][A-Z0-9]?)"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def clean_lines(text: str) -> list[str]:
    """Split a log into lines, each without colours, time stamps and marks of a service.

    Of a progress bar that overwrote itself by carriage returns, the last state is kept.
    """
    return [_line(raw) for raw in text.split("\n")]


def _line(raw: str) -> str:
    line = _ANSI.sub("", raw[: 2 * LONGEST])
    line = _CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2])
    for prefix in table().prefixes:
        match = prefix.match(line)
        if match is not None and match.end():
            line = line[match.end() :]
    return line[:LONGEST].rstrip()


# -- tracebacks and warnings -----------------------------------------------------------------------

_ARROW = re.compile(r"^-{2,8}> (?:\[?(?P<line>\d{1,7})\]?)(?:\(.{0,300}?\))? (?P<text>\S.{0,300})$")
#: ``file.py:103: UserWarning: ...``, as Python's warnings begin.
_WARNING = re.compile(
    r"(?P<file>[^\s:][^:]{0,300}?(?:\.py|<\w{1,40}>|\.\w{1,5})):(?P<line>\d{1,7}): "
    r"\w{1,60}Warning: "
)

#: Files of Python itself; site-packages below them are not Python's.
_STDLIB = re.compile(
    r"/(?:lib|Versions)/(?:python)?\d?\.?\d{0,2}.{0,60}?/python3\.\d{1,2}/|/lib/python3\.\d{1,2}/"
)
_TORCH = re.compile(r"(?:^|/)torch/(?!hub/)")
_LIBRARY = re.compile(r"(?:site|dist)-packages/")

#: How many frames of the newest traceback are kept.
DEEPEST = 400


class Frame(NamedTuple):
    """A frame of a traceback, as a log shows it."""

    file: str
    line: int
    function: str
    text: str = ""

    @property
    def library(self) -> bool:
        """Return whether the file belongs to an installed package."""
        return _LIBRARY.search(self.file) is not None

    @property
    def user(self) -> bool:
        """Return whether the file is neither torch's nor Python's own, as an audit decides it."""
        if self.file.startswith("<"):
            return False
        if _LIBRARY.search(self.file):
            return _TORCH.match(_LIBRARY.split(self.file)[-1]) is None
        return _STDLIB.search(self.file) is None and "/torch/nn/" not in self.file

    @property
    def location(self) -> SourceLocation:
        """The record; a file of a package is relative to site-packages."""
        file = _LIBRARY.split(self.file)[-1]
        return SourceLocation(file=file, line=self.line, function=self.function, text=self.text)


class Traceback:
    """The frames of the traceback that the log is in, fed line by line."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []

    def take_line(self, line: str) -> bool:
        """Take a line; return whether it belongs to a traceback."""
        if line.lstrip().startswith("Traceback (most recent call last)"):
            self._frames = []
            return True
        match = next(filter(None, (frame.match(line) for frame in table().frames)), None)
        if match is not None:
            if len(self._frames) < DEEPEST:
                function = (match.groupdict().get("function") or "").strip()
                self._frames.append(Frame(match["file"], int(match["line"] or 0), function))
            return True
        if not self._frames:
            return False
        last = self._frames[-1]
        arrow = _ARROW.match(line)
        if arrow is not None:
            # Jupyter's header gives the line of a file; of a cell, the arrow does.
            self._frames[-1] = last._replace(line=int(arrow["line"]), text=arrow["text"].strip())
            return True
        if not last.text and line.startswith((" ", "\t")) and line.strip("^~ \t"):
            self._frames[-1] = last._replace(text=line.strip()[:200])
            return True
        return False

    def end(self) -> tuple[SourceLocation | None, str]:
        """Close the traceback; return its innermost user line, and the innermost in no package.

        A user line is neither torch's nor Python's. The second is ``file:line``, empty if there is
        none.
        """
        frames, self._frames = self._frames, []
        users = [frame for frame in frames if frame.user]
        own = [frame for frame in users if not frame.library]
        location = users[-1].location if users else None
        return location, f"{own[-1].file}:{own[-1].line}" if own else ""


def place_of_warning(line: str) -> Frame | None:
    """The place that Python prints before a warning; None where the line has none."""
    match = _WARNING.search(line)
    return Frame(match["file"].strip(), int(match["line"]), "") if match else None


#: How many lines a sentence may span that a narrow terminal broke.
_JOINED = 4
#: A line without any of these has no text of the table.
_SIGNALS = (
    *("MPS", "mps", "Metal", "metal", "aten::", "Error", "Warning", "ssert", "LLVM", "compile"),
    *("error:", "watermark", "buffer", "same device", "expected it", "operator"),
    *("program_source", "Copy", "heap", "::"),
)
#: The mark that a recorder leaves in the log around each call; see mac_recorder.py.
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
    lines = clean_lines(MARK.sub("", text) if calls else text)
    traceback = Traceback()
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
    for text in (line, " ".join((line, *rest))[:LONGEST]):
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
    quoted = mac_texts.matching(text, lists)
    match = quoted.regex.search(text) if quoted else None
    if quoted is None or match is None:
        return None, None
    event = LogEvent(
        kind=quoted.kind,
        op=mac_texts.operator_of(quoted.statements),
        torch=quoted.span,
        statements=tuple(sorted(statement.id for statement in quoted.statements)),
        text=match[0].strip(),
    )
    return match, event


def _with_place(
    event: LogEvent, lines: Sequence[str], index: int, traceback: Traceback
) -> LogEvent:
    """The event with the line of the program that a warning names, or the last traceback."""
    place = place_of_warning(lines[index])
    if place is None:
        location, own = traceback.end()
        words = {**event.words, "own": own} if own else event.words
        return msgspec.structs.replace(event, location=location, words=words)
    after = lines[index + 1] if index + 1 < len(lines) else ""
    text = after.strip()[:200] if after.startswith(" ") else ""
    return msgspec.structs.replace(event, location=place._replace(text=text).location)
