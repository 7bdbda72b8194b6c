"""OC123: the torch that captured the run is not the torch of the target."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge.rules.rule import Audited, audit_rule, finding
from opcheck.model.records import Finding


@audit_rule("OC123", "note")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for all differences that the capture noted; a warning if calls depend on them."""
    trace = audited.trace
    if not trace.differences:
        return
    libraries = _libraries_with_calls(audited)
    differs = f"; {', '.join(libraries)} may make other calls there" if libraries else ""
    yield finding(
        severity="warning" if libraries else "note",
        message="; ".join(trace.differences) + differs,
        hint=f"install torch {audited.target.torch} here and audit again "
        f"(captured with {trace.installed_torch or 'another release'})",
        count=len(trace.differences),
    )


def _libraries_with_calls(audited: Audited) -> list[str]:
    """Return the libraries that did not get the target's answers, and whose lines make calls."""
    with_calls = {
        audited.trace.differing_library(place.location)
        for group in audited.groups
        for place in group.locations
    }
    return [name for name in audited.trace.differing_libraries if name in with_calls]
