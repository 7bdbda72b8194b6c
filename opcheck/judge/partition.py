"""Split a run into regions on the GPU and on the CPU, and count the copies between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from opcheck.judge.judge import outcome
from opcheck.model.records import OpCall, Partition, Region, TensorSpec, Verdict

if TYPE_CHECKING:
    import networkx as nx


def partition(
    calls: Sequence[OpCall], verdicts: Sequence[Verdict]
) -> tuple[Partition, nx.DiGraph[int]]:
    """Return the regions of the run with their transfers, and the graph of the calls that they come from.

    The nodes of the graph are indices into ``calls``; each has its ``side`` and its ``region``.
    """
    sides = [outcome(verdict).side for verdict in verdicts]
    graph = dataflow(calls, sides)
    nothing: tuple[list[TensorSpec], list[TensorSpec]] = ([], [])
    pairs = zip(calls, sides, strict=True)
    moves = [copies(call) if side == "cpu" else nothing for call, side in pairs]
    regions = tuple(
        Region(
            side=sides[nodes[0]],
            calls=len(nodes),
            first=nodes[0],
            last=nodes[-1],
            bytes_in=sum(nbytes(moves[node][0]) for node in nodes),
            bytes_out=sum(nbytes(moves[node][1]) for node in nodes),
        )
        for nodes in _regions(graph, sides)
    )
    return Partition(
        regions=regions,
        transfers_to_cpu=sum(len(to_cpu) for to_cpu, _ in moves),
        transfers_to_mps=sum(len(to_mps) for _, to_mps in moves),
        bytes_to_cpu=sum(region.bytes_in for region in regions),
        bytes_to_mps=sum(region.bytes_out for region in regions),
    ), graph


def dataflow(calls: Sequence[OpCall], sides: Sequence[str]) -> nx.DiGraph[int]:
    """Return the calls as nodes, with an edge from the call that made or last wrote a tensor to each reader.

    Memory has one producer at a time: a write in place makes the writer the producer of all its
    views.  A view depends on the call that made the view as well.
    """
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph()
    made: dict[int, int] = {}
    wrote: dict[int, int] = {}
    for node, (call, side) in enumerate(zip(calls, sides, strict=True)):
        graph.add_node(node, side=side)
        for spec in call.inputs:
            sources = {made.get(spec.tensor), wrote.get(spec.storage)} - {None, node}
            graph.add_edges_from((source, node) for source in sources if source is not None)
        read = {spec.storage for spec in call.inputs}
        for spec in _list_written(call):
            wrote[spec.storage] = node
        for spec in call.outputs:
            made[spec.tensor] = node
            if spec.storage not in read:
                wrote[spec.storage] = node
    return graph


def _list_written(call: OpCall) -> list[TensorSpec]:
    """Return the inputs that the call writes: the marked inputs or, if none is marked, those that it returns."""
    marked = [spec for spec in call.inputs if spec.written]
    if marked:
        return marked
    returned = {spec.tensor for spec in call.outputs}
    return list({spec.tensor: spec for spec in call.inputs if spec.tensor in returned}.values())


def _regions(graph: nx.DiGraph[int], sides: Sequence[str]) -> list[list[int]]:
    """Return the calls of each region, in the order of their first calls, and mark the regions in the graph.

    A call's depth is the number of boundaries on the way to it.  Joining only calls of one side
    and one depth leaves every edge between regions going to a greater depth: no cycles.
    """
    import networkx as nx

    depth: dict[int, int] = {}
    # The calls are numbered in the order of the run, so a producer comes before its readers.
    for node in range(len(graph)):
        depth[node] = max(
            (depth[source] + (sides[source] != sides[node]) for source in graph.predecessors(node)),
            default=0,
        )
    same: nx.Graph[int] = nx.Graph()
    same.add_nodes_from(graph)
    same.add_edges_from(
        (a, b) for a, b in graph.edges if sides[a] == sides[b] and depth[a] == depth[b]
    )
    members = sorted(sorted(component) for component in nx.connected_components(same))
    for number, nodes in enumerate(members):
        for node in nodes:
            graph.nodes[node]["region"] = number
    return members


def copies(call: OpCall) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Return what ``at::native::cpu_fallback`` copies for one call: to the CPU, and back.

    It copies every argument, even if the call before has just copied it back, then every
    argument that was written, then every other result.
    """
    arguments = [spec for spec in call.inputs if spec.device == "mps"]
    after = {spec.tensor: spec for spec in call.outputs}
    written = [after.get(spec.tensor, spec) for spec in _list_written(call) if spec.device == "mps"]
    known = {spec.tensor for spec in written}
    results = [spec for spec in call.outputs if spec.device == "mps" and spec.tensor not in known]
    return arguments, written + results


def nbytes(specs: Iterable[TensorSpec]) -> int:
    """Return the sum of the sizes of several tensors, in bytes."""
    return sum(spec.nbytes for spec in specs)
