"""The call that a report keeps of a group, so that the smallest program for it can be written later."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from opcheck.model.records import OpCall, TensorSpec, Verdict


def example_of(calls: Sequence[OpCall], verdict: Verdict) -> OpCall | None:
    """The call with the fewest elements, the first of several; None of calls that simply run on MPS."""
    if verdict.status == "native" and not (verdict.limitations or verdict.advisories):
        return None
    smallest = min(calls, key=lambda call: sum(math.prod(one.shape) for one in call.inputs))
    return msgspec.structs.replace(smallest, location=None, module="", outputs=(), inner=None)


def example_content(call: OpCall) -> dict[str, object]:
    """The call as plain data: what its operator is given."""
    return {
        "inputs": [
            {
                "argument": spec.argument,
                "dtype": spec.dtype,
                "shape": list(spec.shape),
                "stride": list(spec.stride) if spec.stride and not _contiguous(spec) else None,
                "layout": spec.layout,
                "device": spec.device,
            }
            for spec in call.inputs
        ],
        "arguments": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in call.arguments.items()
        },
    }


def _contiguous(spec: TensorSpec) -> bool:
    expected = 1
    for size, stride in zip(reversed(spec.shape), reversed(spec.stride), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
