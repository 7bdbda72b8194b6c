"""Warnings that torch gives inside of our frames, shown at the line of the program that led there."""

from __future__ import annotations

import contextlib
import sys
import warnings
from typing import TYPE_CHECKING, Any

from opcheck.device.emulator.program import is_between

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def warnings_at_their_lines() -> Iterator[None]:
    """For the length of the block, a warning names the line that it would name on a Mac.

    C++ and ``warnings.warn`` both take a frame by its distance, and ours stand between. What shows a warning, and what
    ``catch_warnings(record=True)`` keeps, goes through ``warnings._showwarnmsg`` (Lib/warnings.py, 3.10 to 3.13).
    """
    original: Any = warnings._showwarnmsg  # type: ignore[attr-defined]

    def show(message: Any) -> None:
        if is_between(message.filename):
            _moved(message)
        original(message)

    warnings._showwarnmsg = show  # type: ignore[attr-defined]
    try:
        yield
    finally:
        warnings._showwarnmsg = original  # type: ignore[attr-defined]


def _moved(message: Any) -> None:
    """Write the first line outside of our frames into the message."""
    frame: Any = sys._getframe(2)
    while frame is not None and not is_between(frame.f_code.co_filename):
        frame = frame.f_back  # what the warnings module calls itself
    while frame is not None and is_between(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is not None:
        message.filename, message.lineno = frame.f_code.co_filename, frame.f_lineno
        message.line = None
