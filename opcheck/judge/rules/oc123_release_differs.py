"""OC123: the torch that captured the run is not the torch of the target."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge.rules.rule import Audited, AuditRule
from opcheck.model.records import Finding


def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for all differences that the capture noted."""
    trace = audited.trace
    if trace.differences:
        yield Finding(
            rule="OC123",
            severity="note",
            message="; ".join(trace.differences),
            hint=f"install torch {audited.target.torch} here and audit again "
            f"(captured with {trace.installed_torch or 'another release'})",
            count=len(trace.differences),
        )


RULE = AuditRule(
    id="OC123",
    severity="note",
    check=check,
)
