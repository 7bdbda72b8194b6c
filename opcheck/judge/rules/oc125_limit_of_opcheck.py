"""OC125: opcheck itself could not follow the program; the program need not be wrong."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge.rules.oc120_capture_incomplete import problem_places
from opcheck.judge.rules.rule import Audited, audit_rule, finding
from opcheck.model.records import OWN_LIMITS, Finding


@audit_rule("OC125", "error")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each place where opcheck could not continue."""
    for problem in audited.trace.problems:
        if problem.kind in OWN_LIMITS:
            yield finding(
                message=problem.message,
                hint="this says nothing about a Mac; what follows this point was not judged: leave the call "
                "out, or report it to opcheck with the traceback",
                op=problem.op,
                locations=problem_places(problem),
            )
