"""The captured calls as a torch.fx graph, and the records that its nodes carry.

The graph is the interchange: one ``call_function`` node a call, in the order of the run, with the OpCall record in
``node.meta["op_call"]``.  It can be run again, printed as code, or exported.
"""

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from opcheck.capture.child.recording.recorder import Numbers, RecordedCall, Ref, TraceEntry
from opcheck.common.vocabulary import Phase
from opcheck.model.records import OpCall, SourceLocation, TensorSpec
from opcheck.simulator.dispatch.calls import InnerCall
from opcheck.simulator.dispatch.routes import Route
from opcheck.simulator.dispatch.tensor_meta import TensorMeta, decode
from opcheck.tracing.source_locations import locate
from opcheck.tracing.torch_private.dispatch import OpOverload
from opcheck.tracing.torch_private.modules import root_of

Place = Callable[[TraceEntry], tuple[SourceLocation | None, str]]


_NO_NAME = re.compile(r"\W+")
_SCALARS = (bool, int, float, complex, str, type(None))


def to_graph(
    calls: Sequence[TraceEntry], names: Mapping[int, str], place: Place | None = None, numbers: Numbers | None = None
) -> fx.Graph:
    """Return the graph of the recorded calls.

    Args:
        calls: as a Recorder keeps them.
        names: a tensor's name by its number (inputs, parameters).
        place: where a call was made; a Recorder's ``place`` handles graphs that are run again.
        numbers: the identities in the records; given where others refer to them.
    """
    place = place or (lambda entry: (locate(entry.site), entry.module))
    builder = _Builder(names, place, numbers or Numbers())
    for entry in calls:
        builder.add(entry)
    builder.graph.output(None)
    return builder.graph


def op_call(call: RecordedCall) -> OpCall:
    """Return the record of one call by itself: without its place, and its tensors numbered from 1."""
    return _Builder({}, lambda _: (None, ""), Numbers()).record(call)


def op_calls(graph: fx.Graph) -> tuple[OpCall, ...]:
    """Return the records of a graph's calls, in order."""
    return tuple(node.meta["op_call"] for node in graph.nodes if "op_call" in node.meta)


def code(graph: fx.Graph) -> str:
    """Return the graph as Python code, each call behind a comment with its line and module."""
    lines = []
    for node in graph.nodes:
        call: OpCall | None = node.meta.get("op_call")
        if call is not None:
            lines.append(f"# {call.location or '?'}  {call.module}".rstrip())
        text = node.format_node()
        if text:
            lines.append(text)
    return "\n".join(lines) + "\n"


class _TensorRole(NamedTuple):
    argument: str
    written: bool
    #: an argument's metadata before the call, which ``out=`` may change
    before: TensorMeta | None


_RESULT = _TensorRole("", written=False, before=None)


class _Builder:
    def __init__(self, names: Mapping[int, str], place: Place, numbers: Numbers) -> None:
        self.graph = fx.Graph()
        self._place = place
        self._names = names
        self._nodes: dict[int, fx.Node] = {}
        self._places: dict[object, tuple[SourceLocation | None, str]] = {}
        self._last_placeholder: fx.Node = root_of(self.graph)
        self._placeholders: Counter[str] = Counter()
        self._numbers = numbers
        self._known_roles: dict[tuple[Any, ...], tuple[_TensorRole, ...]] = {}
        self._known_flops: dict[tuple[Any, ...], int] = {}
        self._inner_calls: dict[tuple[Any, ...], OpCall] = {}

    def add(self, entry: TraceEntry) -> None:
        """Add one call."""
        call = entry.call
        args, kwargs = fill_arguments(call.key, iter([self._node(ref) for ref in call.inputs]))
        node = self.graph.create_node("call_function", call.route.func, args, kwargs)
        node.meta["op_call"] = self._op_call(entry)
        if len(call.route.returns) == 1 and not call.route.returns_list:
            for output in call.outputs:
                self._nodes[output.number] = node
            return
        for index, output in enumerate(call.outputs):
            self._nodes[output.number] = self.graph.call_function(operator.getitem, (node, index))

    def _node(self, ref: Ref) -> fx.Node:
        node = self._nodes.get(ref.number)
        if node is None:
            name = self._names.get(ref.number, "")
            node = self._nodes[ref.number] = self._placeholder(ref.spec, name)
        return node

    def _placeholder(self, spec: TensorMeta, name: str) -> fx.Node:
        # torch.fx wants all placeholders in front of the calls.
        with self.graph.inserting_after(self._last_placeholder):
            readable = _NO_NAME.sub("_", name).strip("_") or "constant"
            # The target becomes the parameter's name unchanged: torch.fx makes only the node's unique.
            self._placeholders[readable] += 1
            count = self._placeholders[readable]
            node = self.graph.placeholder(readable if count == 1 else f"{readable}_{count}")
        self._last_placeholder = node
        node.meta["spec"] = repr(spec)
        node.meta["name"] = name
        return node

    def _op_call(self, entry: TraceEntry) -> OpCall:
        cached = (entry.site, entry.module)
        if cached not in self._places:
            self._places[cached] = self._place(entry)
        location, module = self._places[cached]
        return self.record(entry.call, location, module, entry.phase)

    def record(
        self, call: RecordedCall, location: SourceLocation | None = None, module: str = "", phase: Phase = "forward"
    ) -> OpCall:
        """Return the record of one call."""
        route = call.route
        arguments = _scalars(call.key, route.arguments)
        return OpCall(
            op=route.name,
            inputs=tuple(map(self._tensor_spec, call.inputs, self._roles(call))),
            outputs=tuple(map(self._tensor_spec, call.outputs)),
            arguments=arguments,
            location=location,
            module=module,
            phase=phase,
            inner=call.body.names if route.has_body else None,
            inside=tuple(map(self._inner_call, call.body.calls)),
            refusal=call.refusal,
            registrations=route.registrations,
            flops=self._flops(call),
            waits=_waits(call, arguments),
            recomputed=call.recomputed,
        )

    def _inner_call(self, call: InnerCall) -> OpCall:
        """Return the record of a call that a composite makes; its tensors are no tensors of the trace."""
        cached = self._inner_calls.get(call.key)
        if cached is None:
            roles = self._roles(call)
            cached = self._inner_calls[call.key] = OpCall(
                op=call.route.name,
                inputs=tuple(map(_spec, call.inputs, roles)),
                outputs=tuple(map(_spec, call.outputs)),
                arguments=_scalars(call.key, call.route.arguments),
            )
        return cached

    def _flops(self, call: RecordedCall) -> int:
        cached = self._known_flops.get(call.key)
        if cached is None:
            cached = self._known_flops[call.key] = flops_of(
                call.route, call.key, [output.spec for output in call.outputs]
            )
        return cached

    def _roles(self, call: RecordedCall | InnerCall) -> tuple[_TensorRole, ...]:
        """Return for each input tensor its argument, whether the call writes to it, and what it was."""
        roles = self._known_roles.get(call.key)
        if roles is None:
            written = {call.route.arguments[index] for index in call.route.writes}
            positional, named = _split(call.key)
            parts = (*zip(call.route.arguments, positional, strict=False), *named)
            roles = tuple(_TensorRole(name, name in written, spec) for name, part in parts for spec in _specs(part))
            self._known_roles[call.key] = roles
        return roles

    def _tensor_spec(self, ref: Ref, role: _TensorRole = _RESULT) -> TensorSpec:
        tensor = self._numbers.number("tensor", ref.number)
        spec = role.before or ref.spec
        return _spec(spec, role, tensor, self._numbers.number("storage", ref.storage))


def _spec(meta: TensorMeta, role: _TensorRole = _RESULT, tensor: int = 0, storage: int = 0) -> TensorSpec:
    return TensorSpec(
        tensor=tensor,
        storage=storage,
        dtype=meta.dtype_name,
        shape=meta.shape,
        stride=meta.stride,
        offset=meta.offset,
        layout=str(meta.layout).removeprefix("torch."),
        device=meta.device,
        argument=role.argument,
        written=role.written,
    )


def _specs(part: Any) -> Iterator[TensorMeta]:
    if type(part) is TensorMeta:
        yield part
    elif type(part) is tuple:
        for each in part:
            yield from _specs(each)


def _split(key: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[tuple[str, Any]]]:
    count = key[1]
    rest = key[2 + count :]
    return key[2 : 2 + count], list(zip(rest[::2], rest[1::2], strict=True))


def fill_arguments(key: tuple[Any, ...], inputs: Iterator[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the named arguments of a call, with ``inputs`` for its tensors."""
    positional, named = _split(key)
    args = tuple(_fill(decode(part), inputs) for part in positional)
    return args, {name: _fill(decode(part), inputs) for name, part in named}


def _fill(value: Any, inputs: Iterator[Any]) -> Any:
    kind = type(value)
    if kind is TensorMeta:
        return next(inputs)
    if kind is list:
        return [_fill(item, inputs) for item in value]
    if kind is tuple:
        return tuple(_fill(item, inputs) for item in value)
    # torch.fx has no base type for a generator: the graph draws from the default generator.
    return None if kind is torch.Generator else value


def _waits(call: RecordedCall, arguments: Mapping[str, Any]) -> bool:
    """Return whether the CPU waits for values of tensors on the GPU."""
    route = call.route
    if not route.operator.takes_masks:
        # repeat_interleave does not add the repeats up where the caller has (native/Repeat.cpp).
        reads = route.reads_data or route.reads_shape or route.operator.unbacked is not None
        return reads and arguments.get("output_size") is None
    indices = list(call.inputs[1:])
    if "values" in route.arguments:
        values = indices.pop().spec
        # native/TensorAdvancedIndexingUtils.h, canDispatchToMaskedFill: filling needs no positions.
        if values.device == "cpu" and math.prod(values.shape) == 1:
            return False
    # expandTensors there: the positions that a mask selects; integers are positions.
    return any(index.spec.device == "mps" and index.spec.dtype in _MASKS for index in indices)


#: dtypes of indices that select by their values.
_MASKS = frozenset({torch.bool, torch.uint8})


def _scalars(key: tuple[Any, ...], names: tuple[str, ...]) -> dict[str, Any]:
    positional, named = _split(key)
    result: dict[str, Any] = {}
    for name, part in (*zip(names, positional, strict=False), *named):
        if type(part) is TensorMeta:
            continue
        value = decode(part)
        if type(value) in _SCALARS:
            result[name] = _spell(value)
        elif type(value) in (list, tuple):
            if all(type(item) in _SCALARS for item in value):
                result[name] = tuple(map(_spell, value))
        elif isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            result[name] = str(value).removeprefix("torch.")
    return result


def _spell(value: Any) -> Any:
    """Return a word for a value that JSON has no number for: an infinity, NaN (model.ENDLESS), a complex number."""
    is_number = not isinstance(value, complex) and (not isinstance(value, float) or math.isfinite(value))
    return value if is_number else str(value)


# -- floating-point operations ---------------------------------------------------------------------------------------


Shape = tuple[int, ...]


def flops_of(route: Route, key: tuple[Any, ...], outputs: list[TensorMeta]) -> int:
    """Return the floating-point operations of a call by its route, its key and its results; 0: no formula."""
    positional, named = _split(key)
    args = [decode(part) for part in positional]
    kwargs = {name: decode(part) for name, part in named}
    several = len(outputs) != 1 or route.returns_list
    return flops(route.func, args, kwargs, outputs if several else outputs[0])


def flops(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], outputs: Any) -> int:
    """Return the floating-point operations of a call; 0 if no formula counts it.

    Args:
        func: the overload.
        args: its positional arguments, a ``TensorMeta`` for each tensor.
        kwargs: its other arguments.
        outputs: the metadata of the result, or a list of several; unwanted results are not in it.
    """
    packet = getattr(func, "overloadpacket", None)
    own = _OWN.get(str(packet))
    formula = own or flop_registry.get(packet)
    # A formula that was registered with get_raw=True reads values; those are kernels of CUDA.
    if formula is None or not (own or hasattr(formula, "__wrapped__")):
        return 0
    source = [_shapes(value) for value in args]
    named = {name: _shapes(value) for name, value in kwargs.items()}
    try:
        results = _by_mask(_shapes(outputs), source)
        return int(own(*source) if own else formula(*source, **named, out_val=results))
    except Exception:  # noqa: BLE001  (a formula of PyTorch's, or of the program's)
        return 0


def _shapes(value: Any) -> Any:
    """Replace each tensor's metadata in a value by its shape."""
    if type(value) is TensorMeta:
        return value.shape
    return type(value)(map(_shapes, value)) if type(value) in (list, tuple) else value


def _by_mask(results: Any, source: Sequence[Any]) -> Any:
    """Put None for each result that the last argument, an ``output_mask``, does not want."""
    mask = source[-1] if source else None
    if not isinstance(mask, (list, tuple)) or {*map(type, mask)} != {bool}:
        return results
    wanted = iter(results if type(results) is list else [results])
    return [next(wanted) if wants else None for wants in mask]


def _linear(source: Shape, weight: Shape, *_rest: Any) -> int:
    return 2 * math.prod(source) * math.prod(weight[:-1])


def _linear_backward(source: Shape, _gradient: Shape, weight: Shape, wanted: Sequence[bool], *_rest: Any) -> int:
    # A product for the gradient of the input, another for the weight; the bias takes a sum.
    return _linear(source, weight) * sum(wanted[:2])


def _attention(query: Shape, key: Shape, value: Shape, *_rest: Any) -> int:
    # As sdpa_flop_count, which takes four dimensions alone.
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _count_grouped(source: Shape, weight: Shape, *_rest: Any) -> int:
    return 2 * math.prod(source) * weight[-1]


def _lstm(source: Shape, _state: Any, parameters: Sequence[Shape], *_rest: Any) -> int:
    return 2 * math.prod(source[:-1]) * sum(math.prod(shape) for shape in parameters if shape[1:])


def _lstm_backward(*args: Any) -> int:
    source, parameters = args[5], args[8]
    return 2 * _lstm(source, None, parameters)


_OWN: dict[str, Callable[..., int]] = {
    "aten.linear": _linear,
    "aten.linear_backward": _linear_backward,
    "aten._scaled_dot_product_attention_math_for_mps": _attention,
    "aten._grouped_mm": _count_grouped,
    "aten._lstm_mps": _lstm,
    "aten.lstm_mps_backward": _lstm_backward,
}
