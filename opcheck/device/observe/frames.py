"""The lines of Python's tracebacks and warnings in a log: which line of whose code was running."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from opcheck.model.records import SourceLocation

_FRAME = re.compile(
    r'^\s{0,80}(?:\|\s{0,20})?File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,7})(?:, in (?P<function>.{1,200}))?$'
)
_JUPYTER = re.compile(
    r"^File {1,2}\[?(?P<file>[^\s:\](]{1,300}\.py):(?P<line>\d{1,7})(?:\]\(.{0,600}\))?(?:, in (?P<function>[\w.<>]{1,200}))?"
)
_CELL = re.compile(
    r"^(?P<file>(?:Cell )?In ?\[\d{1,6}\])(?:, in .{0,80})?,? (?:\[?line (?P<line>\d{1,7})|in <)"
)
_ARROW = re.compile(r"^-{2,8}> (?:\[?(?P<line>\d{1,7})\]?)(?:\(.{0,300}?\))? (?P<text>\S.{0,300})$")
#: ``file.py:103: UserWarning: ...``, the line of Python's warnings.
_WARNING = re.compile(
    r"(?P<file>[^\s:][^:]{0,300}?(?:\.py|<\w{1,40}>|\.\w{1,5})):(?P<line>\d{1,7}): \w{1,60}Warning: "
)

#: Files of Python itself; what stands in site-packages below them is not.
_STDLIB = re.compile(
    r"/(?:lib|Versions)/(?:python)?\d?\.?\d{0,2}.{0,60}?/python3\.\d{1,2}/|/lib/python3\.\d{1,2}/"
)
_TORCH = re.compile(r"(?:^|/)torch/(?!hub/)")
_LIBRARY = re.compile(r"(?:site|dist)-packages/")

#: How many frames of the newest traceback are remembered.
DEEPEST = 400


class Frame(NamedTuple):
    """One frame, as a log shows it."""

    file: str
    line: int
    function: str
    text: str = ""

    @property
    def library(self) -> bool:
        """Whether it is of an installed package."""
        return _LIBRARY.search(self.file) is not None

    @property
    def user(self) -> bool:
        """Whether it is neither torch's nor Python's own: as an audit names lines."""
        if self.file.startswith("<"):
            return False
        if _LIBRARY.search(self.file):
            return _TORCH.match(_LIBRARY.split(self.file)[-1]) is None
        return _STDLIB.search(self.file) is None and "/torch/nn/" not in self.file

    @property
    def location(self) -> SourceLocation:
        """The record; a file of a package relative to site-packages."""
        file = _LIBRARY.split(self.file)[-1]
        return SourceLocation(file=file, line=self.line, function=self.function, text=self.text)


class Frames:
    """The frames of the traceback that the log is in, fed line by line."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._fresh = False

    def feed(self, line: str) -> bool:
        """Take one line; whether it is a traceback's."""
        if line.lstrip().startswith("Traceback (most recent call last)"):
            self._frames, self._fresh = [], True
            return True
        match = _FRAME.match(line) or _JUPYTER.match(line) or _CELL.match(line)
        if match is not None:
            number = int(match["line"] or 0)
            function = match.groupdict().get("function") or ""
            self._add(Frame(match["file"], number, function.strip()))
            return True
        arrow = _ARROW.match(line)
        if arrow is not None and self._frames:
            last = self._frames[-1]
            # Jupyter's header gives the line of a file; of a cell, the arrow does.
            self._frames[-1] = last._replace(line=int(arrow["line"]), text=arrow["text"].strip())
            return True
        if (
            self._frames
            and not self._frames[-1].text
            and line.startswith((" ", "\t"))
            and line.strip("^~ \t")
        ):
            self._frames[-1] = self._frames[-1]._replace(text=line.strip()[:200])
            return True
        return False

    def _add(self, frame: Frame) -> None:
        if len(self._frames) < DEEPEST:
            self._frames.append(frame)

    def take(self) -> tuple[SourceLocation | None, str]:
        """The program's line of the traceback that ends here, and its own line outside of installed packages."""
        frames, self._frames = self._frames, []
        return chosen(frames)


def chosen(frames: Sequence[Frame]) -> tuple[SourceLocation | None, str]:
    """The innermost line that is neither torch's nor Python's, and the innermost that is in no installed package."""
    users = [frame for frame in frames if frame.user]
    own = [frame for frame in users if not frame.library]
    location = users[-1].location if users else None
    return location, f"{own[-1].file}:{own[-1].line}" if own else ""


def of_warning(line: str) -> Frame | None:
    """The place that Python puts before a warning; None: the line has none."""
    match = _WARNING.search(line)
    return Frame(match["file"].strip(), int(match["line"]), "") if match else None
