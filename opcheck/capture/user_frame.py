"""Which line of the user's own code an exception came through."""

from __future__ import annotations

import sysconfig
import traceback

from opcheck.capture.source_locations import display_path, is_user_code

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})


def one_line(error: BaseException, limit: int = 300) -> str:
    """The error's message on one line, cut after ``limit`` characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def own_line(error: BaseException) -> str:
    """``file.py:12 in __init__: self.head = Head(width)``, the innermost line that the user wrote.

    Where no line is the user's, the innermost one of a library; empty where there is none.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{display_path(error.filename)}:{error.lineno}: {(error.text or '').strip()}"
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if is_user_code(frame.filename)
    ]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f"{display_path(frame.filename)}:{frame.lineno} in {frame.name}: {frame.line}"
