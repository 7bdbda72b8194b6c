"""OC150: a call loses digits that float64 keeps."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge.remedies import for_kind
from opcheck.judge.rules.rule import Audited, audit_rule, finding
from opcheck.model.records import Finding


@audit_rule("OC150", "warning")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield a finding for the first call that loses digits by itself, and for each overflow or NaN."""
    for run in audited.precision:
        if run.divergence is not None:
            line = run.divergence
            yield finding(
                message=f"{line.op}: in {run.dtype} it loses digits by itself: relative error "
                f"{float(line.local):.1e}, from inputs that are off by {float(line.inherited):.1e}",
                hint=_way_out(line.op, audited),
                op=line.op,
                locations=(line.place,),
            )
        for event in run.events:
            if event.kind != "flips":
                yield finding(
                    message=f"{event.op}: {event.kind} in {run.dtype}, in {event.elements:,} of "
                    f"{event.of:,} elements",
                    hint="scale what comes in, or keep this part in float32",
                    op=event.op,
                    locations=(event.place,),
                )


def _way_out(op: str, audited: Audited) -> str:
    """Return a hint that names the page of the operator's remedy, if there is such a page."""
    remedy = for_kind(op.partition(".")[0], audited.target)
    instead = f"another way (opcheck explain {remedy.id})" if remedy else "another way"
    return f"compute this part {instead}, or keep it on the CPU in float64 (opcheck explain keep_on_cpu)"
