"""OC127: the weights are quantized by a method that a Mac lacks, or whose layers opcheck does not follow."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.common.vocabulary import Headline, Severity
from opcheck.data.packages import Method, packages
from opcheck.judge.rules.rule import Audited, AuditRule
from opcheck.model.records import Finding, Trace

#: What the judged run, in which the layers are dense, tells of a Mac.
_TELLS: dict[str, str] = {
    "dequantizes": "the layers were judged as a Mac has them",
    "fails": "the layers were judged as if they were dense, which the published weights do not run as",
    "unknown": "the layers were judged as if they were dense; what the method calls instead was not",
}
_SEVERITIES: dict[str, Severity] = {"dequantizes": "note", "fails": "error", "unknown": "warning"}

_UNLISTED = Method(
    outcome="unknown",
    because="opcheck has no entry for this method",
    instead="weights that are not quantized",
    evidence="",
    date="",
)


def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each method."""
    for name, method in _methods(audited.trace):
        yield Finding(
            rule="OC127",
            severity=_SEVERITIES[method.outcome],
            message=f"the weights are quantized by {name}: {method.because}; {_TELLS[method.outcome]}",
            hint=f"instead: {method.instead}",
        )


def headline_of(trace: Trace) -> Headline | None:
    """Return the headline that the quantization of a model decides; None: it decides none."""
    outcomes = {method.outcome for _, method in _methods(trace)}
    if "fails" in outcomes:
        return "fails"
    return "could not tell" if "unknown" in outcomes else None


def _methods(trace: Trace) -> Iterator[tuple[str, Method]]:
    known = packages().methods
    for problem in trace.problems:
        if problem.kind == "quantized":
            yield problem.answered, known.get(problem.answered, _UNLISTED)


RULE = AuditRule(
    id="OC127",
    severity="error",
    check=check,
)
