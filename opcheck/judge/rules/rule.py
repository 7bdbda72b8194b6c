"""Define an audit rule, the data that it may read, and the hints that several rules share."""

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from opcheck.common.catalogue import CatalogueRule
from opcheck.common.grouping import group_values
from opcheck.common.text import plural
from opcheck.common.versions import Target
from opcheck.common.vocabulary import Severity, StatementSort
from opcheck.data.messages import fill_text, is_form_of
from opcheck.data.registrations import OpLists
from opcheck.data.statement_model import Statement
from opcheck.judge.dtype_flow import Origin
from opcheck.judge.target_change import VersionChange, smallest_change
from opcheck.model import records
from opcheck.model.records import CallGroup, Finding, GroupLocation, Trace, Verdict


@dataclass(frozen=True, kw_only=True)
class Audited:
    """Everything that a rule may read."""

    groups: tuple[CallGroup, ...]
    trace: Trace
    target: Target
    partition: records.Partition
    lists: OpLists
    #: a verdict for each call of the trace.
    verdicts: tuple[Verdict, ...] = ()
    #: the origins of dtypes that a call refuses or narrows.
    origins: tuple[Origin, ...] = ()
    memory: records.Memory | None = None
    precision: tuple[records.Precision, ...] = ()
    #: One for each dtype; none: no kernel was run.
    numbers: tuple[records.KernelNumbers, ...] = ()

    def smallest_upgrade(self, group: CallGroup) -> VersionChange | None:
        """Return the smallest change of torch or macOS that makes every call of the group native."""
        pairs = zip(self.trace.calls, self.verdicts, strict=True)
        calls = [call for call, verdict in pairs if call.op == group.op and verdict == group.verdict]
        return smallest_change(calls, self.target, self.lists, lambda verdict: verdict.status == "native")

    def matching(self, group: CallGroup, sort: StatementSort) -> tuple[Statement, ...]:
        """Return the limitations, or advisories, that the group matches for certain, the worst first."""
        by_id = self.lists.statements.by_id
        ids = {entry.detail for entry in group.verdict.evidence if entry.kind == sort}
        statements = [by_id[name] for name in sorted(ids) if name in by_id]
        return tuple(sorted(statements, key=lambda statement: statement.rank))

    def decided_by(self, group: CallGroup) -> Statement | None:
        """Return the curated statement that decided the group's verdict; None if something else did."""
        verdict = group.verdict
        ends = {"falls_back"} if verdict.kind == "internal" else {"aborts", "raises"}
        if verdict.status != "unsupported" and verdict.kind != "internal":
            return None
        statements = (*self.matching(group, "limitation"), *self.matching(group, "advisory"))
        deciding = [statement for statement in statements if statement.effect in ends]
        return min(deciding, key=lambda statement: statement.rank, default=None)

    def refusals(self, group: CallGroup) -> tuple[str, ...]:
        """Return the ids of the capture's own refusals, which no curated statement has."""
        by_id = self.lists.statements.by_id
        return tuple(name for name in group.verdict.limitations if name not in by_id)

    def groups_by_statement(
        self, sort: StatementSort, effects: Collection[str]
    ) -> Iterator[tuple[Statement, tuple[CallGroup, ...]]]:
        """Yield each statement with such an effect, with the groups that match it for certain."""
        pairs = ((statement, group) for group in self.groups for statement in self.matching(group, sort))
        groups = group_values((statement.id, group) for statement, group in pairs if statement.effect in effects)
        for name in sorted(groups):
            yield self.lists.statements.by_id[name], tuple(groups[name])


AuditCheck = Callable[[Audited], Iterator[Finding]]


@dataclass(frozen=True, kw_only=True)
class AuditRule(CatalogueRule):
    """A rule of ``opcheck audit``."""

    check: AuditCheck

    def find(self, audited: Audited) -> Iterator[Finding]:
        """Yield the findings of the rule, each with its code, and with its severity unless it has its own."""
        for found in self.check(audited):
            severity = found.severity or self.severity
            yield msgspec.structs.replace(found, rule=self.id, severity=severity)


def audit_rule(code: str, severity: Severity) -> Callable[[AuditCheck], AuditRule]:
    """Make a rule of the function below; ``docs/rules/CODE.md`` is its page.

    Args:
        code: the rule's code.
        severity: the severity of its findings, unless they have their own.
    """
    return lambda check: AuditRule(id=code, severity=severity, check=check)


#: A finding; ``AuditRule.find`` adds the code and the severity of its rule.
finding = functools.partial(Finding, rule="", severity="")  # type: ignore[arg-type]  # see above


def make_finding(group: CallGroup, severity: Severity | None = None, *, hint: str, remedy: str = "") -> Finding:
    """Return the finding that reports the verdict of one group of calls."""
    message, places = f"{group.op}: {group.because}", group.locations
    result = finding(message=message, hint=hint, op=group.op, prints=group.prints, locations=places, count=group.count)
    return msgspec.structs.replace(result, remedy=remedy, severity=severity or result.severity)


def about_all(groups: Sequence[CallGroup], *, hint: str, remedy: str = "") -> Finding:
    """Return the finding that reports one cause which several groups of calls share.

    What fails as the model is moved to mps is one place: whatever else has the cause comes later.
    """
    first = make_finding(groups[0], hint=hint, remedy=remedy)
    places = [place for group in groups for place in group.locations]
    moved = [place for place in places if place.phase == "move"]
    if moved:
        places = [GroupLocation.at(None, phase="move")]
    if len(groups) == 1 and not moved:
        return first
    calls = sum(group.count for group in groups)
    message = f"{groups[0].because} ({plural(calls, 'call')} of {plural(len(groups), 'operator')})"
    return msgspec.structs.replace(first, message=message, op="", locations=tuple(places), count=calls)


def statement_finding(statement: Statement, groups: Sequence[CallGroup], severity: Severity) -> Finding:
    """Return the finding that reports a statement for all groups that match it."""
    ops = sorted({group.op for group in groups})
    text = fill_text(statement.error.text) if statement.error else ""
    printed = {group.verdict.prints for group in groups}
    if statement.error and len(printed) == 1 and is_form_of(statement.error.text, *printed):
        (text,) = printed  # the calls have filled it
    return finding(
        severity=severity,
        message=f"{', '.join(ops)}: {statement.summary.rstrip('.')} ({statement.id})",
        hint=sentences(statement.way_out.rstrip("."), *statement.links),
        op=ops[0] if len(ops) == 1 else "",
        prints=text,
        locations=tuple(place for group in groups for place in group.locations),
        count=sum(group.count for group in groups),
    )


def group_by_cause(groups: Iterable[CallGroup], cause: Callable[[CallGroup], str]) -> Collection[list[CallGroup]]:
    """Return the groups of each cause together; a group with an empty cause belongs to none."""
    return group_values((name, group) for group in groups if (name := cause(group))).values()


def upgrade(audited: Audited, group: CallGroup) -> str:
    """Return which release, or which macOS, has the kernel that the group lacks; empty if none has."""
    change = str(audited.smallest_upgrade(group) or _registered_in(audited, group))
    return f"{change} has an MPS kernel for it" if change else ""


def _registered_in(audited: Audited, group: CallGroup) -> str:
    """Return a release with a kernel, for groups whose calls cannot show any.

    The first newer one, where the calls were counted and not kept (``opcheck run``); else the newest older one: the
    kernel was lost.
    """
    op = group.verdict.named or group.op
    lines = audited.lists.versions
    have = [line for line in lines if audited.lists.resolve(op, str(line)).status == "native"]
    newer = [line for line in have if line > audited.target.torch and not audited.trace.calls]
    older = [line for line in have if line < audited.target.torch]
    return next((f"torch {line}" for line in (*newer, *reversed(older))), "")


def first_text(group: CallGroup) -> str:
    """Return the program's first line that makes a call of the group."""
    return next((place.location.text for place in group.locations if place.location), "")


def sentences(*parts: str) -> str:
    """Join the non-empty parts into one hint."""
    return "; ".join(part for part in parts if part)
