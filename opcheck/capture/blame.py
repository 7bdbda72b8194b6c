"""Which line of the user's own code an exception came through."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

#: Where code lives that the user did not write, apart from opcheck's own folder.
_INSTALLED = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_SELF = str(Path(__file__).parents[1])


def one_line(error: BaseException, limit: int = 300) -> str:
    """The error's message on one line, cut after ``limit`` characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def own_line(error: BaseException) -> str:
    """``file.py:12 in __init__: self.head = Head(width)``, the innermost line that the user wrote.

    Where no line is the user's, the innermost one outside of torch; empty where there is none.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}:{error.lineno}: {(error.text or '').strip()}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_SELF, "<"))
    ]
    own = [frame for frame in frames if not frame.filename.startswith(_INSTALLED)]
    outside = [frame for frame in frames if "/torch/" not in frame.filename]
    for chosen in (own, outside, frames):
        if chosen:
            frame = chosen[-1]
            return f"{_short(frame.filename)}:{frame.lineno} in {frame.name}: {frame.line}"
    return ""


def _short(filename: str) -> str:
    """The path relative to the working directory or to site-packages."""
    path = Path(filename)
    for folder in (Path.cwd(), *map(Path, sorted(_INSTALLED, key=len, reverse=True))):
        if path.is_relative_to(folder):
            return str(path.relative_to(folder))
    return filename
