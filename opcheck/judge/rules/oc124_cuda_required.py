"""OC124: the program needs CUDA, a package built on CUDA or a later torch, which the Mac does not have."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.data import messages
from opcheck.data.packages import packages
from opcheck.judge.rules.oc120_capture_incomplete import problem_places
from opcheck.judge.rules.rule import Audited, audit_rule, finding
from opcheck.model.records import Finding


@audit_rule("OC124", "error")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for the exception that ended the program; a Mac raises the same."""
    for problem in audited.trace.problems:
        if problem.kind in {"needs_cuda", "needs_newer_torch", "needs_package"}:
            yield finding(
                message=problem.message,
                hint=_hint(problem.kind, problem.message, problem.answered),
                prints=problem.answered if problem.kind == "needs_cuda" else "",
                locations=problem_places(problem),
            )


def _hint(kind: str, message: str, answered: str) -> str:
    if kind == "needs_cuda":
        return messages.remedy_for("without_cuda", message)
    if kind == "needs_newer_torch":
        otherwise = "leave it out" if "=)" in answered else "ask hasattr() for it first"
        return f"use a release that has {answered}, or {otherwise}"
    package = packages().by_name.get(answered)
    return f"instead: {package.instead}" if package else "leave the import out on a Mac"
