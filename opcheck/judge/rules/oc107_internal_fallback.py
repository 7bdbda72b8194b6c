"""OC107: a registered kernel that itself moves the work to the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge.rules.rule import Audited, about_all, audit_rule, sentences
from opcheck.model.records import CallGroup, Finding


@audit_rule("OC107", "warning")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each statement about such a kernel, and for each group that none decides."""
    causes: dict[str, list[CallGroup]] = {}
    for group in audited.groups:
        if (group.verdict.status, group.verdict.kind) == ("fallback", "internal"):
            statement = audited.decided_by(group)
            cause = statement.id if statement else f"{group.op} {group.verdict}"
            causes.setdefault(cause, []).append(group)
    for groups in causes.values():
        statement = audited.decided_by(groups[0])
        way_out = statement.way_out.rstrip(".") if statement else ""
        links = statement.links if statement else ()
        yield about_all(groups, hint=sentences(way_out or _SLOWER, *links))


_SLOWER = "it works, slower: each call copies there and back"
