"""OC102: a call that runs only with PYTORCH_ENABLE_MPS_FALLBACK=1."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge.rules.remediation import operator_way_out
from opcheck.judge.rules.rule import Audited, about, audit_rule, first_text, sentences, upgrade
from opcheck.model.records import Finding

_SET_IT = "set the variable before torch is imported: PYTORCH_ENABLE_MPS_FALLBACK=1 python ..."


@audit_rule("OC102", "error")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each such group: an error unless the target sets the variable."""
    is_set = audited.target.cpu_fallback
    for group in audited.groups:
        if (group.verdict.status, group.verdict.kind) == ("fallback", "env"):
            way = operator_way_out(group.op, audited.target, first_text(group))
            yield about(
                group,
                "warning" if is_set else "error",
                hint=sentences("" if is_set else _SET_IT, upgrade(audited, group), way.hint)
                or "no release in the op lists has an MPS kernel for it",
                remedy=way.line,
            )
