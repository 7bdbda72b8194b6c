"""OC107: a registered kernel that itself moves the work to the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge.rules.rule import Audited, AuditRule, about, sentences
from opcheck.model.records import Finding


def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each group with such a kernel."""
    for group in audited.groups:
        if (group.verdict.status, group.verdict.kind) == ("fallback", "internal"):
            statement = audited.decided_by(group)
            way_out = statement.way_out.rstrip(".") if statement else ""
            links = statement.links if statement else ()
            yield about(group, "OC107", "warning", hint=sentences(way_out or _SLOWER, *links))


_SLOWER = "it works, slower: each call copies there and back"

RULE = AuditRule(
    id="OC107",
    severity="warning",
    check=check,
)
