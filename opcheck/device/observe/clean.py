"""A log as terminals and CI services keep it -> the lines that the process printed."""

from __future__ import annotations

import re

#: No line of a Mac's that matters is longer; what follows is cut off.
LONGEST = 4000

_ANSI = re.compile(
    r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[=>()][A-Z0-9]?)"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

#: What services and programs put before a line.  Each is tried once, in this order.
_PREFIXES = tuple(
    re.compile(text)
    for text in (
        # gh run view --log: job, step, time, tab-separated
        r"[^\t]{1,100}\t[^\t]{1,100}\t(?=\d{4}-)",
        # GitHub Actions, docker logs, kubectl: ISO time
        r"\ufeff?\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?(?:\s-(?=\s)|:(?=\s))?\s?",
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


def lines(text: str) -> list[str]:
    """The lines of a log, each without colours, time stamps and marks of a service.

    A progress bar that a carriage return wrote over is the last thing that was written.
    """
    return [_line(one) for one in text.split("\n")]


def _line(raw: str) -> str:
    line = raw[: 2 * LONGEST]
    line = _ANSI.sub("", line)
    line = line.rstrip("\r").rpartition("\r")[2]
    line = _CONTROL.sub("", line)
    for prefix in _PREFIXES:
        match = prefix.match(line)
        if match is not None and match.end():
            line = line[match.end() :]
    return line[:LONGEST].rstrip()
