"""The Python versions for which a torch release has a wheel for macOS: ``op_lists/pythons.yaml``."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

from opcheck.common.versions import Span, Version
from opcheck.data.registrations import data_directory
from opcheck.data.strict_yaml import Document, read_as
from opcheck.data.written_span import WrittenSpan
from opcheck.model.records import Record

FILE = "pythons.yaml"

_LINE = re.compile(r"\d+\.\d+")


class Wheels(Record, frozen=True, kw_only=True):
    """The spans of torch release lines that have a wheel for macOS."""

    #: for Apple silicon, by the version of Python
    by_python: Mapping[Version, Span]
    #: for Intel Macs, whatever the Python
    intel: Span

    def pythons(self, torch: Version) -> tuple[Version, ...]:
        """Return the Python versions for which a release has a wheel, the oldest first."""
        return tuple(sorted(version for version, span in self.by_python.items() if torch in span))


class _File(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: int
    date: str
    intel: WrittenSpan
    pythons: dict[str, WrittenSpan]


def load_wheels(directory: Path | None = None) -> Wheels:
    """Read ``pythons.yaml``; the same directory is read once.

    Raises:
        OpListError: the file is missing or damaged; all of its problems are named.
    """
    return _load((directory or data_directory()).resolve())


@functools.cache
def _load(directory: Path) -> Wheels:
    written = read_as(directory / FILE, _File, _check)
    return Wheels(
        by_python={Version.parse(name): span.span() for name, span in written.pythons.items()},
        intel=written.intel.span(),
    )


def _check(document: Document, written: _File) -> None:
    if written.schema != 1:
        document.report(("schema",), "the schema must be 1")
    for name, versions in {"intel": written.intel, **written.pythons}.items():
        numbers = versions.ends if name == "intel" else (*versions.ends, name)
        if not all(map(_LINE.fullmatch, numbers)):
            document.report(("pythons", name), "versions are written as 2.13 or 3.11")
        elif versions.span().empty:
            document.report(("pythons", name), "no release lies in this span")
