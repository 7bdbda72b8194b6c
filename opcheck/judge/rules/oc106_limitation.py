"""OC106: a registered kernel that refuses a call for its shape, an argument or the macOS version."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge.rules.oc105_unsupported_dtype import refused_dtype
from opcheck.judge.rules.remediation import operator_way_out
from opcheck.judge.rules.rule import Audited, about_all, audit_rule, first_text, sentences
from opcheck.model.records import CallGroup, Finding


@audit_rule("OC106", "error")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each curated statement that decides calls, except refused dtypes."""
    groups_by_statement: dict[str, list[CallGroup]] = {}
    for group in audited.groups:
        if group.verdict.status != "unsupported" or refused_dtype(audited, group):
            continue
        statement = audited.decided_by(group)
        if statement is not None:
            groups_by_statement.setdefault(statement.id, []).append(group)
    for name, groups in groups_by_statement.items():
        statement = audited.lists.statements.by_id[name]
        ends = "the process ends, no exception is raised" * (statement.effect == "aborts")
        way = operator_way_out(groups[0].op, audited.target, first_text(groups[0]))
        hint = sentences(ends, statement.way_out.rstrip("."), way.hint, *statement.links)
        yield about_all(groups, hint=hint or _ON_THE_CPU, remedy=way.line)


_ON_THE_CPU = "run it on the CPU: move its inputs with .cpu()"
