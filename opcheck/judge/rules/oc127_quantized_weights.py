"""OC127: weights by a method of quantization, or a kernel of the hub, that a Mac may lack."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.common.vocabulary import Headline, Severity
from opcheck.data.packages import StorageMethod, packages
from opcheck.judge.rules.rule import Audited, audit_rule, finding
from opcheck.model.records import Finding, Problem, Trace

#: The meaning for a Mac of the judged run, whose layers are dense.
_TELLS: dict[str, str] = {
    "dequantizes": "the layers were judged as a Mac has them",
    "fails": "the layers were judged as if they were dense, which the published weights do not run as",
    "unknown": "the layers were judged as if they were dense; what the method calls instead was not",
}
_SEVERITIES: dict[str, Severity] = {"dequantizes": "note", "fails": "error", "unknown": "warning"}


def _unlisted(what: str, instead: str) -> StorageMethod:
    because = f"opcheck has no entry for this {what}"
    return StorageMethod(outcome="unknown", because=because, instead=instead, evidence="", date="")


_UNLISTED = {
    "hub_kernel": _unlisted("kernel", "attn_implementation=sdpa"),
    "quantized": _unlisted("method", "weights that are not quantized"),
}
#: Kind of the problem -> what the finding begins with; before it the texts of single names.
_BEGINS = {
    "use_kernels": "use_kernels=True",
    "hub_kernel": "attention goes to the hub's kernel {}",
    "quantized": "the weights are quantized by {}",
}
_OF_KERNELS = "the model was judged as it is without it"


@audit_rule("OC127", "error")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each method."""
    for problem, method in _methods(audited.trace):
        tells = _OF_KERNELS if problem.kind == "hub_kernel" else _TELLS[method.outcome]
        begins = _BEGINS.get(problem.answered, _BEGINS[problem.kind]).format(problem.answered)
        yield finding(
            severity=_SEVERITIES[method.outcome],
            message=f"{begins}: {method.because}; {tells}",
            hint=f"instead: {method.instead}",
        )


def headline_of(trace: Trace) -> Headline | None:
    """Return the headline that the methods and kernels of a model decide; None: they decide none."""
    outcomes = {method.outcome for _, method in _methods(trace)}
    if "fails" in outcomes:
        return "fails"
    return "could not tell" if "unknown" in outcomes else None


def _methods(trace: Trace) -> Iterator[tuple[Problem, StorageMethod]]:
    known = {"hub_kernel": packages().kernels, "quantized": packages().methods}
    for problem in trace.problems:
        if problem.kind in known:
            yield problem, known[problem.kind].get(problem.answered, _UNLISTED[problem.kind])
