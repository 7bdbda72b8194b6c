"""OC221: a comment that ignores nothing."""

from __future__ import annotations

from opcheck.source.rule import ScanRule

RULE = ScanRule(
    id="OC221",
    severity="warning",
)
