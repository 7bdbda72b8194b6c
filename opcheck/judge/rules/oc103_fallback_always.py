"""OC103: a call that runs on the CPU whether or not the variable is set."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge.rules.rule import Audited, about, audit_rule, sentences, upgrade
from opcheck.model.records import Finding


@audit_rule("OC103", "warning")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each group whose registration always sends it to the CPU."""
    for group in audited.groups:
        if (group.verdict.status, group.verdict.kind) == ("fallback", "always"):
            yield about(
                group,
                hint=sentences(
                    upgrade(audited, group), "it works, slower: each call copies there and back"
                ),
            )
