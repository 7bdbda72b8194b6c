"""Known defects of Inductor's Metal backend, by release."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from opcheck.common.versions import Span
from opcheck.data.registrations import data_directory
from opcheck.data.statement_model import StatementEvidence
from opcheck.data.strict_yaml import Document, Path_, read_as
from opcheck.data.written_span import WrittenSpan
from opcheck.model.records import Record

FILE = "compile.yaml"
#: The effects that decide what becomes of a program: Inductor or Metal refuses it, or its results are (perhaps) wrong.
DECIDING = ("raises", "wrong result", "perhaps wrong")
#: Those that a report names beside: it may fail as a whole, memory outside of a tensor is read and the value dropped,
#: or only infinities and the like come out wrong.
EFFECTS = (*DECIDING, "fails", "reads out of bounds", "wrong for special values")

_LINE = re.compile(r"\d+\.\d+")


class When(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conditions under which a defect occurs; a single kernel must meet every condition that is given."""

    #: whatever is compiled
    any: bool = False
    #: a failure's message matches this pattern
    failure: str = ""
    #: the Metal source of a kernel matches each of these patterns
    source: tuple[str, ...] = ()
    #: and none of these
    absent: tuple[str, ...] = ()
    #: one of these operators is fused in the kernel
    ops: tuple[str, ...] = ()
    #: a call that is fused in the kernel matches this pattern (compiler/records.py, Extern.call)
    fused: str = ""
    #: what went wrong while Inductor wrote the kernel matches this pattern (compiler/records.py, Kernel.notes)
    writing: str = ""
    #: a call of an operator that Inductor leaves eager matches this pattern
    call: str = ""

    def holds_for(
        self,
        source: str,
        ops: frozenset[str],
        calls: Iterable[str] = (),
        notes: Iterable[str] = (),
    ) -> bool:
        """Return whether a kernel is affected; always False for a defect that is recognised by a failure.

        Args:
            source: the kernel's Metal.
            ops: the operators that are fused in it.
            calls: how they are called.
            notes: what went wrong while it was written.
        """
        if not (self.source or self.ops or self.fused or self.writing):
            return False
        return (
            (not self.ops or bool(ops.intersection(self.ops)))
            and (not self.fused or any(re.search(self.fused, call) for call in calls))
            and (not self.writing or any(re.search(self.writing, note) for note in notes))
            and all(re.search(pattern, source) for pattern in self.source)
            and not any(re.search(pattern, source) for pattern in self.absent)
        )

    def holds_for_call(self, call: str) -> bool:
        """Return whether a call that Inductor leaves eager is affected."""
        return bool(self.call) and re.search(self.call, call) is not None

    def explains(self, message: str) -> bool:
        """Return whether this defect explains a failure."""
        return bool(self.failure) and re.search(self.failure, message) is not None


class Defect(Record, frozen=True, kw_only=True):
    """A defect of Inductor's Metal backend in some releases."""

    id: str
    torch: Span
    effect: str
    summary: str
    when: When
    links: tuple[str, ...]
    evidence: tuple[StatementEvidence, ...]


class _Defect(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    torch: WrittenSpan
    effect: str
    summary: str
    when: When
    links: tuple[str, ...]
    evidence: tuple[StatementEvidence, ...]


class _File(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: int
    defects: tuple[_Defect, ...]


def load_defects(directory: Path | None = None) -> tuple[Defect, ...]:
    """Read ``compile.yaml``, in the order of the file; the same directory is read once.

    Raises:
        OpListError: the file is missing or damaged; all of its problems are named.
    """
    return _load((directory or data_directory()).resolve())


@functools.cache
def _load(directory: Path) -> tuple[Defect, ...]:
    written = read_as(directory / FILE, _File, _check)
    return tuple(
        Defect(
            id=defect.id,
            torch=defect.torch.span(),
            effect=defect.effect,
            summary=defect.summary.strip(),
            when=defect.when,
            links=defect.links,
            evidence=defect.evidence,
        )
        for defect in written.defects
    )


def _check(document: Document, written: _File) -> None:
    if written.schema != 1:
        document.report(("schema",), "the schema must be 1")
    seen: set[str] = set()
    for index, defect in enumerate(written.defects):
        path: Path_ = ("defects", index)
        if defect.id in seen:
            document.report((*path, "id"), f"twice: {defect.id}")
        seen.add(defect.id)
        _check_span(document, (*path, "torch"), defect.torch)
        _check_when(document, (*path, "when"), defect.when)
        if defect.effect not in EFFECTS:
            document.report(
                (*path, "effect"), f"unknown: {defect.effect}; known: {', '.join(EFFECTS)}"
            )
        if not defect.evidence:
            document.report((*path, "evidence"), "no evidence")


def _check_span(document: Document, path: Path_, torch: WrittenSpan) -> None:
    wrong = [end for end in torch.ends if not _LINE.fullmatch(end)]
    for end in wrong:
        document.report(path, f"not a release line: {end}")
    if not wrong and torch.span().empty:
        document.report(path, "the span is empty")


def _check_when(document: Document, path: Path_, when: When) -> None:
    if when == When():
        document.report(path, "nothing: say any: true")
    for pattern in (when.failure, when.call, when.fused, when.writing, *when.source, *when.absent):
        problem = _not_a_pattern(pattern)
        if problem:
            document.report(path, f"not a pattern: {pattern}: {problem}")


def _not_a_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        return str(error)
    return ""
