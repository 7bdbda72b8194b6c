"""What a rule is, what it may look at, and the hints that several rules give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opcheck.model import CallGroup, Finding, Partition, Trace
from opcheck.oplists.registrations import OpLists
from opcheck.versions import Target, Version

#: Of findings, the most severe first.
SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True, kw_only=True)
class Audited:
    """Everything that a rule may look at."""

    groups: tuple[CallGroup, ...]
    trace: Trace
    target: Target
    partition: Partition
    lists: OpLists

    def native_in(self, op: str) -> str:
        """The nearest release line with an MPS kernel for ``op``: the oldest newer one, if any.

        Empty where no release in the lists has one.
        """
        lines = sorted(Version.parse(release.line) for release in self.lists.releases)
        native = [line for line in lines if self.lists.resolve(op, str(line)).status == "native"]
        newer = [line for line in native if line > self.target.torch]
        return str(next(iter(newer or native), ""))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One kind of finding: what finds it, and its page in ``opcheck explain``."""

    id: str
    slug: str
    title: str
    severity: str
    #: Markdown: what, why, way out, evidence.
    page: str
    check: Callable[[Audited], Iterator[Finding]]


def about(group: CallGroup, rule: str, severity: str, *, hint: str) -> Finding:
    """The finding that says of one group of calls what its verdict says."""
    verdict = group.verdict
    return Finding(
        rule=rule,
        severity=severity,
        message=f"{group.op}: {verdict.because}",
        hint=hint,
        op=group.op,
        prints=verdict.prints,
        locations=group.locations,
        count=group.count,
    )


def upgrade(audited: Audited, group: CallGroup) -> str:
    """Which release has a kernel for what the group lacks, in words; empty if none has."""
    line = audited.native_in(group.verdict.named or group.op)
    return f"torch {line} has an MPS kernel for it" if line else ""


def sentences(*parts: str) -> str:
    """The non-empty parts as one hint."""
    return "; ".join(part for part in parts if part)
