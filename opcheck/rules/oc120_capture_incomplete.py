"""OC120: the captured run is not the whole truth."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.model import Finding, GroupLocation, Problem
from opcheck.rules.rule import Audited, Rule

_NEXT = {
    "too_many_calls": "give it less to do: smaller inputs with --input, fewer steps with --config",
    "memory": "give it more of this machine with --memory-limit, or smaller inputs with --input",
    "timeout": "give it more time with --timeout, or smaller inputs with --input",
    "model_raised": "give inputs that the model takes with --input, settings with --config",
    "nothing_to_train": "audit it without --mode train, or name a model whose weights are trained",
    "eager": "the operators were judged, not what the compiler makes of them",
    "guess": "check that the guess leads down the way that your data takes",
}


def check(audited: Audited) -> Iterator[Finding]:
    """One finding for each problem; an incomplete trace without one gets one all the same."""
    trace = audited.trace
    severity = "warning" if trace.complete else "error"
    problems = [problem for problem in trace.problems if problem.kind != "module_not_called"]
    for problem in problems:
        yield Finding(
            rule="OC120",
            # A guess leads the run on; only what broke it off is an error.
            severity="warning" if problem.kind in ("guess", "eager") else severity,
            message=problem.message,
            hint=_NEXT.get(problem.kind, "what follows this point was not judged"),
            locations=_location(problem),
        )
    if not trace.complete and not problems:
        yield Finding(
            rule="OC120",
            severity=severity,
            message="the run did not come to its end",
            hint="what follows the last call was not judged",
        )


def _location(problem: Problem) -> tuple[GroupLocation, ...]:
    if problem.location is None and not problem.module:
        return ()
    return (GroupLocation(location=problem.location, module=problem.module, count=1),)


RULE = Rule(
    id="OC120",
    slug="capture_incomplete",
    title="The captured run is not the whole truth",
    severity="error",
    check=check,
    page="""
**What.** The model raised, hung or died before its end, or the capture had to guess a value that
only a real run has. What lies behind that point was not judged.

**Why.** The inputs do not fit the model, the time limit is too short, or the model's way depends
on the values of tensors, which a run without weights does not have. In a training step, what
backward or the optimizer raises is said so: `capturable=True` raises on a Mac, for one.

**Way out.** Give inputs with `--input`, settings with `--config`, time with `--timeout`. The
finding's message is the model's own.

**Evidence.** The captured run.
""",
)
