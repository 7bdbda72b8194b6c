"""What composites called in releases that nobody recorded: read from the libraries in the wheels (bodies.yaml)."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from opcheck.common.errors import OpListError
from opcheck.common.versions import Span, Version
from opcheck.data.strict_yaml import read_entries
from opcheck.model.records import Record

FILE = "bodies.yaml"

Entry = TypeVar("Entry", "EarlierBody", "Reviewed")


class EarlierBody(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry: a composite, the releases, and what its body called there."""

    op: str
    #: release lines: from, and up to but without.
    since: str
    until: str
    #: operators with a verdict of their own: whatever the arguments, and with some.
    always: tuple[str, ...]
    sometimes: tuple[str, ...]
    #: what the C++ body calls directly, and what the later body calls and this one does not.
    calls: tuple[str, ...]
    without: tuple[str, ...]
    #: the composite whose body differs, where it is one that ``op`` calls.
    body: str = ""

    @property
    def torch(self) -> Span:
        """The releases."""
        return Span(since=Version.parse(self.since), until=Version.parse(self.until))

    @property
    def differing(self) -> str:
        """The composite whose body is another in these releases."""
        return self.body or self.op


class Reviewed(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A composite whose body differs without a consequence, and why."""

    op: str
    why: str


def reviewed(directory: Path) -> dict[str, str]:
    """Why the other body of a composite does not matter, by overload.

    Raises:
        OpListError: the file is damaged.
    """
    return {entry.op: entry.why for entry in _read(directory, "reviewed", Reviewed)}


def earlier_bodies(directory: Path) -> tuple[EarlierBody, ...]:
    """The bodies, in the file's order.

    Raises:
        OpListError: the file is damaged.
    """
    return tuple(_read(directory, "bodies", EarlierBody))


def _read(directory: Path, key: str, kind: type[Entry]) -> list[Entry]:
    entries, document = read_entries(directory / FILE, key, kind)
    if document.problems:
        raise OpListError(
            "\n".join(f"{problem}" for problem in sorted(set(document.problems))),
            context=str(directory / FILE),
            hint="correct the file",
        )
    return [entry for _, entry in entries]
