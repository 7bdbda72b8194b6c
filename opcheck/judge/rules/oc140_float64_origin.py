"""OC140: a float64 tensor that meets MPS begins here."""

from __future__ import annotations

from opcheck.judge.rules.origin import check_for
from opcheck.judge.rules.rule import AuditRule

RULE = AuditRule(
    id="OC140",
    severity="error",
    check=check_for("OC140", "float64"),
)
