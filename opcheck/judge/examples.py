"""Choose the call of a group that a report keeps, so that the smallest program for it can be written later."""

from __future__ import annotations

import math
from collections.abc import Sequence

from opcheck.model.records import Example, ExampleTensor, OpCall, TensorSpec, Verdict


def example_of(calls: Sequence[OpCall], verdict: Verdict) -> Example | None:
    """Return the call with the fewest elements, the first of several; None for calls that simply run on MPS."""
    if verdict.status == "native" and not (verdict.limitations or verdict.advisories):
        return None
    smallest = min(calls, key=lambda call: sum(math.prod(spec.shape) for spec in call.inputs))
    return Example(inputs=tuple(map(_tensor, smallest.inputs)), arguments=smallest.arguments)


def _tensor(spec: TensorSpec) -> ExampleTensor:
    return ExampleTensor(
        argument=spec.argument,
        dtype=spec.dtype,
        shape=spec.shape,
        stride=spec.stride if spec.stride and not _contiguous(spec) else None,
        layout=spec.layout,
        device=spec.device,
    )


def _contiguous(spec: TensorSpec) -> bool:
    expected = 1
    for size, stride in zip(reversed(spec.shape), reversed(spec.stride), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
