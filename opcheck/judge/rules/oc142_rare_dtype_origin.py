"""OC142: a tensor of a dtype that few kernels know begins here."""

from __future__ import annotations

from opcheck.judge.rules.origin import check_for
from opcheck.judge.rules.rule import audit_rule

check = audit_rule("OC142", "error")(check_for("complex32", "unsigned", "float8"))
