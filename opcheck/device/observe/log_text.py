"""Reads the raw text of a log: the lines that the process printed, the frames of tracebacks."""

from __future__ import annotations

import re
from typing import NamedTuple

from opcheck.model.records import SourceLocation

# -- lines -----------------------------------------------------------------------------------------

#: No line of a Mac's that matters is longer; the rest is cut off.
LONGEST = 4000

_ANSI = re.compile(
    r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[=>()][A-Z0-9]?)"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

#: What services and programs put before a line. Each expression is tried once, in this order.
_PREFIXES = tuple(
    re.compile(text)
    for text in (
        # gh run view --log: job, step, time, tab-separated
        r"[^\t]{1,100}\t[^\t]{1,100}\t(?=\d{4}-)",
        # GitHub Actions, docker logs, kubectl: ISO time
        (
            r"\ufeff?\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
            r"(?:Z|[+-]\d\d:?\d\d)?\]?(?:\s-(?=\s)|:(?=\s))?\s?"
        ),
        # GitLab: 01O or 00E stream marks after the time
        r"\d\d[OE][+ ]\s?",
        r"\[\d\d:\d\d:\d\d(?:\.\d{1,6})?\]\s?",
        # torchrun, accelerate
        r"\[rank\d{1,4}\]:\s?",
        r"(?:ERROR|WARNING|INFO|DEBUG|CRITICAL)(?::[\w.]{1,80}:|\s{1,8}(?=\S))",
        r"\[(?:ERROR|WARNING|INFO|DEBUG|CRITICAL)\]\s?",
        # a quotation in an issue or a mail; the bar of a table drawn by rich
        r"(?:[>│┃|]\s){1,4}",
        # pytest's captured errors
        r"E\s{3}",
    )
)


def clean_lines(text: str) -> list[str]:
    """Split a log into lines, each without colours, time stamps and marks of a service.

    Of a progress bar that overwrote itself by carriage returns, the last state is kept.
    """
    return [_line(raw) for raw in text.split("\n")]


def _line(raw: str) -> str:
    line = _ANSI.sub("", raw[: 2 * LONGEST])
    line = _CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2])
    for prefix in _PREFIXES:
        match = prefix.match(line)
        if match is not None and match.end():
            line = line[match.end() :]
    return line[:LONGEST].rstrip()


# -- tracebacks and warnings -----------------------------------------------------------------------

_FRAME = re.compile(
    r'^\s{0,80}(?:\|\s{0,20})?File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,7})'
    r"(?:, in (?P<function>.{1,200}))?$"
)
_JUPYTER = re.compile(
    r"^File {1,2}\[?(?P<file>[^\s:\](]{1,300}\.py):(?P<line>\d{1,7})(?:\]\(.{0,600}\))?"
    r"(?:, in (?P<function>[\w.<>]{1,200}))?"
)
_CELL = re.compile(
    r"^(?P<file>(?:Cell )?In ?\[\d{1,6}\])(?:, in .{0,80})?,? (?:\[?line (?P<line>\d{1,7})|in <)"
)
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
        match = _FRAME.match(line) or _JUPYTER.match(line) or _CELL.match(line)
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
