"""OC140: a float64 tensor that meets MPS begins here."""

from __future__ import annotations

from opcheck.judge.rules.origin import check_for
from opcheck.judge.rules.rule import audit_rule

check = audit_rule("OC140", "error")(check_for("float64"))
