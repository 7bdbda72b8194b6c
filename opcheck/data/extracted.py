"""The texts and dtypes extracted from the wheels, and the check of the limitations against them.

``op_lists/extracted/texts.json`` has each text that an MPS source prints and the releases that hold
it; ``metal.json`` has the dtypes of the Metal kernels.  ``scripts/extract_limits.py`` makes both for
the authors and reviewers of limitations; no verdict depends on them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from opcheck.common.errors import OpListError
from opcheck.data.history import SCHEMA, History, by_version
from opcheck.data.statement_model import Statement

DIRECTORY = "extracted"
TEXTS, METAL = "texts.json", "metal.json"
#: The kinds of evidence for a text that was read in PyTorch's source or in its wheel.
_READ = frozenset({"binary", "source"})
#: The placeholder in a statement's text for a value that C++ inserts.
_VALUE = re.compile(r"\{[^{}]*\}")
#: A shorter piece occurs in any library, and may be an immediate operand instead of a string.
_ENOUGH = 6
#: A part of a message is at least as long as "MPS:".
_PART = 4
#: The largest length of a value that C++ inserts into a message.
_INSERTED = 24
_HINT = "restore the file, or extract again: python scripts/extract_limits.py"

#: Where a text is printed, in the newest release that has it: file, function, line.
Place = tuple[str | None, str | None, int | None]
#: From this release line on, and the first in which it is gone.
HalfOpen = tuple[str, str | None]

#: Statements whose text occurs in no wheel, and the reason why they are right.
EXCEPTIONS: dict[str, str] = {}


class Extracted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of texts.json."""

    schema: int
    #: the release lines whose wheels were read, in order.
    releases: tuple[str, ...]
    texts: dict[str, tuple[str | None, str | None, int | None, tuple[HalfOpen, ...]]]

    def present(self, line: str) -> tuple[str, ...]:
        """Return the texts of a release."""
        return tuple(
            text for text, row in self.texts.items() if line in _lines(row[3], self.releases)
        )


EMPTY = Extracted(SCHEMA, (), {})


def _lines(spans: Iterable[HalfOpen], releases: Sequence[str]) -> list[str]:
    texts: list[str] = []
    for since, until in spans:
        end = len(releases) if until is None else releases.index(until)
        texts += releases[releases.index(since) : end]
    return texts


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


def read_texts(op_lists: Path) -> Extracted:
    """Read the extracted texts below the op lists' directory; empty where the file does not exist.

    Raises:
        OpListError: the file is damaged.
    """
    return _read(op_lists, TEXTS, Extracted, lambda: EMPTY)


def read_metal(op_lists: Path) -> History:
    """Read the dtypes of the Metal kernels by family; empty where the file does not exist.

    Raises:
        OpListError: the file is damaged.
    """
    return _read(op_lists, METAL, History, lambda: metal({}))


def metal(families: dict[str, tuple[tuple[str, str | None], ...]]) -> History:
    """Return the content of metal.json for these families."""
    return History(schema=SCHEMA, namespace="metal", key="dtypes", operators=families)


_T = TypeVar("_T")


def _read(op_lists: Path, file: str, form: type[_T], empty: Callable[[], _T]) -> _T:
    path = op_lists / DIRECTORY / file
    try:
        return msgspec.json.decode(path.read_bytes(), type=form)
    except FileNotFoundError:
        return empty()
    except (OSError, msgspec.DecodeError) as error:
        raise OpListError(
            "an extracted list cannot be read", context=f"{path}: {error}", hint=_HINT
        ) from error


def fragments(text: str) -> tuple[str, ...]:
    """Return the pieces of a statement's text between the values that C++ inserts.

    Pieces too short to identify a message are left out, unless all of them are short.
    """
    pieces = [piece for piece in _VALUE.split(text) if piece.strip()]
    long = [piece for piece in pieces if len(piece.strip()) >= _ENOUGH]
    return tuple(long or sorted(pieces, key=len)[-1:])


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
    present = {line: extracted.present(line) for line in extracted.releases}
    for statement, text in claims(statements):
        lines = [line for line in extracted.releases if statement.spans(line)]
        lacking = tuple(line for line in lines if not stands(text, present[line]))
        if lacking:
            yield statement, lacking
