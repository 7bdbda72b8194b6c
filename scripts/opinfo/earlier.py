"""The calls of composites in releases without a recording, read from the libraries in the wheels (bodies.yaml)."""

import fnmatch
import functools
from pathlib import Path
from typing import TypeVar

from opcheck.common.errors import OpListError
from opcheck.common.versions import Span, Version
from opcheck.data.strict_yaml import read_entries
from opcheck.model.records import Record

FILE = "bodies.yaml"

Entry = TypeVar("Entry", "EarlierBody", "Reviewed", "WrittenBody", "Unknown")


class EarlierBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A composite, a span of releases, and the operators that its body called there."""

    op: str
    #: the first release line, and the first line after the span.
    since: str
    until: str
    #: operators with a verdict of their own: those that are always called, and those that depend on the arguments.
    always: tuple[str, ...]
    sometimes: tuple[str, ...]
    #: the direct calls of the C++ body, and the calls of the later body that this body lacks.
    calls: tuple[str, ...]
    without: tuple[str, ...]
    #: the composite whose body differs, if ``op`` only calls it.
    body: str = ""

    @property
    def torch(self) -> Span:
        """The releases that the entry covers."""
        return Span(since=Version.parse(self.since), until=Version.parse(self.until))

    @property
    def differing(self) -> str:
        """The composite whose body differs in these releases."""
        return self.body or self.op


class Reviewed(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A composite whose body differs without a consequence, and the reason."""

    op: str
    why: str


class WrittenBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Composites of which the library's code alone does not tell what they call, as a person read them."""

    ops: tuple[str, ...]
    why: str
    always: tuple[str, ...]
    sometimes: tuple[str, ...] = ()
    #: the first release line, and the first line after the span; None: every release.
    since: str | None = None
    until: str | None = None

    @property
    def torch(self) -> Span:
        """The releases that the entry covers."""
        since, until = (None if end is None else Version.parse(end) for end in (self.since, self.until))
        return Span(since=since, until=until)

    def covers(self, op: str) -> bool:
        """Return whether the entry names an overload."""
        return _matches(op, self.ops)


class Unknown(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Composites of which nothing is said, and the reason; ``*`` in a name stands for any text."""

    ops: tuple[str, ...]
    why: str


def written_bodies(directory: Path) -> tuple[WrittenBody, ...]:
    """Return the bodies that a person read, in the order of the file.

    Raises:
        OpListError: the file is damaged.
    """
    return _read(directory, "written", WrittenBody)


def why_unknown(op: str, directory: Path) -> str:
    """Return the reason why nothing is said of a composite; empty where there is none.

    Raises:
        OpListError: the file is damaged.
    """
    entries = _read(directory, "unknown", Unknown)
    return next((entry.why for entry in entries if _matches(op, entry.ops)), "")


def _matches(op: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(op, pattern) for pattern in patterns)


def reviewed(directory: Path) -> dict[str, str]:
    """Return the reason why a composite's different body has no consequence, by overload.

    Raises:
        OpListError: the file is damaged.
    """
    return {entry.op: entry.why for entry in _read(directory, "reviewed", Reviewed)}


def earlier_bodies(directory: Path) -> tuple[EarlierBody, ...]:
    """Return the bodies in the order of the file.

    Raises:
        OpListError: the file is damaged.
    """
    return _read(directory, "bodies", EarlierBody)


@functools.cache
def _read(directory: Path, key: str, kind: type[Entry]) -> tuple[Entry, ...]:
    entries, document = read_entries(directory / FILE, key, kind)
    if document.problems:
        raise OpListError(
            "\n".join(f"{problem}" for problem in sorted(set(document.problems))),
            context=str(directory / FILE),
            hint="correct the file",
        )
    return tuple(entry for _, entry in entries)
