"""OC112: a call that meets a known wrong result or crash."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge.rules.rule import Audited, audit_rule, statement_finding
from opcheck.model.records import Finding


@audit_rule("OC112", "warning")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each advisory that matches for certain; the report's statements list the others."""
    for statement, groups in audited.groups_by_statement("advisory", _EFFECTS):
        running = [group for group in groups if audited.decided_by(group) != statement]
        if running:
            yield statement_finding(statement, running, "warning")


_EFFECTS = ("aborts", "raises", "falls_back", "wrong_result", "narrows", "warns")
