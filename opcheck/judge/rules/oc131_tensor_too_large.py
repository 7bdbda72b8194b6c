"""OC131: a tensor beyond what MPSGraph can describe, in a call that no statement of the op lists covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from opcheck.common.text import and_more, any_layer
from opcheck.common.versions import Span, Target, Version
from opcheck.judge.memory.allocations import never_written
from opcheck.judge.rules.rule import Audited, audit_rule, finding
from opcheck.judge.work import is_view, route_of
from opcheck.model.records import Finding, GroupLocation, OpCall, TensorSpec

#: What comes of the limit by the route of a call; the other routes describe no tensor to Apple's libraries.
_EFFECTS = {
    "graph": "MPSGraph computes the call, and fails",
    "mps": "an MPS kernel computes the call, and fails",
    "either": "where the kernel goes through MPSGraph, it fails",
    "unknown": "where the kernel goes through MPSGraph, it fails",
}
#: Operators that a finding names.
_OPERATORS = 3


class _Limit(NamedTuple):
    """What an MPSNDArray cannot be, and what then ends the program, by release."""

    name: str
    passes: Callable[[TensorSpec], bool]
    prints: tuple[tuple[Span, str], ...]

    def is_passed_by(self, spec: TensorSpec) -> bool:
        """Return whether a tensor is beyond the limit."""
        return spec.device == "mps" and bool(spec.shape) and self.passes(spec)


_LIMITS = (
    _Limit(
        "a dimension above 2**31 - 1",
        lambda spec: max(spec.shape) > 2**31 - 1,
        # OperationUtils.mm: the texts of the wheels of 2.9 to 2.15.
        (
            (
                Span(since=Version(2, 13)),
                "MPSGraph does not support tensor dims larger than INT_MAX",
            ),
            (
                Span(since=Version(2, 9), until=Version(2, 13)),
                "MPSGaph does not support tensor dims larger than INT_MAX",
            ),
            (Span(until=Version(2, 9)), "Error: NDArray dimension length > INT_MAX"),
        ),
    ),
    _Limit(
        "more than 2**32 bytes",
        lambda spec: spec.nbytes > 2**32,
        ((Span(), "Error: total bytes of NDArray > 2**32"),),
    ),
)


@audit_rule("OC131", "warning")
def check(audited: Audited) -> Iterator[Finding]:
    """Yield one finding for all calls that take or make a tensor beyond a limit."""
    unwritten = never_written(audited.trace, audited.target)
    beyond: dict[tuple[_Limit, str], list[tuple[OpCall, TensorSpec]]] = {}
    for call, verdict in zip(audited.trace.calls, audited.verdicts, strict=True):
        if verdict.status != "native" or verdict.limitations or is_view(call):
            continue
        specs = [each for each in (*call.inputs, *call.outputs) if each.storage not in unwritten]
        largest = max(specs, key=lambda spec: spec.nbytes, default=None)
        limit = next((limit for limit in _LIMITS if any(map(limit.is_passed_by, specs))), None)
        if limit is None or largest is None:
            continue
        effect = _EFFECTS.get(route_of(call, verdict, audited.target, audited.lists))
        if effect:
            beyond.setdefault((limit, effect), []).append((call, largest))
    for (limit, effect), calls in beyond.items():
        yield _finding(audited.target, limit, effect, calls)


def _finding(
    target: Target, limit: _Limit, effect: str, calls: list[tuple[OpCall, TensorSpec]]
) -> Finding:
    ops = sorted({call.op for call, _ in calls})
    largest = max((spec for _, spec in calls), key=lambda spec: spec.nbytes)
    places = Counter((call.location, any_layer(call.module), call.phase) for call, _ in calls)
    return finding(
        message=f"{and_more(ops, _OPERATORS)}: {largest} has {limit.name}; {effect}",
        hint="split the tensor: a smaller batch, chunks along its largest dimension",
        op=ops[0] if len(ops) == 1 else "",
        prints=next(text for span, text in limit.prints if target.torch in span),
        locations=tuple(
            GroupLocation.at(location, module=module, count=count, phase=phase)
            for (location, module, phase), count in places.items()
        ),
        count=len(calls),
    )
