"""OC108: a kernel that computes in a narrower dtype, or warns."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.common.vocabulary import Effect, Severity
from opcheck.judge.rules.rule import Audited, audit_rule, statement_finding
from opcheck.model.records import Finding

#: A limitation with a wrong result is as grave; this rule reports it if no advisory does.
_EFFECTS: dict[Effect, Severity] = {
    "narrows": "warning",
    "wrong_result": "warning",
    "warns": "note",
}


@audit_rule("OC108", "warning")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each limitation that calls match for certain and run in spite of."""
    for statement, groups in audited.groups_by_statement("limitation", _EFFECTS):
        running = [group for group in groups if group.verdict.status != "unsupported"]
        if running:
            yield statement_finding(statement, running, _EFFECTS[statement.effect])
