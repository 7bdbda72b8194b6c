"""Sizes as PyTorch writes them."""

from __future__ import annotations

import re

#: MPSAllocator.mm, ``format_size``: its own spelling up to 2.7, c10's since; both are powers of 1024.
_UNITS = {
    "bytes": 1,
    "KB": 1 << 10,
    "MB": 1 << 20,
    "GB": 1 << 30,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}

#: One size, for the patterns of other modules.
SIZE = r"\d{1,20}(?:\.\d{1,6})? ?(?:bytes|[KMG]i?B)"
_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,6})?) ?(bytes|[KMG]i?B)")


def size(text: str) -> int:
    """Bytes, as exact as two digits after the point are.

    Raises:
        ValueError: not a size.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        message = f"not a size: {text!r}"
        raise ValueError(message)
    return round(float(match[1]) * _UNITS[match[2]])
