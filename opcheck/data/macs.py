"""The memory that the GPU of a Mac may use, by the Mac's memory and its macOS version."""

from __future__ import annotations

import functools
from pathlib import Path

from msgspec.structs import replace

from opcheck.common.versions import MACOS_MAJORS, Span, Version
from opcheck.common.vocabulary import Basis
from opcheck.data.statement_model import EvidenceEntries
from opcheck.data.strict_yaml import Document
from opcheck.data.tables import ListFile
from opcheck.model.records import Record


class WorkingSet(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The memory that Metal recommends as a maximum on a span of macOS versions."""

    macos: Span
    mib: int
    basis: Basis
    evidence: EvidenceEntries
    #: the bytes of the largest single buffer, which the file gives for all Macs as a share.
    buffer: int = 0

    @property
    def nbytes(self) -> int:
        """The working set in bytes."""
        return self.mib << 20


class Mac(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Mac of a given memory size; ``memory`` is in GB as Apple sells it, which means GiB."""

    memory: int
    working_sets: tuple[WorkingSet, ...]

    def on(self, macos: Version) -> WorkingSet:
        """Return the figures for a macOS version; the lint ensures that every version has them."""
        return next(figures for figures in self.working_sets if macos in figures.macos)


class BufferShare(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The share of the working set that a single buffer may take."""

    numerator: int
    denominator: int
    basis: Basis
    evidence: EvidenceEntries


class MacList(Record, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The content of the file."""

    schema: int
    buffer: BufferShare
    macs: tuple[Mac, ...]

    @functools.cached_property
    def sized(self) -> tuple[Mac, ...]:
        """The Macs, each working set with its largest buffer."""
        share = self.buffer
        return tuple(
            replace(
                mac,
                working_sets=tuple(
                    replace(each, buffer=each.nbytes * share.numerator // share.denominator)
                    for each in mac.working_sets
                ),
            )
            for mac in self.macs
        )


def _check(document: Document, content: MacList) -> None:
    if not 0 < content.buffer.numerator <= content.buffer.denominator:
        document.report(("buffer",), "a share between 0 and 1 is expected")
    sizes = [mac.memory for mac in content.macs]
    if not sizes or sizes != sorted(set(sizes)):
        document.report(("macs",), "one entry for each size, the smallest first")
    for index, mac in enumerate(content.macs):
        for place, figures in enumerate(mac.working_sets):
            if not 0 < figures.mib < mac.memory * 1024:
                message = f"a Mac of {mac.memory} GB has less"
                document.report(("macs", index, "working_sets", place, "mib"), message)
        for major in MACOS_MAJORS:
            count = sum(Version(major) in figures.macos for figures in mac.working_sets)
            if count != 1:
                document.report(("macs", index), f"macOS {major} has {count} figures, not one")


MACS = ListFile("macs.yaml", MacList, check=_check)


def load_macs(directory: Path | None = None) -> tuple[Mac, ...]:
    """Return the sizes of Macs, the smallest first."""
    return MACS.load(directory).sized
