"""The frozen records of curated statements, and the values that their fields may take."""

import functools
import textwrap
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from opcheck.common import documents
from opcheck.common.versions import Span, Version
from opcheck.common.vocabulary import EFFECTS, Effect, FixedBasis, Frequency, StatementEvidenceKind, StatementSort
from opcheck.data.conditions import EVERY_DEVICE, Condition, parse
from opcheck.model.records import Evidence, Record

#: The effects that decide a verdict; a report lists the other effects alongside it.
DECISIVE: tuple[Effect, ...] = ("aborts", "raises", "falls_back")

#: The name in ``ops`` for every operator of ATen with a kernel of its own for MPS.
EVERY_KERNEL = "aten::*"
EVERY_OPERATOR = "*"

#: What is there has content; a field that a file leaves out is empty.
Text = Annotated[str, Meta(pattern=r"\S")]
Texts = Annotated[tuple[Text, ...], Meta(min_length=1)]


class ErrorText(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The text that the Mac prints; ``{...}`` replaces a value that PyTorch inserts."""

    #: the Python exception or warning.
    type: str
    text: Text


class StatementEvidence(Record, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The evidence for a statement."""

    kind: StatementEvidenceKind
    torch: str = ""
    where: str = ""
    line: int | None = None
    detail: str = ""
    #: the releases that the report names, and the first release with the change that mended it.
    reported: tuple[str, ...] = ()
    mended: str = ""
    #: the reported call: by argument a tensor such as ``float16[2, 3]``, or another value.
    call: dict[str, Any] = {}

    @property
    def reported_as(self) -> Evidence:
        """The entry as a report has it."""
        where = f"{self.where}:{self.line}" if self.line else self.where
        return Evidence(kind=self.kind, torch=self.torch, where=where, detail=self.detail)


#: The evidence of an entry that must have some.
EvidenceEntries = Annotated[tuple[StatementEvidence, ...], Meta(min_length=1)]


class Argument(Record, frozen=True, kw_only=True, omit_defaults=True):
    """An argument of an operator's schema."""

    #: a list of tensors.
    tensors: bool = False
    #: it has a default, which is the value where a call omits the argument.
    optional: bool = False
    default: Any = None


Arguments = dict[str, Argument]


class Statement(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A limitation or advisory: where all of its conditions are true, its effect follows.

    The types of the fields are those of the keys of the files (statement_files.py).
    """

    #: kebab-case, stable, unique over all files.
    id: Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    sort: StatementSort
    #: overloads; a trailing ``*`` means any ending, ``*`` alone for making any tensor, ``aten::*`` for every
    #: kernel of MPS.
    ops: Texts
    #: overloads that ``ops`` names and the statement leaves out; a trailing ``*`` means any ending.
    other_than: tuple[str, ...] = ()
    effect: Effect
    #: programs hardly meet its case: sizes of 2**31, infinite values, one GPU.
    rare: bool = False
    torch: Span = Span()
    macos: Span = Span()
    #: some tensor on MPS has any of these dtypes; empty: any dtype.
    dtypes: tuple[str, ...] = ()
    #: the arguments whose dtypes count, ``result`` for the output; empty: every tensor's.
    dtypes_of: Texts = ()
    #: an expression over the arguments; see conditions.py.
    condition: Text = ""
    #: a further condition in words, which code cannot evaluate: such a statement decides nothing.
    when: Text = ""
    #: the meaning of ``when``, as an expression over the values of a call; a run that has them evaluates it.
    values: Text = ""
    error: ErrorText | None = None
    summary: Text = ""
    #: ends the sentence "on the CPU ..." or "raises ..." in a few words, such as "above 32 KiB".
    brief: Text = ""
    way_out: Text = ""
    #: the body of a Python function of ``device``, which returns a tensor: what the Mac returns is wrong where the
    #: fault bites (features/explain/page.py makes a program of it).
    program: Text = ""
    #: the first release without an advisory's fault, and the kind of evidence for it.
    fixed: Annotated[str, Meta(pattern=r"^\d+\.\d+(\.\d+)?$")] = ""
    fixed_basis: FixedBasis = ""
    links: Texts = ()
    evidence: EvidenceEntries = ()

    @property
    def on_every_kernel(self) -> bool:
        """Whether the statement is about every kernel: what a composite calls decides, not the composite itself."""
        return EVERY_KERNEL in self.ops

    def excepts(self, op: str) -> bool:
        """Return whether the statement leaves out an overload that its ``ops`` name."""
        return _is_among(op, self.other_than)

    def names(self, op: str) -> bool:
        """Return whether the statement is about an overload."""
        return _is_among(op, self.ops) and not self.excepts(op)

    def spans(self, line: str) -> bool:
        """Return whether the statement covers a torch release line."""
        return _version(line) in self.torch

    @property
    def parsed(self) -> Condition | None:
        """The parsed condition; None for a statement without a condition.

        Raises:
            ConditionError: it is none; the reader of the files has refused such a statement.
        """
        return parse(self.condition) if self.condition else None

    @property
    def needs_another_device(self) -> bool:
        """Whether the condition is false for a call whose tensors are all on MPS."""
        condition = self.parsed
        return condition is not None and condition.evaluate({EVERY_DEVICE: "mps"}) is False

    @property
    def decides(self) -> bool:
        """Whether the statement decides a verdict where it certainly applies."""
        return self.effect in DECISIVE

    @property
    def frequency(self) -> Frequency:
        """How many of the calls in its dtypes are affected."""
        if self.rare:
            return "rarely"
        return "sometimes" if self.condition or self.when else "always"

    @property
    def rank(self) -> tuple[int, str]:
        """The sort key that puts the worst effect first, then orders by id."""
        return (EFFECTS.index(self.effect), self.id)


def _is_among(op: str, names: tuple[str, ...]) -> bool:
    exact, prefixes = _split_names(names)
    return op in exact or op.startswith(prefixes)


@functools.cache
def _split_names(names: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The names of overloads, and what those of ``name*`` begin with."""
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return frozenset(names), prefixes


@functools.cache
def _version(line: str) -> Version:
    return Version.parse(line)


def program_text(body: str) -> str:
    """Return the program around the body of ``result``: it prints ``right`` or ``wrong`` on a Mac.

    It shows whether a fault bites whose condition no run on shapes can evaluate.

    Args:
        body: statements that return a tensor, made on ``device``.
    """
    template = documents.read_text(Path(__file__).with_name("statement_program.template"))
    return template.format(body=textwrap.indent(body.strip("\n"), "    "))
