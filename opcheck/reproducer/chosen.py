"""Chooses the finding that a program is written for, and the calls of the report behind it."""

import math
import re
from keyword import iskeyword

from opcheck.common.errors import UsageError
from opcheck.common.names import DTYPES
from opcheck.common.vocabulary import CONFIDENCES
from opcheck.model import saved
from opcheck.model.records import CallGroup, Example, ExampleTensor, Finding, Record, Report

_OP = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.\w+)?", re.ASCII)

#: dimensions of a tensor (c10/core/TensorImpl.h), and the limit of its 64-bit numbers
_DIMENSIONS, _LARGEST = 64, 1 << 63


class ChosenFinding(Record, frozen=True, kw_only=True):
    """A finding of a report, and the calls that it is about."""

    report: Report
    #: its place in a listing, which counts from 1
    number: int
    finding: Finding
    #: None: it is about no one operator's calls, or the report keeps none of them.
    calls: CallGroup | None

    @property
    def observed(self) -> bool:
        """Return whether the report observes a run on a Mac and is no prediction."""
        return self.calls is not None and self.calls.confidence == CONFIDENCES[0]

    @property
    def uncertain(self) -> bool:
        """Return whether it names an error that the verdict of its calls does not have: they may raise it."""
        if self.calls is None or self.calls.status != "native" or self.silent:
            return False
        return self.finding.prints not in {"", self.calls.prints}

    @property
    def silent(self) -> bool:
        """Return whether the result is wrong and nothing is printed."""
        if self.calls is None or self.calls.status == "unsupported":
            return False
        statements = [self.report.statements.get(name) for name in self.statement_names]
        return any(statement is not None and statement.effect == "wrong_result" for statement in statements)

    @property
    def statement_names(self) -> tuple[str, ...]:
        """Return the ids of the statements that match the calls and that the finding names."""
        if self.calls is None:
            return ()
        ids = (*self.calls.limitations, *self.calls.advisories)
        named = [name for name in ids if f"({name})" in self.finding.message]
        decided = {evidence.detail for evidence in self.calls.evidence}
        return tuple(named or (name for name in ids if name in decided))


def read(path: str) -> Report:
    """Read the report in a JSON or YAML file, with sanitized texts and examples that are safe to run.

    Raises:
        UsageError: the file cannot be read, or is no report of an audit or of a run.
    """
    report = saved.sanitize_report(saved.read(path))
    for group in report.groups:
        example = group.example
        if example is not None and not (_OP.fullmatch(group.op) and _is_plain(example)):
            raise UsageError(
                f"a damaged report: what it keeps of {group.op} is no call", context=path, hint=saved.WRITE_AGAIN
            )
    return report


def _is_plain(example: Example) -> bool:
    """Return whether everything that goes verbatim into a program consists of names and dtypes."""
    names = [tensor.argument for tensor in example.inputs if tensor.argument]
    names += [*example.arguments, *(tensor.layout for tensor in example.inputs)]
    cached = all(tensor.dtype in DTYPES and _is_possible(tensor) for tensor in example.inputs)
    return cached and all(name.isidentifier() and not iskeyword(name) for name in names)


def _is_possible(tensor: ExampleTensor) -> bool:
    """Return whether a tensor can have that shape and stride."""
    strides = tensor.stride if tensor.stride is not None else (0,) * len(tensor.shape)
    return (
        len(strides) == len(tensor.shape) <= _DIMENSIONS
        and all(0 <= number < _LARGEST for number in (*tensor.shape, *strides))
        and math.prod(tensor.shape) < _LARGEST
        and sum(size * step for size, step in zip(tensor.shape, strides, strict=True)) < _LARGEST
    )


def every(report: Report) -> tuple[ChosenFinding, ...]:
    """Return the findings, numbered from 1, each with its calls."""
    return tuple(
        ChosenFinding(report=report, number=number, finding=finding, calls=_calls(report, finding))
        for number, finding in enumerate(report.findings, 1)
    )


def choose(report: Report, which: str) -> ChosenFinding:
    """Return the finding that ``which`` selects: its number, or the first of a rule or of an operator.

    Raises:
        UsageError: there is none.
    """
    choices = every(report)
    names = {which.upper(), which, f"aten::{which}"}
    for choice in choices:
        ops = {choice.finding.op, choice.finding.op.partition(".")[0]}
        if which == str(choice.number) or choice.finding.rule in names or ops & names:
            return choice
    cached = ", ".join(f"{choice.number} {choice.finding.rule}" for choice in choices)
    raise UsageError(
        f"no finding {which!r} in the report", context=report.model, hint=f"there are: {cached or 'it has no findings'}"
    )


def _calls(report: Report, finding: Finding) -> CallGroup | None:
    """Return the group that a finding is about: of its operator, or of the statement that it names."""
    kept = [group for group in report.groups if group.example is not None]
    if finding.op:
        same = [group for group in kept if group.op == finding.op]
        return next(iter([group for group in same if group.prints == finding.prints] or same), None)
    for group in kept:
        if any(f"({name})" in finding.message for name in (*group.limitations, *group.advisories)):
            return group
    return None
