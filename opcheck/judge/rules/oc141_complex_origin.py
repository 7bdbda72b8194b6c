"""OC141: a complex tensor that a call refuses begins here."""

from __future__ import annotations

from opcheck.judge.rules.origin import check_for
from opcheck.judge.rules.rule import AuditRule

RULE = AuditRule(
    id="OC141",
    severity="error",
    check=check_for("OC141", "complex"),
)
