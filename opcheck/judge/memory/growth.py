"""Find memory that grows over a program: graphs that MPSGraph compiles for each new shape, and tensors that are kept.

``MPSGraphCache`` (aten/src/ATen/native/mps/OperationUtils.h) has one entry for each key, for the life of the process:
the name of the kernel, the dtype and all sizes of each tensor, and the numbers among the arguments.  No release up to
2.15 limits it.  Kernels in Metal have no such key.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from opcheck.common.text import any_layer
from opcheck.common.versions import Target, Version
from opcheck.common.vocabulary import GrowthKind, RouteKind
from opcheck.data.kernel_routes import routes
from opcheck.data.registrations import OpLists
from opcheck.judge.texts import MEMORY
from opcheck.model.records import MemoryGrowth, OpCall, Trace

#: MPSHooks::emptyCache clears the graphs too (the wheels of 2.12.1 and 2.13.0).
_EMPTIES_GRAPHS = Version(2, 13)
#: Bytes of one entry: the least of the public reports, which go up to 850,000 (a clamp) and more for large graphs.
GRAPH_BYTES = 55_000
#: The keys of these leave the shapes out: softmax_mps_out and bmm_out_mps_impl.
SHAPELESS = frozenset({"aten::_softmax", "aten::_softmax.out", "aten::bmm", "aten::bmm.out"})
#: Operators whose keys have real numbers: clamp_scalar_out_mps, by https://github.com/pytorch/pytorch/issues/171679.
#: Others take theirs as inputs of the graph (the value of addcdiv); whole numbers (a dimension) are in each key.
REAL_NUMBERS_IN_KEY = ("aten::clamp", "aten::clip")
#: Shapes count as varying from so many distinct keys of an operator at a line and module on.
VARIES = 4
#: Distinct keys above which it does not matter whether new ones still come.
_MANY = 32
#: Keys that are kept in all.
_KEPT = 100_000


class GraphPlace(NamedTuple):
    """An operator at a line of a module."""

    op: str
    line: Hashable
    module: str


class GraphUses:
    """Counts the distinct graphs of each operator at each line and module."""

    def __init__(self) -> None:
        #: key -> how many calls there were before it came
        self._keys: dict[GraphPlace, dict[int, int]] = {}
        self._calls: dict[GraphPlace, int] = defaultdict(int)
        self._kept = 0

    def add(self, place: GraphPlace, key: Hashable) -> None:
        """Count one call whose graph has this key."""
        keys = self._keys.setdefault(place, {})
        number = hash(key)
        if number not in keys and self._kept < _KEPT:
            keys[number] = self._calls[place]
            self._kept += 1
        self._calls[place] += 1

    def lines(self, *, growing: bool) -> Iterator[tuple[Hashable, dict[str, int], int]]:
        """Yield each line with the distinct graphs of its operators, and the distinct shapes of one module.

        Args:
            growing: only operators whose shapes vary, and still did in the second half of the calls.
        """
        graphs: defaultdict[Hashable, Counter[str]] = defaultdict(Counter)
        shapes: Counter[Hashable] = Counter()
        for place, keys in self._keys.items():
            if not growing or self._is_growing(place):
                graphs[place.line][place.op] += len(keys)
                shapes[place.line] = max(shapes[place.line], len(keys))
        for line, ops in graphs.items():
            yield line, ops, shapes[line]

    def _is_growing(self, place: GraphPlace) -> bool:
        keys, half = self._keys[place], self._calls[place] / 2
        late = sum(first >= half for first in keys.values())
        return len(keys) >= VARIES and (len(keys) >= _MANY or late >= 2)


def key_of(call: OpCall) -> Hashable:
    """Return the key of a call's graph among those of the operator."""
    has_real = call.op.startswith(REAL_NUMBERS_IN_KEY)
    arguments = (
        (name, str(each)) for name, each in sorted(call.arguments.items()) if type(each) is not float or has_real
    )
    return tuple((spec.dtype, spec.shape) for spec in call.inputs), tuple(arguments)


def compiles_graph(op: str, kind: RouteKind, target: Target, lists: OpLists) -> bool:
    """Return whether a call of the operator compiles a graph, or may where the route depends on more than is known."""
    if kind != "either" or op in SHAPELESS:
        return kind == "graph" and op not in SHAPELESS
    return "graph" in routes(lists).of_operators((op,), str(target.torch)).ways


def growth_of_trace(
    trace: Trace, kinds: Sequence[RouteKind], target: Target, lists: OpLists
) -> tuple[MemoryGrowth, ...]:
    """Return for each line the graphs that a new shape of the inputs adds; those of weights alone do not count."""
    weights = {life.storage for life in trace.lifetimes if life.kind in {"parameter", "buffer"}}
    graphs: defaultdict[str, defaultdict[str, set[Hashable]]] = defaultdict(lambda: defaultdict(set))
    uses = GraphUses()
    for call, kind in zip(trace.calls, kinds, strict=True):
        depends = any(spec.storage not in weights and spec.shape for spec in call.inputs)
        if call.phase != "move" and depends and compiles_graph(call.op, kind, target, lists):
            line, key = str(call.location or any_layer(call.module)), key_of(call)
            graphs[line][call.op].add(key)
            uses.add(GraphPlace(call.op, line, call.module), key)
    # The shapes of a generation vary within its run.
    seen = {line: sum(ops.values()) for line, ops, _ in uses.lines(growing=True)}
    counts = {line: {op: len(keys) for op, keys in ops.items()} for line, ops in graphs.items()}
    return tuple(
        describe(line, ops, sum(ops.values()), seen.get(line, 0), target, lists) for line, ops in counts.items()
    )


def describe(
    line: str, operators: dict[str, int], graphs: int, seen: int, target: Target, lists: OpLists
) -> MemoryGrowth:
    """Return the record of a line whose calls compile a graph for each new shape.

    Args:
        line: where the calls are made.
        operators: how many graphs each operator has there.
        graphs: those that a new shape of the inputs adds.
        seen: those of the run, if its shapes varied; else 0.
        target: the target.
        lists: the op lists, for the routes of other releases.
    """
    names = sorted(operators, key=lambda op: -operators[op])
    release = _release_without_graphs(names, target, lists)
    grown = growth_of_results("graphs", line, "", graphs * GRAPH_BYTES, seen)
    frees = MEMORY["frees_graphs" if target.torch >= _EMPTIES_GRAPHS else "frees_buffers"]
    without = f"; torch {release} computes them without graphs" if release else ""
    return replace(grown, operators=tuple(names), graphs=graphs, cure=f"{grown.cure}; {frees}{without}")


def _release_without_graphs(operators: Iterable[str], target: Target, lists: OpLists) -> str:
    """Return the first newer release that computes none of the operators by MPSGraph."""
    table = routes(lists)
    for version in lists.versions:
        kinds = {table.of_operators((op,), str(version)).kind for op in operators}
        if version > target.torch and kinds <= {"metal", "mps", "copy", "view"}:
            return str(version)
    return ""


def growth_of_results(kind: GrowthKind, line: str, operator: str, nbytes: float, seen: int) -> MemoryGrowth:
    """Return the record of a line whose results take more memory with each step or each new size.

    Args:
        kind: ``tensors`` that outlive the steps that made them, or ``buffers`` that stay cached up to 2.13.
        line: where they are made.
        operator: what makes them.
        nbytes: bytes that each step or each size adds.
        seen: of how many steps results exist at once, or the distinct sizes.
    """
    megabytes, source, cure = round(nbytes / 1e6, 3), MEMORY[f"source_{kind}"], MEMORY[kind]
    return MemoryGrowth(
        kind=kind, operators=(operator,), line=line, graphs=0, seen=seen, megabytes=megabytes, cure=cure, source=source
    )
