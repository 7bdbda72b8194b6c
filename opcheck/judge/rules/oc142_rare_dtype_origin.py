"""OC142: a tensor of a dtype that few kernels know begins here."""

from __future__ import annotations

from opcheck.judge.rules.origin import check_for
from opcheck.judge.rules.rule import AuditRule

RULE = AuditRule(
    id="OC142",
    severity="error",
    check=check_for("OC142", "complex32", "unsigned", "float8"),
)
