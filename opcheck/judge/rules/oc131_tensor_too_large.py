"""OC131: a tensor beyond what MPSGraph can describe, in a call that no statement of the op lists covers."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.common.versions import Span, Version
from opcheck.judge.rules.rule import Audited, AuditRule
from opcheck.model.records import Finding, GroupLocation, OpCall, TensorSpec

_MOST_OF_A_DIMENSION = 2**31 - 1
_MOST_BYTES = 2**32

#: OperationUtils.mm: the texts of the wheels of 2.9 to 2.15.
_DIMENSION = (
    (
        Span(since=Version(2, 13)),
        "MPSGraph does not support tensor dims larger than INT_MAX",
    ),
    (
        Span(since=Version(2, 9), until=Version(2, 13)),
        "MPSGaph does not support tensor dims larger than INT_MAX",
    ),
    (
        Span(until=Version(2, 9)),
        "Error: NDArray dimension length > INT_MAX",
    ),
)
_BYTES = "Error: total bytes of NDArray > 2**32"


def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for each operator that takes or makes such a tensor."""
    calls_by_op: dict[str, list[tuple[OpCall, TensorSpec]]] = {}
    for call, verdict in zip(audited.trace.calls, audited.verdicts, strict=True):
        if verdict.status == "native" and not verdict.limitations:
            large = [spec for spec in (*call.inputs, *call.outputs) if _too_large(spec)]
            if large:
                calls_by_op.setdefault(call.op, []).append((call, large[0]))
    for op, calls in sorted(calls_by_op.items()):
        yield _finding(audited, op, calls)


def _too_large(spec: TensorSpec) -> bool:
    if spec.device != "mps" or not spec.shape:
        return False
    return max(spec.shape) > _MOST_OF_A_DIMENSION or spec.nbytes > _MOST_BYTES


def _finding(audited: Audited, op: str, calls: list[tuple[OpCall, TensorSpec]]) -> Finding:
    _, spec = calls[0]
    if max(spec.shape) > _MOST_OF_A_DIMENSION:
        limit = "a dimension above 2**31 - 1"
        prints = next(text for span, text in _DIMENSION if audited.target.torch in span)
    else:
        limit, prints = "more than 2**32 bytes", _BYTES
    places = dict.fromkeys((call.location, call.module, call.phase) for call, _ in calls)
    return Finding(
        rule="OC131",
        severity="warning",
        message=f"{op}: {spec} has {limit}; if this kernel goes through MPSGraph, it fails",
        hint="split the tensor: a smaller batch, chunks along its largest dimension",
        op=op,
        prints=prints,
        locations=tuple(
            GroupLocation.at(location, module=module, count=1, phase=phase)
            for location, module, phase in places
        ),
        count=len(calls),
    )


RULE = AuditRule(
    id="OC131",
    severity="warning",
    check=check,
)
