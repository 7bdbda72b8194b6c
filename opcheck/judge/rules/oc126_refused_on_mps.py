"""OC126: PyTorch, Python code for mps alone, or the start of a process raises on a Mac; no operator is called."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.data import messages
from opcheck.judge.rules.oc120_capture_incomplete import problem_places
from opcheck.judge.rules.rule import Audited, AuditRule
from opcheck.model.records import Finding


def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for the exception that ended the program; a Mac raises the same."""
    for problem in audited.trace.problems:
        if problem.kind == "refused_on_mps":
            yield Finding(
                rule="OC126",
                severity="error",
                message=problem.message,
                hint=messages.refused_on_mps(problem.answered),
                prints=problem.answered,
                locations=problem_places(problem),
            )
        elif problem.kind == "not_spawned":
            yield Finding(
                rule="OC126",
                severity="error",
                message=problem.message,
                hint=messages.not_spawned(problem.answered),
                prints=problem.answered,
                locations=problem_places(problem),
            )
        elif problem.kind == "refused_everywhere":
            yield Finding(
                rule="OC126",
                severity="error",
                message=problem.message,
                hint="mend the call: a Mac does not take its arguments either",
                prints=problem.answered,
                locations=problem_places(problem),
            )
        elif problem.kind == "mps_branch":
            yield Finding(
                rule="OC126",
                severity="error",
                message=f"{problem.message}; the condition: {problem.answered}",
                hint="try another release of the library whose line it is, or run this call on the CPU",
                locations=problem_places(problem),
            )


RULE = AuditRule(
    id="OC126",
    severity="error",
    check=check,
)
