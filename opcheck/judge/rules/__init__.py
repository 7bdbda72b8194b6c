"""The rules of ``opcheck audit``, in the order of the report.

A file ``ocNNN_slug.py`` in this folder defines a rule.
"""

from __future__ import annotations

from opcheck.common.catalogue import discover
from opcheck.judge.rules.rule import AuditRule

RULES = discover(__name__, AuditRule)
BY_ID: dict[str, AuditRule] = {rule.id: rule for rule in RULES}
