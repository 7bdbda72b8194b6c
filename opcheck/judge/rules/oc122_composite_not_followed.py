"""OC122: a composite whose body the capture did not look into."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge.judge import NOT_FOLLOWED
from opcheck.judge.rules.rule import Audited, about, audit_rule
from opcheck.model.records import Finding, Verdict


@audit_rule("OC122", "warning")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each such group."""
    for group in audited.groups:
        if not_followed(group.verdict):
            yield about(
                group,
                hint="capture with --tracer dispatch, which follows composites",
            )


def not_followed(verdict: Verdict) -> bool:
    """Return whether the verdict is unknown because the capture did not follow a composite's body."""
    return verdict.status == "unknown" and any(
        entry.detail == NOT_FOLLOWED for entry in verdict.evidence
    )
