"""OC141: a complex tensor that a call refuses begins here."""

from __future__ import annotations

from opcheck.judge.rules.origin import check_for
from opcheck.judge.rules.rule import audit_rule

check = audit_rule("OC141", "error")(check_for("complex"))
