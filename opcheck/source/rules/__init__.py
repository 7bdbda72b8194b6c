"""The rules of ``opcheck scan``: the functions in this folder that ``rule`` decorates."""

from opcheck.common.catalogue import discover
from opcheck.source.rule import ScanRule

RULES = discover(__name__, ScanRule)
BY_ID: dict[str, ScanRule] = {rule.id: rule for rule in RULES}
