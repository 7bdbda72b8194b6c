"""What a row of the table of texts is."""

from __future__ import annotations

import re
from typing import NamedTuple

from opcheck.common.versions import Span, Version

#: The groups that are numbers, and how they are read.
INTEGERS = frozenset({"source_line", "value"})
SIZES = frozenset({"allocated", "other", "allowed", "asked"})
DECIMALS = frozenset({"ratio"})


class Pattern(NamedTuple):
    """One wording."""

    kind: str
    #: what a line must hold for the pattern to be tried
    needle: str
    regex: re.Pattern[str]
    torch: Span
    source: str
    #: the operator, where the text names none and only one prints it
    op: str = ""


def row(
    kind: str,
    needle: str,
    regex: str,
    source: str,
    since: str = "",
    until: str = "",
    op: str = "",
) -> Pattern:
    """One row; ``since`` and ``until`` are release lines, empty where that end is open."""
    span = Span(
        since=Version.parse(since) if since else None, until=Version.parse(until) if until else None
    )
    return Pattern(kind, needle, re.compile(regex), span, source, op)
