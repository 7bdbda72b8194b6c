"""OC112: a call that meets a known wrong result or crash."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.common.text import plural
from opcheck.judge.rules.rule import Audited, AuditRule, statement_finding
from opcheck.model.records import Finding


def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each advisory that matches for certain, and one note for those that may match."""
    certain: set[str] = set()
    for statement, groups in audited.groups_by_statement("advisory", _EFFECTS):
        certain.add(statement.id)
        running = [group for group in groups if audited.decided_by(group) != statement]
        if running:
            yield statement_finding(statement, running, "OC112", "warning")
    perhaps = [group for group in audited.groups if {*group.verdict.advisories} - certain]
    names = sorted({name for group in perhaps for name in group.verdict.advisories} - certain)
    if names:
        yield Finding(
            rule="OC112",
            severity="note",
            message=f"{plural(len(names), 'advisory')} may concern calls of this "
            f"run, which do not tell: {', '.join(names)}",
            hint="the report's statements say when each holds",
            count=sum(group.count for group in perhaps),
        )


_EFFECTS = ("aborts", "raises", "falls_back", "wrong_result", "narrows", "warns")

RULE = AuditRule(
    id="OC112",
    severity="warning",
    check=check,
)
