"""Problems of the capture: the run is incomplete, rests on assumptions, or ended as it would on a Mac."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from opcheck.common.text import and_more, any_layer, plural
from opcheck.common.vocabulary import Headline, Severity
from opcheck.data import messages
from opcheck.data.packages import Becomes, StorageMethod, packages
from opcheck.judge.rules.rule import AuditCheck, Audited, audit_rule, finding, sentences, upgrade
from opcheck.judge.texts import AFTER_PROBLEM
from opcheck.model.records import OWN_LIMITS, RAISED_ON_A_MAC, Finding, GroupLocation, Problem, Trace


def _places(problem: Problem) -> tuple[GroupLocation, ...]:
    """Return where a problem arose, as locations of a finding."""
    if problem.location is None and not problem.module:
        return ()
    return (GroupLocation.at(problem.location, module=problem.module, count=problem.count),)


# -- OC113: backward goes through an operator that has no derivative on the target -----------------


@audit_rule("OC113", "warning")
def find_lost_gradients(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each such operator."""
    lost = [problem for problem in audited.trace.problems if problem.kind == "gradient_lost"]
    for op in dict.fromkeys(problem.op for problem in lost):
        members = [problem for problem in lost if problem.op == op]
        group = next((group for group in audited.groups if group.op == op), None)
        yield finding(
            message=f"{op}: no gradient passes back through it on MPS, and nothing is raised: "
            "what it was computed from is not trained by it",
            hint=sentences(
                upgrade(audited, group) if group and op.startswith("aten::") else "",
                "run it on the CPU, where it has a derivative: f(x.cpu()).to('mps')"
                if op.startswith("aten::")
                else "give it a derivative: torch.library.register_autograd",
            ),
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
            yield finding(
                severity="warning" if problem.kind == "eager" else severity,
                message=problem.message,
                # Where something cannot be built, its error explains what to do.
                hint=problem.answered
                if problem.kind == "not_built"
                else AFTER_PROBLEM.get(problem.kind, "what follows this point was not judged"),
                locations=_places(problem),
            )
    yield from _guesses(problems)
    if not trace.complete and all(problem.kind in _ENDS_NOTHING for problem in trace.problems):
        yield finding(
            severity=severity, message="the run ended early", hint="what follows the last call was not judged"
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
    yield finding(
        message=f"{plural(len(names), 'module')} never called, so not judged: "
        f"{and_more(shown, _SHOWN)}{' kinds' * (len(shown) > _SHOWN)}",
        hint="give inputs that reach them with --input or --config",
        count=len(names),
    )


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
    yield finding(
        severity="warning" if libraries else "note",
        message="; ".join(trace.differences) + differs,
        hint=f"install torch {audited.target.torch} here and audit again "
        f"(captured with {trace.installed_torch or 'another release'})",
        count=len(trace.differences),
    )


# -- the exception that ended the program ----------------------------------------------------------


def _hint_newer(problem: Problem) -> str:
    otherwise = "leave it out" if "=)" in problem.answered else "check with hasattr() first"
    return f"use a release that has {problem.answered}, or {otherwise}"


def _hint_package(problem: Problem) -> str:
    package = packages().by_name.get(problem.answered)
    return f"instead: {package.instead}" if package else "leave the import out on a Mac"


def _hint_by_answer(problem: Problem) -> str:
    return messages.remedy_for(problem.kind, problem.answered)


def _report_ends(hints: Mapping[str, Callable[[Problem], str]], *silent: str) -> AuditCheck:
    """Return a check that reports each problem of these kinds; of all but the silent kinds a Mac prints the answer."""

    def check(audited: Audited) -> Iterator[Finding]:
        for problem in audited.trace.problems:
            if problem.kind in hints:
                condition = f"; the condition: {problem.answered}"
                yield finding(
                    message=problem.message + condition * (problem.kind == "mps_branch"),
                    hint=hints[problem.kind](problem),
                    op=problem.op if problem.kind in OWN_LIMITS else "",
                    prints="" if problem.kind in silent else problem.answered,
                    locations=_places(problem),
                )

    return check


#: The program needs CUDA, a package built on CUDA or a later torch, which the Mac does not have.
find_missing_needs = audit_rule("OC124", "error")(
    _report_ends(
        {
            "needs_cuda": lambda problem: messages.remedy_for("without_cuda", problem.message),
            "needs_newer_torch": _hint_newer,
            "needs_package": _hint_package,
        },
        "needs_newer_torch",
        "needs_package",
    )
)
#: opcheck itself could not follow the program; the program need not be wrong.
find_own_limits = audit_rule("OC125", "error")(
    _report_ends(
        dict.fromkeys(
            OWN_LIMITS,
            lambda _: (
                "a Mac may run this call; nothing after it was judged: leave the call out, or report it "
                "to opcheck with the traceback"
            ),
        ),
        *OWN_LIMITS,
    )
)
#: PyTorch, Python code for mps alone, or the start of a process raises on a Mac; no operator is called.
find_mps_refusals = audit_rule("OC126", "error")(
    _report_ends(
        {
            "refused_on_mps": _hint_by_answer,
            "not_spawned": _hint_by_answer,
            "refused_everywhere": lambda _: "correct the call: a Mac does not take its arguments either",
            "mps_branch": lambda _: "try another release of the library, or run this call on the CPU",
        },
        "mps_branch",
    )
)


# -- OC127: weights by a method of quantization, or a kernel of the hub, that a Mac may lack --------

#: By the outcome of a method: the severity, and what the judged run, whose layers are dense, means for a Mac.
_METHODS: dict[Becomes, tuple[Severity, str]] = {
    "casts": ("note", "the layers were judged as a Mac has them"),
    **dict.fromkeys(
        ("raises_at_load", "raises_at_run", "wrong"),
        ("error", "the layers were judged as if they were dense, but the published weights are not"),
    ),
    **dict.fromkeys(
        ("loads", "runs_on_cpu", "unknown"),
        ("warning", "the layers were judged as if they were dense; what the method calls instead was not"),
    ),
}


def _make_unlisted(what: str, instead: str) -> StorageMethod:
    because = f"opcheck has no entry for this {what}"
    return StorageMethod(outcome="unknown", because=because, instead=instead, evidence="", date="")


_UNLISTED = {
    "hub_kernel": _make_unlisted("kernel", "attn_implementation=sdpa"),
    "quantized": _make_unlisted("method", "weights that are not quantized"),
}
#: Kind of the problem -> what the finding begins with; before it the texts of single names.
_BEGINS = {
    "use_kernels": "use_kernels=True",
    "hub_kernel": "attention goes to the hub's kernel {}",
    "quantized": "the weights are quantized by {}",
}
_OF_KERNELS = "the model was judged without it"


@audit_rule("OC127", "error")
def find_quantized_weights(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each method."""
    for problem, method in _methods(audited.trace):
        severity, meaning = _METHODS[method.outcome]
        begins = _BEGINS.get(problem.answered, _BEGINS[problem.kind]).format(problem.answered)
        yield finding(
            severity=severity,
            message=f"{begins}: {method.because}; {_OF_KERNELS if problem.kind == 'hub_kernel' else meaning}",
            hint=f"instead: {method.instead}",
            prints=method.prints,
        )


def quantized_headline(trace: Trace) -> Headline | None:
    """Return the headline that the methods and kernels of a model decide; None: they decide none."""
    severities = {_METHODS[method.outcome][0] for _, method in _methods(trace)}
    if "error" in severities:
        return "fails"
    return "could not tell" if "warning" in severities else None


def _methods(trace: Trace) -> Iterator[tuple[Problem, StorageMethod]]:
    listed = {"hub_kernel": packages().kernels, "quantized": packages().methods}
    for problem in trace.problems:
        if problem.kind in listed:
            yield problem, listed[problem.kind].get(problem.answered, _UNLISTED[problem.kind])
