"""OC220: a finding is ignored without a reason."""

from __future__ import annotations

from opcheck.source.rule import ScanRule

RULE = ScanRule(
    id="OC220",
    severity="warning",
)
