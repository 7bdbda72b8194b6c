"""Ignored findings: comments on lines, and entries of the configuration, that silence findings.

A comment is on a line of the statement that the finding points at, with codes in brackets and then the reason::

    y = torch.linalg.eigvals(x)  # opcheck: ignore[OC103] runs once, before training

``of_python(text, file)`` reads the comments of a program, ``of_lines(lines, file)`` those of a file
where ``#`` always begins a comment.  An ``IgnoreEntry`` is what ``[[tool.opcheck.ignore]]`` contains.

``Ignores(entries, today=..., root=...)`` decides what is ignored, and records which entries were used:

- ``reason(rule, file=, line=, op=, model=, text=)`` returns why such a finding is ignored; None: it is not;
- ``marked(findings, model=)`` returns the findings with ``Finding.ignored`` filled in; a finding
  that is ignored at some
  of its places two;
- ``read(files)`` reads the comments of these files, so that unused comments are known;
- ``unused(prefix)`` and ``expired()`` return afterwards what silenced nothing, and what has expired.

An ignored finding stays in the report and is marked.
"""

import ast
import bisect
import contextlib
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from opcheck.common import documents, globs
from opcheck.common.grouping import group_values
from opcheck.common.python_source import decode, parse, split_lines
from opcheck.model.fingerprint import add_fingerprints
from opcheck.model.records import Finding, GroupLocation, Record

_COMMENT = re.compile(r"#\s*opcheck:\s*ignore\[([^\]#]*)\](.*)")

#: The first and the last line of a statement.
_Lines = tuple[int, int]

#: The text of ``Finding.ignored`` when no reason was given.
NO_REASON = "no reason given"


class Comment(Record, frozen=True, kw_only=True):
    """A comment that ignores findings, and the lines that it applies to."""

    file: str
    line: int
    codes: tuple[str, ...]
    reason: str
    #: the statement that it is in, from its first line to its last; of a block only the head.
    first: int
    last: int

    def __str__(self) -> str:
        """``model.py:12: ignore[OC103]``."""
        return f"{self.file}:{self.line}: ignore[{', '.join(self.codes)}]"


class IgnoreEntry(Record, frozen=True, kw_only=True):
    """One ``[[tool.opcheck.ignore]]``: all that is given must fit, ``*`` in it fits anything."""

    rule: str
    reason: str
    #: an operator overload, a file as reports name it, the name of a model
    op: str = ""
    path: str = ""
    model: str = ""
    #: the first day when it no longer applies
    expires: date | None = None

    def __str__(self) -> str:
        """``OC103 op=aten::svd* model=net``."""
        arguments = (("op", self.op), ("path", self.path), ("model", self.model))
        return " ".join([self.rule, *(f"{name}={value}" for name, value in arguments if value)])

    def fits(self, rule: str, *, op: str, file: str, model: str) -> bool:
        """Return whether the entry matches such a finding, expired or not."""
        wanted = ((self.op, op), (self.path, file), (self.model, model))
        return self.rule == rule and all(globs.fits(value, pattern) for pattern, value in wanted if pattern)


def of_python(text: str, file: str = "") -> tuple[Comment, ...]:
    """Return the ignoring comments of a Python source; strings that look like comments do not count."""
    if "opcheck" not in text:
        return ()
    comments: list[tuple[int, str]] = []
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    # What comes before an error is right, and is in the list by then.
    with contextlib.suppress(tokenize.TokenError, SyntaxError, ValueError):
        comments.extend((t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT)
    return tuple(_parse_comments(comments, file, _statements(text)))


def of_lines(lines: Iterable[str], file: str = "") -> tuple[Comment, ...]:
    """Return the comments of a file where ``#`` always begins a comment; each applies to its own line."""
    return tuple(_parse_comments(enumerate(lines, 1), file, []))


class Silencers:
    """The comments of a file, and which of their codes have silenced a finding.

    A file may have 50,000 comments and as many findings, so a finding looks only at the comments of its own lines.
    """

    def __init__(self, comments: Iterable[Comment]) -> None:
        self.comments = tuple(comments)
        #: by a line, or by a statement, and a code: the first comment there
        self._first: dict[tuple[int | _Lines, str], int] = {}
        #: the statements with comments by their lines
        statements = dict.fromkeys((each.first, each.last) for each in self.comments)
        self._around = group_values((line, lines) for lines in statements for line in range(lines[0], lines[1] + 1))
        for number, comment in enumerate(self.comments):
            for code in comment.codes:
                self._first.setdefault((comment.line, code), number)
                self._first.setdefault(((comment.first, comment.last), code), number)
        self._in_order = sorted({comment.line for comment in self.comments})
        self._used: set[tuple[int | _Lines, str]] = set()

    def find(self, code: str, first: int, last: int) -> Comment | None:
        """Return a comment in these lines, or in the statement that they begin in, that ignores the code."""
        below, end = bisect.bisect_left(self._in_order, first), bisect.bisect(self._in_order, last)
        places = (*self._in_order[below:end], *self._around.get(first, ()))
        silenced = {(place, code) for place in places if (place, code) in self._first}
        self._used |= silenced
        return self.comments[min(map(self._first.__getitem__, silenced))] if silenced else None

    def list_unused(self, number: int) -> Iterator[str]:
        """Yield the codes of the comment with that number that have silenced nothing."""
        comment = self.comments[number]
        for code in comment.codes:
            if not {(comment.line, code), ((comment.first, comment.last), code)} & self._used:
                yield code


class Ignores:
    """The ignores of one run, and which of them have silenced something."""

    def __init__(self, entries: Sequence[IgnoreEntry] = (), *, today: date, root: Path | None = None) -> None:
        """Decide by these entries and by the comments of the files below ``root``.

        Args:
            entries: those of the configuration.
            today: entries that expire on this day, or did before, ignore nothing.
            root: the folder that the files of findings are relative to; None: comments are read from the text of the
                finding's own line alone.
        """
        self._entries = tuple(entries)
        self._today = today
        self._root = root
        #: the comments of each file; None: it could not be read
        self._files: dict[str, Silencers | None] = {}
        #: the entries that have silenced something
        self.silenced: set[IgnoreEntry] = set()

    def reason(
        self, rule: str, *, file: str = "", line: int = 0, op: str = "", model: str = "", text: str = ""
    ) -> str | None:
        """Return why a finding of ``rule`` at this place is ignored; None: it is not."""
        silencers = self._comments_of(file) or Silencers(_parse_comments([(line, text)], file, []))
        if comment := silencers.find(rule, line, line):
            return comment.reason or NO_REASON
        for entry in self._entries:
            if entry.fits(rule, op=op, file=file, model=model) and not self._is_over(entry):
                self.silenced.add(entry)
                return entry.reason
        return None

    def mark_ignored(self, findings: Iterable[Finding], *, model: str = "") -> tuple[Finding, ...]:
        """Return the findings with ignored ones marked by reason: a copy for each reason, the unmarked rest first."""
        return tuple(add_fingerprints(part for finding in findings for part in self._split(finding, model)))

    def read(self, files: Iterable[str]) -> None:
        """Read the comments of these files, as findings name them; a missing file has none."""
        for file in files:
            self._comments_of(file)

    def list_unused(self, prefix: str = "OC1") -> tuple[str, ...]:
        """Return the comments' codes with that prefix, and the entries, that have silenced nothing."""
        files = filter(None, self._files.values())
        comments = ((each, number, comment) for each in files for number, comment in enumerate(each.comments))
        codes = ((comment, code) for each, number, comment in comments for code in each.list_unused(number))
        unused = sorted((each.file, each.line, code) for each, code in codes if code.startswith(prefix))
        silent = [e for e in self._entries if e not in self.silenced and not self._is_over(e)]
        return (
            *(f"{file}:{line} ignores {c}, which is not found there" for file, line, c in unused),
            *(f"the configuration ignores {entry}, which is not found" for entry in silent),
        )

    def list_expired(self) -> tuple[str, ...]:
        """Return the entries that have expired."""
        expired = (entry for entry in self._entries if self._is_over(entry))
        return tuple(f"the configuration ignored {e} until {e.expires}: it no longer does" for e in expired)

    def _is_over(self, entry: IgnoreEntry) -> bool:
        return entry.expires is not None and entry.expires <= self._today

    def _split(self, finding: Finding, model: str) -> Iterator[Finding]:
        places: tuple[GroupLocation | None, ...] = finding.locations or (None,)
        by_reason = group_values((self._why(finding, place, model), place) for place in places)
        if len(by_reason) == 1:
            (why,) = by_reason
            yield replace(finding, ignored=why) if why else finding
            return
        for why in sorted(by_reason):
            ignored = tuple(place for place in by_reason[why] if place is not None)
            yield replace(
                finding,
                ignored=why,
                locations=ignored,
                count=sum(place.count for place in ignored),
                # It is the first place's line, rewritten.
                remedy=finding.remedy if ignored[0] is finding.locations[0] else "",
            )

    def _why(self, finding: Finding, place: GroupLocation | None, model: str) -> str:
        where = place.location if place else None
        about: dict[str, Any] = {"file": where.file, "line": where.line, "text": where.text} if where else {}
        return self.reason(finding.rule, op=finding.op, model=model, **about) or ""

    def _comments_of(self, file: str) -> Silencers | None:
        if file not in self._files:
            self._files[file] = self._read(file)
        return self._files[file]

    def _read(self, file: str) -> Silencers | None:
        if self._root is None or not file.endswith(".py"):
            return None
        try:
            text = decode(documents.read(self._root / file))
        except ValueError:
            return None
        return Silencers(of_python("\n".join(split_lines(text)), file))


def _parse_comments(comments: Iterable[tuple[int, str]], file: str, heads: Iterable[_Lines]) -> Iterator[Comment]:
    # The innermost statement of a line begins last.
    innermost = {line: head for head in sorted(heads) for line in range(head[0], head[1] + 1)}
    for line, text in comments:
        match = _COMMENT.search(text)
        if match:
            codes = tuple(code.strip().upper() for code in match[1].split(",") if code.strip())
            first, last = innermost.get(line, (line, line))
            reason = match[2].strip(" \t:-")
            yield Comment(file=file, line=line, codes=codes, reason=reason, first=first, last=last)


def _statements(text: str) -> Iterator[_Lines]:
    """Yield the first and last line of each statement; of a compound statement only of its head."""
    try:
        tree = parse(text)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            yield node.lineno, max(node.lineno, last)
