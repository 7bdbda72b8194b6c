"""Choose what a report keeps of single calls: the graph that the HTML page draws, and the example of each group."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from opcheck.common.text import any_layer
from opcheck.judge.partition import copies, nbytes
from opcheck.model.records import (
    CallGroup,
    Example,
    ExampleTensor,
    GraphCall,
    GroupLocation,
    OpCall,
    TensorSpec,
    Verdict,
)

if TYPE_CHECKING:
    import networkx as nx


def graph_calls(
    calls: Sequence[OpCall],
    verdicts: Sequence[Verdict],
    groups: Sequence[CallGroup],
    graph: nx.DiGraph[int],
) -> Iterator[GraphCall]:
    """Yield a record for each call, in their order."""
    numbers = {(group.op, group.verdict): number for number, group in enumerate(groups)}
    places = [
        {
            msgspec.structs.replace(place, module=any_layer(place.module), count=0): number
            for number, place in enumerate(group.locations)
        }
        for group in groups
    ]
    for node, (call, verdict) in enumerate(zip(calls, verdicts, strict=True)):
        group, module = numbers[call.op, verdict], any_layer(call.module)
        place = GroupLocation.at(call.location, module=module, phase=call.phase, count=0)
        to_cpu, to_mps = copies(call) if graph.nodes[node]["side"] == "cpu" else ([], [])
        yield GraphCall(
            group=group,
            place=places[group][place],
            module=call.module,
            region=graph.nodes[node]["region"],
            sources=tuple(sorted(graph.predecessors(node))),
            inputs=tuple(map(str, call.inputs)),
            outputs=tuple(map(str, call.outputs)),
            to_cpu=len(to_cpu),
            to_mps=len(to_mps),
            bytes_to_cpu=nbytes(to_cpu),
            bytes_to_mps=nbytes(to_mps),
        )


def example_of(calls: Sequence[OpCall], verdict: Verdict) -> Example | None:
    """Return the call with the fewest elements, the first of several; None for calls that simply run on MPS."""
    if verdict.status == "native" and not (verdict.limitations or verdict.advisories):
        return None
    smallest = min(calls, key=lambda call: sum(math.prod(spec.shape) for spec in call.inputs))
    return Example(inputs=tuple(map(_tensor, smallest.inputs)), arguments=smallest.arguments)


def _tensor(spec: TensorSpec) -> ExampleTensor:
    stride = spec.stride if spec.stride and not _contiguous(spec) else None
    example = msgspec.convert(spec, ExampleTensor, from_attributes=True)
    return msgspec.structs.replace(example, stride=stride)


def _contiguous(spec: TensorSpec) -> bool:
    expected = 1
    for size, stride in zip(reversed(spec.shape), reversed(spec.stride), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
