"""OC120: the captured run is incomplete, or rests on assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opcheck.common.vocabulary import Severity
from opcheck.judge.rules.rule import Audited, audit_rule, finding
from opcheck.model.records import OWN_LIMITS, RAISED_ON_A_MAC, Finding, GroupLocation, Problem

_NEXT = {
    "too_many_calls": "give it less to do: smaller inputs with --input, fewer steps with --config",
    "memory": "give it more of this machine with --memory-limit, or smaller inputs with --input",
    "timeout": "give it more time with --timeout, or smaller inputs with --input",
    "model_raised": "give inputs that the model takes with --input, settings with --config",
    "pipeline_raised": "give its call other arguments: --call forward:height=512,width=512",
    "component_raised": "it is judged as soon as the pipeline comes to it",
    "nothing_to_train": "audit it without --mode train, or name a model whose weights are trained",
    "module_missing": "install it where opcheck is installed, or add its folder to PYTHONPATH",
    "program_exited": "what it lacks may be an argument: those behind the program's name are its own",
    "nothing_on_mps": "look at the device that the program chooses, and that the model and its inputs are moved "
    'there: .to("mps")',
    "mps_in_fork": "start processes by spawn, which is the default on a Mac, or compute on mps in one process alone",
    "eager": "the operators were judged, not what the compiler makes of them",
    "guess": "if your data decides otherwise there, other calls or sizes follow",
    "value_check": "nothing to do if your data passes the check",
}

#: the finding of the call that raised ("call_raised") says why the program ended
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

#: the run goes on after these
_ENDS_NOTHING = frozenset(
    {"gradient_lost", "guess", "hub_kernel", "module_not_called", "quantized", "value_check"}
)

#: how severe a guess is, and what is to be said of lines that do not choose a way by it.
_GUESSES: dict[str, tuple[Severity, str]] = {
    "guess": ("warning", ""),
    "value_check": ("note", "; the lines check or write them or end a loop, and go no other way"),
}


@audit_rule("OC120", "error")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield a finding for each problem, one for all guesses of an operator, and one for any incomplete trace."""
    trace = audited.trace
    severity: Severity = "warning" if trace.complete else "error"
    problems = [problem for problem in trace.problems if problem.kind not in _OF_OTHER_RULES]
    for problem in problems:
        if problem.kind not in _GUESSES:
            yield finding(
                severity="warning" if problem.kind == "eager" else severity,
                message=problem.message,
                # Of what cannot be built the error itself says what to do.
                hint=problem.answered
                if problem.kind == "not_built"
                else _NEXT.get(problem.kind, "what follows this point was not judged"),
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
    """Yield one finding for each operator whose values were guessed; a guess lets the run go on and is no error."""
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
            hint=_NEXT[kind],
            op=op,
            locations=tuple(place for problem in members for place in problem_places(problem)),
            count=times,
        )


def problem_places(problem: Problem) -> tuple[GroupLocation, ...]:
    """Return where a problem arose, as locations of a finding."""
    if problem.location is None and not problem.module:
        return ()
    return (GroupLocation.at(problem.location, module=problem.module, count=problem.count),)
