"""OC120: the captured run is incomplete, or rests on assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opcheck.common.vocabulary import Severity
from opcheck.judge.rules.rule import Audited, audit_rule, finding
from opcheck.judge.texts import AFTER_PROBLEM
from opcheck.model.records import OWN_LIMITS, RAISED_ON_A_MAC, Finding, GroupLocation, Problem

#: the finding of the call that raised ("call_raised") explains why the program ended
_OF_OTHER_RULES = frozenset(
    {
        "call_raised",
        "gradient_lost",
        "hub_kernel",
        "module_not_called",
        "quantized",
        "refused",
        *OWN_LIMITS,
        *RAISED_ON_A_MAC,
    }
)

#: the run continues after these
_ENDS_NOTHING = frozenset(
    {"gradient_lost", "guess", "hub_kernel", "module_not_called", "quantized", "value_check"}
)

#: how severe a guess is, and the text for lines that do not choose a way by it.
_GUESSES: dict[str, tuple[Severity, str]] = {
    "guess": ("warning", ""),
    "value_check": ("note", "; the lines check or write them or end a loop, and go no other way"),
}


@audit_rule("OC120", "error")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield a finding for each problem, for all guesses of an operator together, and for an incomplete trace."""
    trace = audited.trace
    severity: Severity = "warning" if trace.complete else "error"
    problems = [problem for problem in trace.problems if problem.kind not in _OF_OTHER_RULES]
    for problem in problems:
        if problem.kind not in _GUESSES:
            yield finding(
                severity="warning" if problem.kind == "eager" else severity,
                message=problem.message,
                # Where something cannot be built, its error explains what to do.
                hint=problem.answered
                if problem.kind == "not_built"
                else AFTER_PROBLEM.get(problem.kind, "what follows this point was not judged"),
                locations=problem_places(problem),
            )
    yield from _guesses(problems)
    if not trace.complete and all(problem.kind in _ENDS_NOTHING for problem in trace.problems):
        yield finding(
            severity=severity,
            message="the run did not come to its end",
            hint="what follows the last call was not judged",
        )


def _guesses(problems: Sequence[Problem]) -> Iterator[Finding]:
    """Yield one finding for each operator whose values were guessed; a guess lets the run continue and is no error."""
    asked: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        if problem.kind in _GUESSES:
            asked.setdefault((problem.kind, problem.op), []).append(problem)
    for (kind, op), members in asked.items():
        severity, rests = _GUESSES[kind]
        answers = ", or ".join(dict.fromkeys(problem.answered for problem in members))
        times = sum(problem.count for problem in members)
        yield finding(
            severity=severity,
            message=f"{op} reads values that a run on shapes does not have, answered {answers}{rests}",
            hint=AFTER_PROBLEM[kind],
            op=op,
            locations=tuple(place for problem in members for place in problem_places(problem)),
            count=times,
        )


def problem_places(problem: Problem) -> tuple[GroupLocation, ...]:
    """Return where a problem arose, as locations of a finding."""
    if problem.location is None and not problem.module:
        return ()
    return (GroupLocation.at(problem.location, module=problem.module, count=problem.count),)
