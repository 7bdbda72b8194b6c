"""OC110: the copies that the CPU fallbacks of one run make."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.common.text import filesize, plural
from opcheck.judge.rules.rule import Audited, audit_rule, finding
from opcheck.model.records import Finding


@audit_rule("OC110", "note")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding with the totals, if anything is copied."""
    moved = audited.partition
    if not moved.transfers_to_cpu + moved.transfers_to_mps:
        return
    regions = [region for region in moved.regions if region.side == "cpu"]
    yield finding(
        message=f"the CPU fallbacks make {plural(moved.transfers_to_cpu, 'copy')} to the CPU "
        f"({filesize(moved.bytes_to_cpu)}) and {moved.transfers_to_mps:,} back "
        f"({filesize(moved.bytes_to_mps)})"
        + (f" in {plural(len(regions), 'region')}" if regions else ""),
        hint="fallback calls in a row share no copies: "
        "one .cpu() before them and one .to('mps') after copies less",
        count=sum(region.calls for region in regions),
    )
