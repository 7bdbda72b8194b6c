"""Define a leaf call, and the sinks that record calls."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from opcheck.data.tables import refused_by
from opcheck.simulator.dispatch.routes import Route, name_arguments, wrap_numbers
from opcheck.simulator.dispatch.tensor import MPSTensor, is_on_mps
from opcheck.simulator.dispatch.tensor_meta import META, TensorMeta, spec_of
from opcheck.simulator.errors import DataDependentError, NotSimulatedError
from opcheck.simulator.target_reads import TargetQueries

#: a shape is read off a run on zeros where torch has no meta kernel and the tensors are no larger
#: than this.
_ZEROS_ELEMENTS = 4_194_304


class ShapedResult(NamedTuple):
    """Metadata of the results and of the arguments that the call changed."""

    #: a TensorMeta, a list of Specs or a plain value for each return of the schema
    specs: tuple[Any, ...]
    #: for each written argument, the TensorMeta that each of its tensors has afterwards (None:
    #: unchanged)
    written: tuple[tuple[TensorMeta | None, ...], ...]
    #: elements of the largest result
    elements: int


def result_of(route: Route, args: Any, kwargs: Any, ask: TargetQueries) -> ShapedResult:
    """Return the metadata of this call's results.

    Raises:
        NotSimulatedError: torch has no meta kernel, there is no rule here, and no CPU kernel to try.
        DataDependentError: the shape depends on values.
    """
    rule = route.operator.metadata
    if rule is not None:
        arguments = _convert(name_arguments(route, args, kwargs), lambda tensor: tensor._mps.spec, spec_of)
        specs = rule(arguments, ask)
        return ShapedResult(specs, _list_unchanged(route, args, kwargs), _largest(specs))
    if any(_is_sparse(tensor) for tensor in flat_tensors((args, list(kwargs.values())))):
        # torch has meta kernels for hardly any operator on sparse tensors.
        return _run_without_meta(route, args, kwargs)
    try:
        return _run(route, args, kwargs)
    except NotImplementedError:
        if route.reads_shape:
            message = (
                f"{route.name} makes a tensor whose shape depends on values, and these are not known in a run on shapes"
            )
            raise DataDependentError(message) from None
        return _run_without_meta(route, args, kwargs)
    except RuntimeError as error:
        # What torch.library.custom_op registers for Meta until it has a rule
        # (torch/_library/custom_ops.py).
        if "There was no fake impl registered" not in str(error):
            raise
        return _run_without_meta(route, args, kwargs)


def _run(route: Route, args: Any, kwargs: Any) -> ShapedResult:
    def convert(tensor: MPSTensor) -> torch.Tensor:
        return tensor._mps.spec.fresh_meta() if route.reshapes else tensor._mps.spec.meta()

    meta_args = wrap_numbers(route, _convert(args, convert, _as_meta))
    meta_kwargs = _convert(kwargs, convert, _as_meta)
    if route.has_device and (route.factory or "device" in kwargs):
        meta_kwargs["device"] = META
    outputs = route.func(*meta_args, **meta_kwargs)
    if not route.returns:
        outputs = ()
    elif len(route.returns) == 1:
        outputs = (outputs,)
    specs = tuple(_spec(output) for output in outputs)
    written: tuple[tuple[TensorMeta | None, ...], ...] = _list_unchanged(route, args, kwargs)
    if route.reshapes:
        written = tuple(
            tuple(spec_of(t) for t in flat_tensors(argument_at(route, index, meta_args, meta_kwargs)))
            for index in route.writes
        )
    return ShapedResult(specs, written, _largest(specs))


def _run_without_meta(route: Route, args: Any, kwargs: Any) -> ShapedResult:
    if route.writes and all(relation.relation == "argument" for relation in route.returns):
        # In place, without a reshape: the results are the arguments.
        results = (argument_at(route, each.argument, args, kwargs) for each in route.returns)
        specs = tuple(each._mps.spec if is_on_mps(each) else each for each in results)
        return ShapedResult(specs, _list_unchanged(route, args, kwargs), 0)
    sizes = sum(t.numel() for t in flat_tensors((args, list(kwargs.values()))))
    if sizes <= _ZEROS_ELEMENTS:
        try:
            return _run_on_zeros(route, args, kwargs)
        except NotImplementedError:
            pass
    whose = f"torch {torch.__version__}" if route.name.startswith("aten::") else "its library"
    raise NotSimulatedError(f"{route.name} has no shape rule: {whose} has no meta kernel for it")


def _run_on_zeros(route: Route, args: Any, kwargs: Any) -> ShapedResult:
    def zeros(tensor: MPSTensor) -> torch.Tensor:
        spec = tensor._mps.spec
        return torch.zeros(spec.shape, dtype=spec.dtype, layout=spec.layout)

    real_kwargs = _convert(kwargs, zeros)
    if "device" in real_kwargs:
        real_kwargs["device"] = torch.device("cpu")
    outputs = route.func(*wrap_numbers(route, _convert(args, zeros)), **real_kwargs)
    outputs = outputs if len(route.returns) > 1 else (outputs,)
    specs = tuple(_spec(output) for output in outputs) if route.returns else ()
    return ShapedResult(specs, _list_unchanged(route, args, kwargs), _largest(specs))


# -- conversion ---------------------------------------------------------------------------------------------


def _as_meta(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor next to tensors on MPS as a meta tensor; without dimensions it is a number to C++."""
    plain = type(tensor) is torch.Tensor and tensor.dim() > 0 and tensor.device is not META
    return tensor.to(META) if plain else tensor


def _convert(
    value: Any, on_mps: Callable[[MPSTensor], Any], elsewhere: Callable[[torch.Tensor], Any] = lambda tensor: tensor
) -> Any:
    """Return the value with the functions applied to the tensors in it."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return on_mps(value) if is_on_mps(value) else elsewhere(value)
    if kind is list or kind is tuple:
        return kind(_convert(item, on_mps, elsewhere) for item in value)
    if kind is dict:
        return {name: _convert(item, on_mps, elsewhere) for name, item in value.items()}
    return value


def _is_sparse(tensor: torch.Tensor) -> bool:
    return is_on_mps(tensor) and tensor._mps.spec.layout is not torch.strided


def flat_tensors(value: Any) -> tuple[torch.Tensor, ...]:
    """Return the tensors in a value, in nested lists and tuples too."""
    if isinstance(value, torch.Tensor):
        return (value,)
    if type(value) in (list, tuple):
        return tuple(tensor for item in value for tensor in flat_tensors(item))
    return ()


def argument_at(route: Route, index: int, args: Any, kwargs: Any) -> Any:
    """Return the argument at a position of the schema; None where there is none."""
    if index < 0:
        return None
    return args[index] if index < len(args) else kwargs.get(route.arguments[index])


def _list_unchanged(route: Route, args: Any, kwargs: Any) -> tuple[tuple[TensorMeta | None, ...], ...]:
    return tuple((None,) * len(flat_tensors(argument_at(route, index, args, kwargs))) for index in route.writes)


def _spec(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        check_layout(output)
        return spec_of(output)
    if type(output) in (list, tuple):
        return [_spec(item) for item in output]
    return output


def check_layout(tensor: torch.Tensor) -> None:
    """Raise NotSimulatedError for a layout, or a sort of dtype, that the simulated tensor cannot have."""
    if tensor.is_nested:
        message = "nested tensors of strided layout on MPS are not simulated: MPS has no kernels for them"
        raise NotSimulatedError(message)
    if tensor.is_quantized:
        message = f"quantized tensors ({tensor.dtype}) are not simulated: MPS has none"
        raise NotSimulatedError(message)
    if tensor.layout not in (torch.strided, torch.sparse_coo):
        message = f"tensors of layout {tensor.layout} on MPS are not simulated"
        raise NotSimulatedError(message)


def _largest(specs: Any) -> int:
    if isinstance(specs, TensorMeta):
        return math.prod(specs.shape)
    if type(specs) in (list, tuple):
        return max((_largest(spec) for spec in specs), default=0)
    return 0


# -- define a leaf call, and the sinks that record calls --


class InnerCall(NamedTuple):
    """One call that a composite kernel makes, without its tensors."""

    route: Route
    #: as in ``Call``
    key: tuple[Any, ...]
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]


class Body(NamedTuple):
    """What a composite kernel calls."""

    #: the overloads; None where its body could not be followed
    names: tuple[str, ...] | None
    #: the calls themselves, as far as their arguments are known
    calls: tuple[InnerCall, ...] = ()


NO_BODY = Body(())
NOT_FOLLOWED = Body(None)


class Call(NamedTuple):
    """One leaf call, as a sink receives it."""

    route: Route
    #: the overload, the number of positional arguments, then these and name, value of the others
    key: tuple[Any, ...]
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    #: what a composite kernel calls
    body: Body
    #: why a Mac refuses, whatever is registered
    refusal: tuple[str, str] | None
    #: why nothing computed it here, so that no Mac's result is known; empty where it was computed
    not_computed: str = ""
    #: draws from the default generator again, where torch.utils.checkpoint computes a forward pass again
    recomputed: bool = False

    @property
    def inner(self) -> tuple[str, ...] | None:
        """The overloads that a composite kernel calls; None where its body could not be followed."""
        return self.body.names

    @property
    def in_refused_dtype(self) -> bool:
        """Return whether an input has a dtype that no backend computes the overload in."""
        return any(refused_by(self.route.name, meta.dtype_name) for meta in metas(self.inputs))


class Sink(Protocol):
    """Records the calls as they happen."""

    def record(self, call: Call) -> None:
        """Record one leaf call."""

    def count_requests(self, operator: str) -> int:
        """Return how often ``operator`` has requested unknown values at this place."""

    def guess(self, operator: str, answer: Any) -> None:
        """Record that ``operator`` requested unknown values and received ``answer``."""


def metas(tensors: Sequence[torch.Tensor]) -> tuple[TensorMeta, ...]:
    """Return the metadata of tensors on MPS or on the CPU."""
    return tuple(tensor._mps.spec if is_on_mps(tensor) else spec_of(tensor, "cpu") for tensor in tensors)


#: a body that requests more values than this is assumed never to end.
_MOST_GUESSES = 1_000


class BodySink:
    """A sink that keeps calls without their tensors, while the simulator follows a composite's body."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.calls: dict[tuple[Any, ...], InnerCall] = {}
        self._asked = 0

    def record(self, call: Call) -> None:
        """Record the call; a composite inside a composite is replaced by the operators that it calls."""
        if call.route.has_body and call.inner is not None:
            names, calls = call.inner, call.body.calls
        else:
            result = InnerCall(call.route, call.key, metas(call.inputs), metas(call.outputs))
            names, calls = (call.route.name,), (result,)
        self.names.update(dict.fromkeys(names))
        self.calls.update({call.key: call for call in calls})

    def body(self, composite: str) -> Body:
        """Return what the composite's body called, without calls of the composite itself."""
        self.names.pop(composite, None)
        calls = tuple(call for call in self.calls.values() if call.route.name != composite)
        return Body(tuple(self.names), calls)

    def count_requests(self, _operator: str) -> int:
        """Return how often values were requested, at any place."""
        return self._asked

    def guess(self, operator: str, answer: Any) -> None:
        """Count the request; the values are unknown by design, and the body continues with the assumption.

        Raises:
            RuntimeError: the body requests values without end.
        """
        self._asked += 1
        if self._asked > _MOST_GUESSES:
            message = f"{operator} got the answer {answer} and requests it again and again"
            raise RuntimeError(message)
