"""The rules of ``opcheck audit``, in the order of the report.

Each function in this folder that ``audit_rule`` decorates is a rule.
"""

from opcheck.common.catalogue import discover
from opcheck.judge.rules.rule import AuditRule

RULES = discover(__name__, AuditRule)
BY_ID: dict[str, AuditRule] = {rule.id: rule for rule in RULES}
