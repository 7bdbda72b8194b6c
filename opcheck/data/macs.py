"""The memory that the GPU of a Mac may use, by the Mac's memory and its macOS version."""

from __future__ import annotations

import functools
from pathlib import Path

from opcheck.common.versions import MACOS_MAJORS, Span, Version
from opcheck.common.vocabulary import Basis
from opcheck.data.registrations import data_directory
from opcheck.data.statement_model import StatementEvidence
from opcheck.data.strict_yaml import Document, Path_, read_as
from opcheck.data.written_span import WrittenSpan
from opcheck.model.records import Record

FILE = "macs.yaml"
_MIB = 1 << 20


class WorkingSet(Record, frozen=True, kw_only=True):
    """The memory that Metal recommends as a maximum on a span of macOS versions."""

    macos: Span
    nbytes: int
    #: the largest single buffer.
    buffer: int
    basis: Basis


class Mac(Record, frozen=True, kw_only=True):
    """A Mac of a given memory size; ``memory`` is in GB as Apple sells it, which means GiB."""

    memory: int
    working_sets: tuple[WorkingSet, ...]

    def on(self, macos: Version) -> WorkingSet:
        """Return the figures for a macOS version; the lint ensures that every version has them."""
        return next(figures for figures in self.working_sets if macos in figures.macos)


class _Buffer(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    numerator: int
    denominator: int
    basis: Basis
    evidence: tuple[StatementEvidence, ...]


class _Set(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    macos: WrittenSpan
    mib: int
    basis: Basis
    evidence: tuple[StatementEvidence, ...]


class _Mac(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    memory: int
    working_sets: tuple[_Set, ...]


class _File(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: int
    buffer: _Buffer
    macs: tuple[_Mac, ...]


def load_macs(directory: Path | None = None) -> tuple[Mac, ...]:
    """Read ``macs.yaml``, the smallest Mac first; the same directory is read once.

    Raises:
        OpListError: the file is missing or damaged; all of its problems are named.
    """
    return _load((directory or data_directory()).resolve())


@functools.cache
def _load(directory: Path) -> tuple[Mac, ...]:
    written = read_as(directory / FILE, _File, _check)
    share = written.buffer
    return tuple(
        Mac(
            memory=mac.memory,
            working_sets=tuple(
                WorkingSet(
                    macos=table.macos.span(),
                    nbytes=table.mib * _MIB,
                    buffer=table.mib * _MIB * share.numerator // share.denominator,
                    basis=table.basis,
                )
                for table in mac.working_sets
            ),
        )
        for mac in written.macs
    )


def _check(document: Document, written: _File) -> None:
    if written.schema != 1:
        document.report(("schema",), "the schema must be 1")
    share = written.buffer
    if not 0 < share.numerator <= share.denominator:
        document.report(("buffer",), "a share between 0 and 1 is expected")
    _check_figure(document, ("buffer",), share)
    sizes = [mac.memory for mac in written.macs]
    if not sizes or sizes != sorted(set(sizes)):
        document.report(("macs",), "one entry for each size, the smallest first")
    for index, mac in enumerate(written.macs):
        _check_mac(document, ("macs", index), mac)


def _check_mac(document: Document, path: Path_, mac: _Mac) -> None:
    for index, table in enumerate(mac.working_sets):
        place = (*path, "working_sets", index)
        _check_figure(document, place, table)
        if not 0 < table.mib < mac.memory * 1024:
            document.report((*place, "mib"), f"a Mac of {mac.memory} GB has less")
    for major in MACOS_MAJORS:
        holding = [table for table in mac.working_sets if Version(major) in table.macos.span()]
        if len(holding) != 1:
            document.report(path, f"macOS {major} has {len(holding)} figures, not one")


def _check_figure(document: Document, path: Path_, figure: _Buffer | _Set) -> None:
    if not figure.evidence:
        document.report((*path, "evidence"), "no evidence")
