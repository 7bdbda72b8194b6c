"""OC104: an operator that the lists do not describe."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.judge.rules.oc122_composite_not_followed import not_followed
from opcheck.judge.rules.rule import Audited, about, audit_rule, sentences
from opcheck.model.records import CallGroup, Finding


@audit_rule("OC104", "warning")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each unknown group, except composites that were not followed."""
    for group in audited.groups:
        if group.verdict.status == "unknown" and not not_followed(group.verdict):
            yield about(group, hint=_hint(audited, group))


def _hint(audited: Audited, group: CallGroup) -> str:
    op = group.verdict.named or group.op
    if any(audited.trace.differing_library(place.location) for place in group.locations):
        return f"install torch {audited.target.torch} here and audit again"
    if group.verdict.because.startswith("an input is "):
        # That a release has a kernel for dense tensors promises nothing for its layout.
        return (
            "make its inputs dense: .to_dense(); or run it on the CPU: move its inputs with .cpu()"
        )
    if not op.startswith("aten::"):
        return "register an MPS kernel for it, or run it on the CPU: move its inputs with .cpu()"
    if _describes(audited, op, str(audited.target.torch)):
        # A run on the emulated Mac could not compute the call; the lists know the operator.
        return "try this call on a Mac; or run it on the CPU: move its inputs with .cpu()"
    has = [str(line) for line in audited.lists.versions if _describes(audited, op, str(line))]
    return sentences(
        f"torch {', '.join(has)} has it" if has else "no release in the op lists has it",
        "run it on the CPU: move its inputs with .cpu()",
    )


def _describes(audited: Audited, op: str, line: str) -> bool:
    return audited.lists.resolve(op, line).status != "unknown"
