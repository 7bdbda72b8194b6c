"""Numbers, names and messages, written the same way in every finding and report."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


def plural(number: int, noun: str) -> str:
    """``1 call``, ``2 calls``, ``1,234 copies``."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun}"


def filesize(number: int) -> str:
    """``512 bytes``, ``1.5 KiB``, ``3.0 GiB``."""
    if number < 1024:
        return plural(number, "byte")
    size = float(number)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1023.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


def any_layer(module: str) -> str:
    """``encoder.layer.11.attention`` as ``encoder.layer.*.attention``."""
    return _NUMBER.sub("*", module)


def one_line(error: BaseException, limit: int = 300) -> str:
    """The message of an exception on one line, cut after ``limit`` characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
