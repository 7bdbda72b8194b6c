"""Comments that ignore a finding: ``# opcheck: ignore[OC201, OC205] reason``."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_COMMENT = re.compile(r"#\s*opcheck:\s*ignore\[([^\]]*)\](.*)")


@dataclass
class Ignore:
    """One comment, and which of its codes have silenced something."""

    line: int
    codes: tuple[str, ...]
    reason: str
    used: set[str] = field(default_factory=set)


def of_python(lines: list[str]) -> list[Ignore]:
    """The comments of a Python source; a text that looks like one is none."""
    if not any("opcheck" in line for line in lines):
        return []
    return list(_found(_comments(lines)))


def of_lines(lines: list[str]) -> list[Ignore]:
    """The comments of a file in which ``#`` always begins one."""
    return list(_found(enumerate(lines, 1)))


def _comments(lines: list[str]) -> Iterator[tuple[int, str]]:
    reader = io.StringIO("\n".join(lines) + "\n").readline
    try:
        for token in tokenize.generate_tokens(reader):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError):  # the tree parsed: what came before is right
        return


def _found(comments: Iterable[tuple[int, str]]) -> Iterator[Ignore]:
    for line, text in comments:
        match = _COMMENT.search(text)
        if match:
            codes = tuple(code.strip().upper() for code in match[1].split(",") if code.strip())
            yield Ignore(line, codes, match[2].strip(" \t:-"))
