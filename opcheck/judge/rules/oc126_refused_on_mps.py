"""OC126: PyTorch, Python code for mps alone, or the start of a process raises on a Mac; no operator is called."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.data import messages
from opcheck.judge.rules.oc120_capture_incomplete import problem_places
from opcheck.judge.rules.rule import Audited, audit_rule, finding
from opcheck.model.records import Finding


@audit_rule("OC126", "error")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for the exception that ended the program; a Mac raises the same."""
    for problem in audited.trace.problems:
        if problem.kind in {"refused_on_mps", "not_spawned", "refused_everywhere"}:
            otherwise = "mend the call: a Mac does not take its arguments either"
            yield finding(
                message=problem.message,
                hint=otherwise
                if problem.kind == "refused_everywhere"
                else messages.remedy_for(problem.kind, problem.answered),
                prints=problem.answered,
                locations=problem_places(problem),
            )
        elif problem.kind == "mps_branch":
            yield finding(
                message=f"{problem.message}; the condition: {problem.answered}",
                hint="try another release of the library whose line it is, or run this call on the CPU",
                locations=problem_places(problem),
            )
