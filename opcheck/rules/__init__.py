"""The rules of ``opcheck audit``; a file ``ocNNN_slug.py`` in this folder is one, and their order is that of the report."""

from __future__ import annotations

from opcheck.catalogue import discover
from opcheck.rules.rule import AuditRule

RULES = discover(__name__, AuditRule)
BY_ID: dict[str, AuditRule] = {rule.id: rule for rule in RULES}
