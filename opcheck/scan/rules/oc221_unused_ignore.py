"""OC221: an ignore that ignores nothing."""

from __future__ import annotations

from opcheck.scan.rule import ScanRule

RULE = ScanRule(
    id="OC221",
    severity="warning",
)
