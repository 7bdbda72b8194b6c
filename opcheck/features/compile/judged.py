"""Judges compiled variants for a target: records, without torch."""

from __future__ import annotations

from opcheck.features.compile.records import CompiledVariants
from opcheck.model.records import Record


class JudgedExtern(Record, frozen=True, kw_only=True):
    """An operator that compiled code calls eagerly, with what the target does with it."""

    op: str
    dtypes: tuple[str, ...]
    #: the status, with its kind behind it
    status: str
    because: str
    line: str = ""
    module: str = ""
    count: int = 1


class VariantRow(Record, frozen=True, kw_only=True):
    """One variant in one way of running, over the dtypes."""

    variant: str
    run: str
    #: dtype -> outcome
    outcomes: dict[str, str]
    #: in the first of the dtypes
    graphs: int = 0


class FailureGroup(Record, frozen=True, kw_only=True):
    """One cause of failures, in however many variants."""

    kind: str
    message: str
    op: str
    line: str
    text: str
    module: str
    #: the variants that have it; none where all of them do
    variants: tuple[str, ...]
    #: what opcheck's own way of compiling could not do
    ours: bool = False
    #: kernels, calls or lines at which it happens; the message is that of the first
    places: int = 1
    #: the id of the known defect that explains it
    defect: str = ""
    #: where PyTorch's own report of it is
    links: tuple[str, ...] = ()
    #: the release that mended it, where the target has that already
    mended: str = ""


class Advisory(Record, frozen=True, kw_only=True):
    """A known defect of the target's release that this program meets."""

    id: str
    effect: str
    summary: str
    #: the release that mended it; empty where none has
    mended: str
    #: kernels that are of the kind, of all variants; 0 where it is not of kernels
    kernels: int
    #: the variants that have them; none where all of them do
    variants: tuple[str, ...] = ()
    line: str
    links: tuple[str, ...]


class CompileReport(Record, frozen=True, kw_only=True):
    """All that is known of compiling one model for one target."""

    schema: str = "opcheck-compile/1"
    tool: str
    model: str
    target: dict[str, str]
    #: what to use, in a sentence
    advice: str
    #: the command that tries what this one did not, where nothing works; else empty
    next: str = ""
    #: which of its operators the target decomposes or lowers otherwise than the torch that did it
    differs: str = ""
    rows: tuple[VariantRow, ...]
    failures: tuple[FailureGroup, ...]
    advisories: tuple[Advisory, ...]
    externs: tuple[JudgedExtern, ...]
    kernels: int
    not_checked: tuple[str, ...]
    compiled: CompiledVariants
