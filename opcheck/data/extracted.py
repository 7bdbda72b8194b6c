"""What was extracted from the wheels for whoever writes the limitations, and what it says of them.

``op_lists/extracted/texts.json`` has each text that an MPS source prints and the releases that hold
it, ``metal.json`` the dtypes of the Metal kernels.  Both are material for a review, made by
``scripts/extract_limits.py``; no verdict is computed from them.
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
#: The evidence that says that a text was read in PyTorch's source or in its wheel.
_READ = frozenset({"binary", "source"})
#: What a statement writes where C++ inserts a value.
_VALUE = re.compile(r"\{[^{}]*\}")
#: A shorter piece stands in any library, and may be an immediate instead of a string.
_ENOUGH = 6
#: And a part of a message is at least "MPS:".
_PART = 4
#: No value that C++ inserts into a message is longer.
_INSERTED = 24
_HINT = "restore the file, or extract again: python scripts/extract_limits.py"

#: Where a text is printed, in the newest release that has it: file, function, line.
Place = tuple[str | None, str | None, int | None]
#: From this release line on, and the first in which it is gone.
HalfOpen = tuple[str, str | None]

#: Statements whose text stands in no wheel, and why they are right all the same.
EXCEPTIONS: dict[str, str] = {}


class Extracted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """texts.json."""

    schema: int
    #: the release lines whose wheels were read, in order.
    releases: tuple[str, ...]
    texts: dict[str, tuple[str | None, str | None, int | None, tuple[HalfOpen, ...]]]

    def present(self, line: str) -> tuple[str, ...]:
        """The texts of a release."""
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
    """The inverse of ``_lines``."""
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
    """The texts with those of a release put in, or put in the place of what it had.

    The place of a text is that in the newest release that holds it, whatever the order in which
    releases are added.
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
    """The text of texts.json: one message a line, sorted."""
    rows = ",\n".join(
        f"{json.dumps(text, ensure_ascii=False)}: "
        f"{json.dumps(row, ensure_ascii=False, separators=(',', ':'))}"
        for text, row in sorted(extracted.texts.items())
    )
    releases = json.dumps(extracted.releases)
    return f'{{"schema": {extracted.schema}, "releases": {releases},\n"texts": {{\n{rows}\n}}}}\n'


def read_texts(op_lists: Path) -> Extracted:
    """The extracted texts below the op lists' directory; none where there is no such file.

    Raises:
        OpListError: the file is damaged.
    """
    return _read(op_lists, TEXTS, Extracted, lambda: EMPTY)


def read_metal(op_lists: Path) -> History:
    """The dtypes of the Metal kernels, by family; none where there is no such file.

    Raises:
        OpListError: the file is damaged.
    """
    return _read(op_lists, METAL, History, lambda: metal({}))


def metal(families: dict[str, tuple[tuple[str, str | None], ...]]) -> History:
    """What metal.json holds."""
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
    """The pieces of a statement's text between the values that C++ inserts.

    Those that are too short to say anything are left out, unless there is no longer one.
    """
    pieces = [piece for piece in _VALUE.split(text) if piece.strip()]
    long = [piece for piece in pieces if len(piece.strip()) >= _ENOUGH]
    return tuple(long or sorted(pieces, key=len)[-1:])


def stands(text: str, present: Sequence[str]) -> bool:
    """Whether each piece of a statement's text stands in a release's texts.

    A piece stands in one of them, or is put together of whole ones: C++ joins the parts of a message
    when it is printed.  Between them may stand a value that the statement spells out (a dtype).
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
    """The statements whose text somebody says to have read, with it; the exceptions left out."""
    for statement in statements:
        read = any(evidence.kind in _READ for evidence in statement.evidence)
        if statement.error is not None and read and statement.id not in EXCEPTIONS:
            yield statement, statement.error.text


def unfounded(
    statements: Iterable[Statement], extracted: Extracted
) -> Iterator[tuple[Statement, tuple[str, ...]]]:
    """The statements that claim a text in releases that do not hold it, with these releases."""
    present = {line: extracted.present(line) for line in extracted.releases}
    for statement, text in claims(statements):
        lines = [line for line in extracted.releases if statement.spans(line)]
        lacking = tuple(line for line in lines if not stands(text, present[line]))
        if lacking:
            yield statement, lacking
