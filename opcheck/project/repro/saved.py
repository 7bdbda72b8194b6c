"""What a program for a finding is made of: the parts of a report, from a file or from an audit just made."""

from __future__ import annotations

import math
import re
from keyword import iskeyword

import msgspec

from opcheck.common.errors import UsageError
from opcheck.common.names import DTYPES
from opcheck.model.records import CONFIDENCES, Record, Report
from opcheck.model.visible import every_text
from opcheck.project.changes.saved import decode
from opcheck.render.content import as_dict

_OP = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.\w+)?", re.ASCII)

#: dimensions of a tensor (c10/core/TensorImpl.h), and what its 64-bit numbers hold
_DIMENSIONS, _LARGEST = 64, 1 << 63

Value = bool | int | float | str | None


class Tensor(Record, frozen=True, kw_only=True):
    """One tensor that a call is given, as a report writes it."""

    argument: str
    dtype: str
    shape: tuple[int, ...]
    #: None: contiguous
    stride: tuple[int, ...] | None
    layout: str
    device: str


class Example(Record, frozen=True, kw_only=True):
    """The call that the report keeps of a group."""

    inputs: tuple[Tensor, ...]
    arguments: dict[str, Value | tuple[Value, ...]]


class Place(Record, frozen=True, kw_only=True):
    """A line of the user's."""

    line: str
    text: str
    module: str


class Found(Record, frozen=True, kw_only=True):
    """A finding."""

    rule: str
    severity: str
    message: str
    op: str
    prints: str
    locations: tuple[Place, ...]


class Evidence(Record, frozen=True, kw_only=True):
    """Why the verdict is believed."""

    kind: str
    torch: str
    where: str
    detail: str


class Calls(Record, frozen=True, kw_only=True):
    """All calls of one overload with one verdict."""

    op: str
    status: str
    kind: str | None
    because: str
    named: str
    prints: str
    confidence: str
    evidence: tuple[Evidence, ...]
    limitations: tuple[str, ...]
    advisories: tuple[str, ...]
    #: a report of an older opcheck has none.
    example: Example | None = None


class Statement(Record, frozen=True, kw_only=True):
    """A limitation or an advisory that the report names."""

    sort: str
    effect: str
    summary: str
    links: tuple[str, ...]


class Capture(Record, frozen=True, kw_only=True):
    """How the calls were captured."""

    mode: str
    installed_torch: str


class OpLists(Record, frozen=True, kw_only=True):
    """The lists that were asked, and the release that they read."""

    torch: str
    commit: str
    digest: str


class Saved(Record, frozen=True, kw_only=True):
    """The keys of a report that this room reads."""

    tool: str
    model: str
    target: dict[str, str | bool]
    findings: tuple[Found, ...]
    calls: tuple[Calls, ...]
    statements: dict[str, Statement]
    capture: Capture
    op_lists: OpLists

    @property
    def torch(self) -> str:
        """The release line that was judged."""
        return str(self.target["torch"])

    @property
    def cpu_fallback(self) -> bool:
        """Whether PYTORCH_ENABLE_MPS_FALLBACK=1 was said to be set."""
        return bool(self.target["cpu_fallback"])


class Chosen(Record, frozen=True, kw_only=True):
    """One finding of a report, and the calls that it is about."""

    report: Saved
    #: as a listing counts, from one
    number: int
    finding: Found
    #: None: it is about no one operator's calls, or the report keeps none of them.
    calls: Calls | None

    @property
    def observed(self) -> bool:
        """Whether the report is of a run on a Mac, and not a prediction."""
        return self.calls is not None and self.calls.confidence == CONFIDENCES[0]

    @property
    def uncertain(self) -> bool:
        """Whether it names an error that the verdict of its calls does not have: they may raise it."""
        said, calls = self.finding.prints, self.calls
        if calls is None or calls.status != "native" or self.silent:
            return False
        return said not in {"", calls.prints}

    @property
    def silent(self) -> bool:
        """Whether nothing is printed and the result is wrong."""
        if self.calls is None or self.calls.status == "unsupported":
            return False
        named = [self.report.statements.get(text) for text in self.about]
        return any(
            statement is not None and statement.effect == "wrong_result" for statement in named
        )

    @property
    def about(self) -> tuple[str, ...]:
        """The ids of the statements that the calls meet and the finding names."""
        if self.calls is None:
            return ()
        met = (*self.calls.limitations, *self.calls.advisories)
        texts = [name for name in met if f"({name})" in self.finding.message]
        decided = {evidence.detail for evidence in self.calls.evidence}
        return tuple(texts or (name for name in met if name in decided))


def read(path: str) -> Saved:
    """The report in a JSON or YAML file.

    Raises:
        UsageError: it cannot be read, or is no report of an audit or of a run.
    """
    saved = every_text(decode(path, Saved))
    for group in saved.calls:
        example = group.example
        if example is not None and not (_OP.fullmatch(group.op) and _is_plain(example)):
            raise UsageError(
                f"a damaged report: what it keeps of {group.op} is no call",
                context=path,
                hint="write it again: opcheck audit MODEL -o report.json",
            )
    return saved


def _is_plain(example: Example) -> bool:
    """Whether all that is written into a program as it stands, and is run, are names and dtypes."""
    names = [tensor.argument for tensor in example.inputs if tensor.argument]
    names += [*example.arguments, *(tensor.layout for tensor in example.inputs)]
    known = all(tensor.dtype in DTYPES and _is_possible(tensor) for tensor in example.inputs)
    return known and all(name.isidentifier() and not iskeyword(name) for name in names)


def _is_possible(tensor: Tensor) -> bool:
    """Whether there can be a tensor of that shape and stride."""
    strides = tensor.stride if tensor.stride is not None else (0,) * len(tensor.shape)
    return (
        len(strides) == len(tensor.shape) <= _DIMENSIONS
        and all(0 <= number < _LARGEST for number in (*tensor.shape, *strides))
        and math.prod(tensor.shape) < _LARGEST
        and sum(size * step for size, step in zip(tensor.shape, strides, strict=True)) < _LARGEST
    )


def of(report: Report) -> Saved:
    """The parts of a report that was just made."""
    return every_text(msgspec.convert(as_dict(report), Saved))


def every(report: Saved) -> tuple[Chosen, ...]:
    """The findings, numbered from one, each with its calls."""
    return tuple(
        Chosen(report=report, number=number, finding=source, calls=_calls(report, source))
        for number, source in enumerate(report.findings, 1)
    )


def choose(report: Saved, which: str) -> Chosen:
    """The finding that ``which`` names: its number, or the first of a rule or of an operator.

    Raises:
        UsageError: there is none.
    """
    choices = every(report)
    names = {which.upper(), which, f"aten::{which}"}
    for choice in choices:
        ops = {choice.finding.op, choice.finding.op.partition(".")[0]}
        if which == str(choice.number) or choice.finding.rule in names or ops & names:
            return choice
    known = ", ".join(f"{one.number} {one.finding.rule}" for one in choices) or "it has no findings"
    raise UsageError(
        f"no finding {which!r} in the report", context=report.model, hint=f"there are: {known}"
    )


def _calls(report: Saved, finding: Found) -> Calls | None:
    """The group that a finding is about: of its operator, if possible with what it prints; or of the statement it names."""
    kept = [group for group in report.calls if group.example is not None]
    if finding.op:
        same = [group for group in kept if group.op == finding.op]
        exact = [group for group in same if group.prints == finding.prints]
        return next(iter(exact or same), None)
    for group in kept:
        if any(f"({name})" in finding.message for name in (*group.limitations, *group.advisories)):
            return group
    return None
