"""Problems of the capture: the run is incomplete, rests on assumptions, or ended as it would on a Mac."""

from collections import Counter
from collections.abc import Iterator, Sequence

from opcheck.common.grouping import group_values
from opcheck.common.text import and_more, any_layer, plural
from opcheck.common.vocabulary import Headline, Severity
from opcheck.data import messages
from opcheck.data.packages import PACKAGES, Becomes, StorageMethod
from opcheck.judge.rules.rule import AuditCheck, Audited, audit_rule, finding, sentences, upgrade
from opcheck.judge.texts import AFTER_PROBLEM, QUANTIZED
from opcheck.model.records import OWN_LIMITS, RAISED_ON_A_MAC, Finding, GroupLocation, Problem, Trace


def _places(problem: Problem) -> tuple[GroupLocation, ...]:
    """Return where a problem arose, as locations of a finding."""
    place = GroupLocation.at(problem.location, module=problem.module, count=problem.count)
    return (place,) if problem.location or problem.module else ()


# -- OC113: backward goes through an operator that has no derivative on the target -----------------


@audit_rule("OC113", "warning")
def find_lost_gradients(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each such operator."""
    lost = (problem for problem in audited.trace.problems if problem.kind == "gradient_lost")
    for op, members in group_values((problem.op, problem) for problem in lost).items():
        group = next((group for group in audited.groups if group.op == op), None)
        hint = AFTER_PROBLEM["gradient_lost"]
        if op.startswith("aten::"):
            newer = upgrade(audited, group) if group else ""
            hint = sentences(newer, "run it on the CPU, where it has a derivative: f(x.cpu()).to('mps')")
        yield finding(
            message=f"{op}: no gradient passes back through it on MPS, and nothing is raised: "
            "what it was computed from is not trained by it",
            hint=hint,
            op=op,
            prints=members[0].message,
            locations=tuple(GroupLocation.at(problem.location, module=problem.module, count=1) for problem in members),
            count=group.count if group else len(members),
        )


# -- OC120: the captured run is incomplete, or rests on assumptions --------------------------------

#: the run continues after these
_ENDS_NOTHING = frozenset({"gradient_lost", "guess", "hub_kernel", "module_not_called", "quantized", "value_check"})

#: how severe a guess is, and the text for lines that do not choose a way by it.
_GUESSES: dict[str, tuple[Severity, str]] = {
    "guess": ("warning", ""),
    "value_check": ("note", "; the lines check or write them or end a loop, and go no other way"),
}

#: the finding of the call that raised ("call_raised") explains why the program ended
_OF_OTHER_RULES = (_ENDS_NOTHING - _GUESSES.keys()) | {"call_raised", "refused"} | OWN_LIMITS | RAISED_ON_A_MAC


@audit_rule("OC120", "error")
def find_incomplete_captures(audited: Audited) -> Iterator[Finding]:
    """Yield a finding for each problem, for all guesses of an operator together, and for an incomplete trace."""
    trace = audited.trace
    severity: Severity = "warning" if trace.complete else "error"
    problems = [problem for problem in trace.problems if problem.kind not in _OF_OTHER_RULES]
    for problem in problems:
        if problem.kind not in _GUESSES:
            hint = AFTER_PROBLEM.get(problem.kind, "what follows this point was not judged")
            yield finding(
                severity="warning" if problem.kind == "eager" else severity,
                message=problem.message,
                # Where something cannot be built, its error explains what to do.
                hint=problem.answered if problem.kind == "not_built" else hint,
                locations=_places(problem),
            )
    yield from _guesses(problems)
    if not trace.complete and all(problem.kind in _ENDS_NOTHING for problem in trace.problems):
        hint = "what follows the last call was not judged"
        yield finding(severity=severity, message="the run ended early", hint=hint)


def _guesses(problems: Sequence[Problem]) -> Iterator[Finding]:
    """Yield one finding for each operator whose values were guessed; a guess lets the run continue and is no error."""
    guesses = (problem for problem in problems if problem.kind in _GUESSES)
    for (kind, op), members in group_values(((guess.kind, guess.op), guess) for guess in guesses).items():
        severity, rests = _GUESSES[kind]
        answers = ", or ".join(dict.fromkeys(problem.answered for problem in members))
        yield finding(
            severity=severity,
            message=f"{op} reads values that a run on shapes does not have, answered {answers}{rests}",
            hint=AFTER_PROBLEM[kind],
            op=op,
            locations=tuple(place for problem in members for place in _places(problem)),
            count=sum(problem.count for problem in members),
        )


# -- OC121: modules that the run never called ------------------------------------------------------

_SHOWN = 5


@audit_rule("OC121", "note")
def find_uncalled_modules(audited: Audited) -> Iterator[Finding]:
    """Yield one finding that lists them all, unless the run broke off: then the rest is unknown."""
    names = audited.trace.uncalled
    if not names or not audited.trace.complete:
        return
    kinds = Counter(any_layer(name) for name in names)
    shown = [f"{kind} ({count})" if count > 1 else kind for kind, count in kinds.items()]
    listed = f"{and_more(shown, _SHOWN)}{' kinds' * (len(shown) > _SHOWN)}"
    message = f"{plural(len(names), 'module')} never called, so not judged: {listed}"
    yield finding(message=message, hint="give inputs that reach them with --input or --config", count=len(names))


# -- OC123: the torch that captured the run is not the torch of the target -------------------------


@audit_rule("OC123", "note")
def find_differing_releases(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for all differences that the capture noted; a warning if calls depend on them."""
    trace = audited.trace
    if not trace.differences:
        return
    # The libraries that did not get the target's answers, and whose lines make calls.
    with_calls = {trace.differing_library(place.location) for group in audited.groups for place in group.locations}
    libraries = [name for name in trace.differing_libraries if name in with_calls]
    differs = f"; {', '.join(libraries)} may make other calls there" if libraries else ""
    captured = f"captured with {trace.installed_torch or 'another release'}"
    yield finding(
        severity="warning" if libraries else "note",
        message="; ".join(trace.differences) + differs,
        hint=f"install torch {audited.target.torch} here and audit again ({captured})",
        count=len(trace.differences),
    )


# -- the exception that ended the program ----------------------------------------------------------


def _hint_end(problem: Problem) -> str:
    """Return the way out for the problem that ended the program."""
    kind, answer = problem.kind, problem.answered
    if kind == "needs_newer_torch":
        return (
            f"use a release that has {answer}, or {'leave it out' if '=)' in answer else 'check with hasattr() first'}"
        )
    if kind == "needs_package":
        package = PACKAGES.load().by_name.get(answer)
        return f"instead: {package.instead}" if package else "leave the import out on a Mac"
    if kind == "needs_cuda":
        return messages.remedy_for("without_cuda", problem.message)
    return AFTER_PROBLEM.get(kind) or messages.remedy_for(kind, answer)


#: The answer to such a problem is nothing that a Mac prints.
_SILENT = OWN_LIMITS | {"needs_newer_torch", "needs_package", "mps_branch"}


def _report_ends(*kinds: str) -> AuditCheck:
    """Return a check that reports each problem of these kinds."""

    def check(audited: Audited) -> Iterator[Finding]:
        for problem in audited.trace.problems:
            if problem.kind in kinds:
                condition = f"; the condition: {problem.answered}"
                yield finding(
                    message=problem.message + condition * (problem.kind == "mps_branch"),
                    hint=_hint_end(problem),
                    op=problem.op if problem.kind in OWN_LIMITS else "",
                    prints="" if problem.kind in _SILENT else problem.answered,
                    locations=_places(problem),
                )

    return check


#: The program needs CUDA, a package built on CUDA or a later torch, which the Mac does not have.
find_missing_needs = audit_rule("OC124", "error")(_report_ends("needs_cuda", "needs_newer_torch", "needs_package"))
#: opcheck itself could not follow the program; the program need not be wrong.
find_own_limits = audit_rule("OC125", "error")(_report_ends(*OWN_LIMITS))
#: PyTorch, Python code for mps alone, or the start of a process raises on a Mac; no operator is called.
find_mps_refusals = audit_rule("OC126", "error")(
    _report_ends("refused_on_mps", "not_spawned", "lacks_global", "refused_everywhere", "mps_branch")
)


# -- OC127: weights by a method of quantization, or a kernel of the hub, that a Mac may lack --------

#: By the outcome of a method: the severity.
_METHODS: dict[Becomes, Severity] = {
    "casts": "note",
    **dict.fromkeys(("raises_at_load", "raises_at_run", "wrong"), "error"),
    **dict.fromkeys(("loads", "runs_on_cpu", "unknown"), "warning"),
}
_UNLISTED = {
    kind: StorageMethod(outcome="unknown", because=because, instead=instead, evidence="", date="")
    for kind, because, instead in (
        ("hub_kernel", "opcheck has no entry for this kernel", "attn_implementation=sdpa"),
        ("quantized", "opcheck has no entry for this method", "weights that are not quantized"),
    )
}


@audit_rule("OC127", "error")
def find_quantized_weights(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each method."""
    for problem, method in _methods(audited.trace):
        severity = _METHODS[method.outcome]
        begins = QUANTIZED.get(problem.answered, QUANTIZED[problem.kind]).format(problem.answered)
        meaning = QUANTIZED["without_kernel" if problem.kind == "hub_kernel" else severity]
        message = f"{begins}: {method.because}; {meaning}"
        yield finding(severity=severity, message=message, hint=f"instead: {method.instead}", prints=method.prints)


def quantized_headline(trace: Trace) -> Headline | None:
    """Return the headline that the methods and kernels of a model decide; None: they decide none."""
    severities = {_METHODS[method.outcome] for _, method in _methods(trace)}
    if "error" in severities:
        return "fails"
    return "could not tell" if "warning" in severities else None


def _methods(trace: Trace) -> Iterator[tuple[Problem, StorageMethod]]:
    listed = {"hub_kernel": PACKAGES.load().kernels, "quantized": PACKAGES.load().methods}
    for problem in trace.problems:
        if problem.kind in listed:
            yield problem, listed[problem.kind].get(problem.answered, _UNLISTED[problem.kind])
