"""Group the calls of a run, split it into regions on the GPU and on the CPU, count the copies and work of each side."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from opcheck.common import vocabulary as words
from opcheck.common.grouping import group_values
from opcheck.common.text import any_layer
from opcheck.common.versions import Target
from opcheck.data.kernel_routes import routes
from opcheck.data.registrations import OpLists
from opcheck.judge.judge import judge_all, outcome
from opcheck.model import records
from opcheck.model.records import CallGroup, GroupLocation, OpCall, Partition, TensorSpec, Verdict

if TYPE_CHECKING:
    import networkx as nx


class RoutedCall(NamedTuple):
    """A call with its verdict and its route."""

    call: OpCall
    verdict: Verdict
    route: words.RouteKind

    @property
    def side(self) -> words.Side:
        """Where the call runs."""
        return outcome(self.verdict).side


def route_calls(
    calls: Sequence[OpCall], verdicts: Iterable[Verdict], target: Target, lists: OpLists
) -> list[RoutedCall]:
    """Return the calls with their verdicts and what computes each.

    Raises:
        OpListError: the lists have no such torch release, or are damaged.
    """
    pairs = zip(calls, verdicts, strict=True)
    return [RoutedCall(call, verdict, route_of(call, verdict, target, lists)) for call, verdict in pairs]


def routes_of(calls: Sequence[OpCall], target: Target, lists: OpLists) -> list[words.RouteKind]:
    """Judge the calls, and return what computes each.

    Raises:
        OpListError: the lists have no such torch release, or are damaged.
    """
    return [each.route for each in route_calls(calls, judge_all(calls, target, lists), target, lists)]


def partition(routed: Sequence[RoutedCall]) -> tuple[Partition, nx.DiGraph[int]]:
    """Return the regions of the run with their transfers, and the graph of the calls that they come from.

    The nodes of the graph are indices into ``routed``; each has its ``side`` and its ``region``.
    """
    sides = [each.side for each in routed]
    graph = dataflow([each.call for each in routed], sides)
    nothing: tuple[list[TensorSpec], list[TensorSpec]] = ([], [])
    moves = [copies(each.call) if each.side == "cpu" else nothing for each in routed]

    def region(nodes: Sequence[int]) -> records.Region:
        first, last = nodes[0], nodes[-1]
        ins, outs = (sum(nbytes(moves[node][way]) for node in nodes) for way in (0, 1))
        return records.Region(side=sides[first], calls=len(nodes), first=first, last=last, bytes_in=ins, bytes_out=outs)

    regions = tuple(map(region, _regions(graph, sides)))
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
            (depth[source] + (sides[source] != sides[node]) for source in graph.predecessors(node)), default=0
        )
    same: nx.Graph[int] = nx.Graph()
    same.add_nodes_from(graph)
    same.add_edges_from((a, b) for a, b in graph.edges if sides[a] == sides[b] and depth[a] == depth[b])
    members = sorted(sorted(component) for component in nx.connected_components(same))
    for number, nodes in enumerate(members):
        for node in nodes:
            graph.nodes[node]["region"] = number
    return members


def copies(call: OpCall) -> tuple[list[TensorSpec], list[TensorSpec]]:
    """Return what ``at::native::cpu_fallback`` copies around a call: what goes to the CPU, and what comes back.

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


# -- Choose what a report keeps of the calls: the graph that the HTML page draws, the groups, an example of each --


def graph_calls(
    routed: Sequence[RoutedCall], groups: Sequence[CallGroup], graph: nx.DiGraph[int]
) -> Iterator[records.GraphCall]:
    """Yield a record for each call, in their order."""
    numbers = {(group.op, group.verdict): number for number, group in enumerate(groups)}
    places = [
        {replace(place, module=any_layer(place.module), count=0): at for at, place in enumerate(group.locations)}
        for group in groups
    ]
    for node, (call, verdict, _) in enumerate(routed):
        group, module = numbers[call.op, verdict], any_layer(call.module)
        place = GroupLocation.at(call.location, module=module, phase=call.phase, count=0)
        to_cpu, to_mps = copies(call) if graph.nodes[node]["side"] == "cpu" else ([], [])
        yield records.GraphCall(
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


def group_calls(routed: Sequence[RoutedCall]) -> tuple[CallGroup, ...]:
    """Group the calls by overload and verdict; the worst group comes first, then the order is by name."""
    members = group_values(((each.call.op, each.verdict), each) for each in routed)
    groups = [_group(*key, alike) for key, alike in members.items()]
    return tuple(sorted(groups, key=lambda group: (-outcome(group.verdict).severity, group.op)))


def _group(op: str, verdict: Verdict, routed: Sequence[RoutedCall]) -> CallGroup:
    calls = [each.call for each in routed]
    return CallGroup.judged(
        op,
        verdict,
        count=len(calls),
        locations=tuple(list_places((call.location, call.module, call.phase, 1) for call in calls)),
        dtypes=tuple(sorted({spec.dtype for call in calls for spec in (*call.inputs, *call.outputs)})),
        phases=tuple(sorted({call.phase for call in calls}, key=words.PHASES.index)),
        example=example_of(calls, verdict),
        route=common_route({each.route for each in routed}),
    )


def list_places(
    calls: Iterable[tuple[records.SourceLocation | None, str, words.Phase, int]],
) -> Iterator[GroupLocation]:
    """Yield the lines in the order of first use; layers of a model that share a line are one entry.

    Args:
        calls: the line, the module and the phase of some calls, and how many they are.
    """
    modules: defaultdict[tuple[records.SourceLocation | None, str, words.Phase], Counter[str]] = defaultdict(Counter)
    for location, module, phase, count in calls:
        modules[location, any_layer(module), phase][module] += count
    for (location, pattern, phase), names in modules.items():
        module = next(iter(names)) if len(names) == 1 else pattern
        yield GroupLocation.at(location, module=module, phase=phase, count=names.total())


def example_of(calls: Sequence[OpCall], verdict: Verdict) -> records.Example | None:
    """Return the call with the fewest elements, the first of several; None for calls that simply run on MPS."""
    if verdict.status == "native" and not (verdict.limitations or verdict.advisories):
        return None
    smallest = min(calls, key=lambda call: sum(math.prod(spec.shape) for spec in call.inputs))
    return records.Example(inputs=tuple(map(_tensor, smallest.inputs)), arguments=smallest.arguments)


def _tensor(spec: TensorSpec) -> records.ExampleTensor:
    contiguous = records.contiguous_stride(spec.shape)
    # The stride of a dimension of size 1 does not matter.
    steps = zip(spec.shape, spec.stride or contiguous, contiguous, strict=True)
    differs = any(size != 1 and step != usual for size, step, usual in steps)
    example = msgspec.convert(spec, records.ExampleTensor, from_attributes=True)
    return replace(example, stride=spec.stride if differs else None)


# -- Count how much of a run each side does, and find the calls where the CPU waits for the GPU --


def work(routed: Sequence[RoutedCall]) -> Iterator[records.SideWork]:
    """Yield what the calls of each side do, for each side that has any."""
    for side in get_args(words.Side):
        if members := [each.call for each in routed if each.side == side]:
            flops = sum(call.flops for call in members)
            # A view of its input touches no byte.
            total = sum(nbytes((*call.inputs, *call.outputs)) for call in members if not is_view(call))
            yield records.SideWork(side=side, calls=len(members), flops=flops, nbytes=total)


def route_of(call: OpCall, verdict: Verdict, target: Target, lists: OpLists) -> words.RouteKind:
    """Return what computes a call.

    Raises:
        OpListError: the lists have no such torch release, or are damaged.
    """
    side = outcome(verdict).side
    if side != "mps":
        return "cpu" if side == "cpu" else "unknown"
    return "view" if is_view(call) else routes(lists).of_call(call, target)


def common_route(kinds: Collection[words.RouteKind]) -> words.RouteKind:
    """Return the route of all calls of a group; those that make views do not count."""
    counted = set(kinds) - {"view"} or set(kinds)
    return next(iter(counted)) if len(counted) == 1 else "either"


def sum_by_route(rows: Iterable[tuple[words.RouteKind, int, int]]) -> tuple[records.RouteWork, ...]:
    """Return the work by route, from pairs of a route with a number of calls and of FLOPs."""
    calls, flops = Counter[words.RouteKind](), Counter[words.RouteKind]()
    for route, number, amount in rows:
        calls[route] += number
        flops[route] += amount
    kinds = [kind for kind in words.ROUTES if calls[kind]]
    return tuple(records.RouteWork(route=kind, calls=calls[kind], flops=flops[kind]) for kind in kinds)


def is_view(call: OpCall) -> bool:
    """Return whether the results are views of the inputs, and no kernel runs."""
    inputs = {spec.storage for spec in call.inputs}
    views = bool(call.outputs) and all(spec.storage in inputs for spec in call.outputs)
    return views and not any(spec.written for spec in call.inputs)


def synchronizations(routed: Sequence[RoutedCall]) -> Iterator[records.Synchronization]:
    """Yield the lines where the CPU waits for the GPU, in the order of the run.

    A CPU fallback waits as well; the transfers of the partition count those.
    """
    places: Counter[tuple[str, str, records.SourceLocation | None, str, words.Phase]] = Counter()
    for each in routed:
        call = each.call
        if each.side == "mps" and call.phase != "move" and (why := reason_to_wait(call)):
            places[call.op, why, call.location, any_layer(call.module), call.phase] += 1
    for (op, why, location, module, phase), count in places.items():
        place = GroupLocation.at(location, module=module, phase=phase, count=count)
        yield records.Synchronization(op=op, why=why, place=place)


def reason_to_wait(call: OpCall) -> str:
    """Return what the CPU waits for; empty if it does not."""
    if not any(spec.device == "mps" for spec in call.inputs):
        return ""
    if call.waits:
        return "a shape" if any(spec.device == "mps" for spec in call.outputs) else "a value"
    written = [spec for spec in call.inputs if spec.written]
    copied = any(spec.device == "cpu" for spec in (*call.outputs, *written))
    return "a copy to the CPU" if copied and not _is_only_queued(call) else ""


def _is_only_queued(call: OpCall) -> bool:
    """Return whether the copy is queued, and the CPU continues: native/mps/operations/Copy.mm, copy_from_mps_.

    Not every release queues a copy that changes the dtype.
    """
    dtypes = {spec.dtype for spec in (*call.inputs, *call.outputs)}
    return call.arguments.get("non_blocking") is True and len(dtypes) == 1
