"""Known defects of Inductor's Metal backend, by release."""

import re
from collections.abc import Iterable
from typing import Literal

from opcheck.common.versions import Span
from opcheck.data.statement_model import EvidenceEntries
from opcheck.data.strict_yaml import Document
from opcheck.data.tables import ListFile
from opcheck.model.records import Record

#: The effects that decide what becomes of a program: Inductor or Metal refuses it, or its results are (perhaps) wrong.
DECIDING = ("raises", "wrong result", "perhaps wrong")
#: A report also names the other effects: the backend may fail as a whole, memory outside of a tensor is read and the
#: value dropped, or only infinities and the like come out wrong.
DefectEffect = Literal[
    "raises", "wrong result", "perhaps wrong", "fails", "reads out of bounds", "wrong for special values"
]


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
    #: any of these operators is fused in the kernel
    ops: tuple[str, ...] = ()
    #: a call that is fused in the kernel matches this pattern (features/compile/compile_records.py, Extern.call)
    fused: str = ""
    #: what went wrong while Inductor wrote the kernel matches this pattern (compile_records.py, Kernel.notes)
    writing: str = ""
    #: a call of an operator that Inductor leaves eager matches this pattern
    call: str = ""

    def holds_for(self, source: str, ops: frozenset[str], calls: Iterable[str] = (), notes: Iterable[str] = ()) -> bool:
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


class CompileDefect(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A defect of Inductor's Metal backend in some releases."""

    id: str
    torch: Span
    effect: DefectEffect
    summary: str
    when: When
    links: tuple[str, ...]
    evidence: EvidenceEntries


class DefectList(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file."""

    schema: int
    defects: tuple[CompileDefect, ...]


def _check(document: Document, content: DefectList) -> None:
    seen: set[str] = set()
    for index, defect in enumerate(content.defects):
        if defect.id in seen:
            document.report(("defects", index, "id"), f"twice: {defect.id}")
        seen.add(defect.id)
        when = defect.when
        if when == When():
            document.report(("defects", index, "when"), "nothing: say any: true")
        patterns = (when.failure, when.call, when.fused, when.writing, *when.source, *when.absent)
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                document.report(("defects", index, "when"), f"not a pattern: {pattern}: {error}")


DEFECTS = ListFile("compile.yaml", DefectList, check=_check)
