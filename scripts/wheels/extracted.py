"""The texts and dtypes extracted from the wheels, and the check of the limitations against them.

``op_lists/extracted/texts.json`` has each text that an MPS source prints and the releases that hold
it; ``metal.json`` has the dtypes of the Metal kernels.  ``scripts/extract_limits.py`` makes both for
the authors and reviewers of limitations; no verdict depends on them.  ``opcheck/data/triage.py`` reads the texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from opcheck.data.history import SCHEMA, History, by_version
from opcheck.data.statement_model import Statement
from opcheck.data.tables import read_table
from opcheck.data.triage import DIRECTORY, MADE_BY, Extracted, HalfOpen, Place, fragments

METAL = "metal.json"
#: The kinds of evidence for a text that was read in PyTorch's source or in its wheel.
_READ = frozenset({"binary", "source"})
#: A part of a message is at least as long as "MPS:".
_PART = 4
#: The largest length of a value that C++ inserts into a message.
_INSERTED = 24
EMPTY = Extracted(SCHEMA, (), {})

#: Statements whose text occurs in no wheel, and the reason why they are right.
EXCEPTIONS: dict[str, str] = {}


def _lines(spans: Iterable[HalfOpen], releases: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for since, until in spans:
        end = len(releases) if until is None else releases.index(until)
        lines += releases[releases.index(since) : end]
    return lines


def present(extracted: Extracted, line: str) -> tuple[str, ...]:
    """Return the texts of a release."""
    return tuple(
        text for text, row in extracted.texts.items() if line in _lines(row[3], extracted.releases)
    )


def _spans(lines: Iterable[str], releases: Sequence[str]) -> tuple[HalfOpen, ...]:
    """Return the spans of a set of release lines: the inverse of ``_lines``."""
    there = set(lines)
    spans: list[HalfOpen] = []
    since: str | None = None
    for line in releases:
        if line in there:
            since = since or line
        elif since is not None:
            spans.append((since, line))
            since = None
    return (*spans, (since, None)) if since is not None else tuple(spans)


def with_release(old: Extracted, line: str, column: Mapping[str, Place]) -> Extracted:
    """Return the texts with those of a release added; they replace the release's earlier texts.

    The recorded place of a text is its place in the newest release that holds it, whatever the order
    in which releases are added.
    """
    releases = tuple(by_version({*old.releases, line}))
    texts = {}
    for text in sorted({*old.texts, *column}):
        row = old.texts.get(text, (None, None, None, ()))
        place, spans = row[:3], row[3]
        lines = {*_lines(spans, old.releases)} - {line}
        newest = by_version(lines)[-1:]
        if text in column:
            if not newest or releases.index(newest[0]) < releases.index(line):
                place = column[text]
            lines.add(line)
        if lines:
            texts[text] = (*place, _spans(lines, releases))
    return Extracted(SCHEMA, releases, texts)


def dump_texts(extracted: Extracted) -> str:
    """Return the text of texts.json: one message per line, sorted."""
    rows = ",\n".join(
        f"{json.dumps(text, ensure_ascii=False)}: "
        f"{json.dumps(row, ensure_ascii=False, separators=(',', ':'))}"
        for text, row in sorted(extracted.texts.items())
    )
    releases = json.dumps(extracted.releases)
    return f'{{"schema": {extracted.schema}, "releases": {releases},\n"texts": {{\n{rows}\n}}}}\n'


def read_metal(op_lists: Path) -> History:
    """Read the dtypes of the Metal kernels by family; empty where the file does not exist.

    Raises:
        OpListError: the file is damaged.
    """
    path = op_lists / DIRECTORY / METAL
    if not path.exists():
        return metal({})
    return read_table(path, History, SCHEMA, what="an extracted list", made_by=MADE_BY)


def metal(families: dict[str, tuple[tuple[str, str | None], ...]]) -> History:
    """Return the content of metal.json for these families."""
    return History(schema=SCHEMA, namespace="metal", key="dtypes", operators=families)


def stands(text: str, present: Sequence[str]) -> bool:
    """Return whether a release's texts contain each piece of a statement's text.

    A piece may lie within a single text or be a join of whole texts, because C++ joins the parts of a
    message when it prints it.  A value that the statement spells out (a dtype) may lie between them.
    """
    return all(
        any(piece in whole for whole in present) or _joined(piece, present)
        for piece in fragments(text)
    )


def _joined(piece: str, present: Sequence[str]) -> bool:
    covered = bytearray(len(piece))
    for part in present:
        at = piece.find(part) if len(part.strip()) >= _PART else -1
        while at >= 0:
            covered[at : at + len(part)] = b"\1" * len(part)
            at = piece.find(part, at + 1)
    left = "".join("\0" if mark else char for char, mark in zip(piece, covered, strict=True))
    # A value is a word; more of them would be a part of the message that the release lacks.
    return sum(covered) * 2 >= len(piece) and all(
        len(gap) <= _INSERTED and not re.search(r"\s", gap) for gap in left.split("\0")
    )


def claims(statements: Iterable[Statement]) -> Iterator[tuple[Statement, str]]:
    """Yield the statements whose evidence claims that their text was read, with it; exceptions are left out."""
    for statement in statements:
        read = any(evidence.kind in _READ for evidence in statement.evidence)
        if statement.error is not None and read and statement.id not in EXCEPTIONS:
            yield statement, statement.error.text


def unfounded(
    statements: Iterable[Statement], extracted: Extracted
) -> Iterator[tuple[Statement, tuple[str, ...]]]:
    """Return the statements that claim a text in releases that do not hold it, with these releases."""
    texts = {line: present(extracted, line) for line in extracted.releases}
    for statement, text in claims(statements):
        lines = [line for line in extracted.releases if statement.spans(line)]
        lacking = tuple(line for line in lines if not stands(text, texts[line]))
        if lacking:
            yield statement, lacking
