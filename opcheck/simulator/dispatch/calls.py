"""Define a leaf call, and the sinks that record calls."""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from opcheck.data.messages import no_kernel_for
from opcheck.data.tables import refused_by
from opcheck.simulator.dispatch.operators import OPERATORS
from opcheck.simulator.dispatch.operators.operator import Role
from opcheck.simulator.dispatch.routes import BoundCall, Route, wrap_numbers
from opcheck.simulator.dispatch.tensor import MPSTensor, is_on_mps
from opcheck.simulator.dispatch.tensor_meta import META, TensorMeta, map_nested, spec_of
from opcheck.simulator.errors import DataDependentError, NotSimulatedError, RefusedError
from opcheck.simulator.target_reads import TargetQueries

#: a shape is read off a run on zeros where torch has no meta kernel and the tensors are no larger
#: than this.
_ZEROS_ELEMENTS = 4_194_304
#: How a Mac refuses layouts up to 2.15, each the id of the refusal and its text: no list of devices has MPS
#: (ATen/native/sparse/SparseCsrTensor.cpp, ``new_compressed_tensor``, whose code compares the device with CPU, CUDA,
#: XPU, meta and privateuseone in the wheels of 2.13.0 and 2.15.0; ATen/NestedTensorImpl.cpp).
COMPRESSED = ("compressed_layout", "Could not run 'new_compressed_tensor' from the 'mps:0' device.)")
NESTED = ("nested_layout", "NestedTensorImpl storage must be either CUDA, CPU, XPU or privateuseone but got mps:0")

_CAST = next(each for each in OPERATORS.values() if each.role is Role.CAST)
_QUANTIZED_DTYPES = {torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4}


def _quantized(operator: str) -> tuple[str, str]:
    return "quantized_dtype", no_kernel_for(operator, "QuantizedMPS")


def refuse_quantized(call: BoundCall, inputs: Sequence[torch.Tensor]) -> tuple[str, str] | None:
    """Return how a Mac refuses to make a quantized tensor on MPS: nothing is registered for the key QuantizedMPS."""
    if call.kwargs.get("dtype") in _QUANTIZED_DTYPES or any(tensor.is_quantized for tensor in inputs):
        return _quantized(call.route.operator.quantizes_by or call.route.name)
    return None


class ShapedResult(NamedTuple):
    """Metadata of the results and of the arguments that the call changed."""

    #: a TensorMeta, a list of Specs or a plain value for each return of the schema
    specs: tuple[Any, ...]
    #: for each written argument, the TensorMeta that each of its tensors has afterwards (None:
    #: unchanged)
    written: tuple[tuple[TensorMeta | None, ...], ...]
    #: elements of the largest result
    elements: int


def result_of(call: BoundCall, ask: TargetQueries) -> ShapedResult:
    """Return the metadata of this call's results.

    Raises:
        NotSimulatedError: torch has no meta kernel, there is no rule here, and no CPU kernel to try.
        DataDependentError: the shape depends on values.
    """
    route = call.route
    if route.operator.metadata is not None:
        specs = route.operator.metadata(_convert(call.name_arguments(), lambda tensor: tensor._mps.spec, spec_of), ask)
        return ShapedResult(specs, _list_unchanged(call), _largest(specs))
    if any(is_on_mps(t) and t._mps.spec.layout is not torch.strided for t in _list_inputs(call)):
        # torch has meta kernels for hardly any operator on sparse tensors.
        return _run_without_meta(call)
    try:
        return _run(call)
    except NotImplementedError:
        if route.reads_shape:
            raise DataDependentError(
                f"{route.name} makes a tensor whose shape depends on values, and these are not known in a run on shapes"
            ) from None
        return _run_without_meta(call)
    except RuntimeError as error:
        # What torch.library.custom_op registers for Meta until it has a rule
        # (torch/_library/custom_ops.py).
        if "There was no fake impl registered" not in str(error):
            raise
        return _run_without_meta(call)


def _list_inputs(call: BoundCall) -> tuple[torch.Tensor, ...]:
    return flat_tensors((call.args, list(call.kwargs.values())))


def _run(call: BoundCall) -> ShapedResult:
    route = call.route

    def convert(tensor: MPSTensor) -> torch.Tensor:
        return tensor._mps.spec.fresh_meta() if route.reshapes else tensor._mps.spec.meta()

    meta = call._replace(
        args=wrap_numbers(route, _convert(call.args, convert, _as_meta)),
        kwargs=_convert(call.kwargs, convert, _as_meta),
    )
    if route.has_device and (route.factory or "device" in call.kwargs):
        meta.kwargs["device"] = META
    result = _shape_results(call, route.func(*meta.args, **meta.kwargs))
    if not route.reshapes:
        return result
    written = (flat_tensors(meta.get_argument(index)) for index in route.writes)
    return result._replace(written=tuple(tuple(map(spec_of, tensors)) for tensors in written))


def _shape_results(call: BoundCall, outputs: Any) -> ShapedResult:
    """Return the metadata of results, of a call that leaves that of its arguments as it is."""
    listed = outputs if len(call.route.returns) > 1 else (outputs,) if call.route.returns else ()
    specs = tuple(_spec(output) for output in listed)
    return ShapedResult(specs, _list_unchanged(call), _largest(specs))


def _run_without_meta(call: BoundCall) -> ShapedResult:
    route = call.route
    if route.writes and all(relation.relation == "argument" for relation in route.returns):
        # In place, without a reshape: the results are the arguments.
        results = (call.get_argument(each.argument) for each in route.returns)
        specs = tuple(each._mps.spec if is_on_mps(each) else each for each in results)
        return ShapedResult(specs, _list_unchanged(call), 0)
    if sum(t.numel() for t in _list_inputs(call)) <= _ZEROS_ELEMENTS:
        with contextlib.suppress(NotImplementedError):
            return _run_on_zeros(call)
    whose = f"torch {torch.__version__}" if route.name.startswith("aten::") else "its library"
    raise NotSimulatedError(f"{route.name} has no shape rule: {whose} has no meta kernel for it")


def _run_on_zeros(call: BoundCall) -> ShapedResult:
    def zeros(tensor: MPSTensor) -> torch.Tensor:
        spec = tensor._mps.spec
        return torch.zeros(spec.shape, dtype=spec.dtype, layout=spec.layout)

    real_kwargs = _convert(call.kwargs, zeros)
    if "device" in real_kwargs:
        real_kwargs["device"] = torch.device("cpu")
    return _shape_results(call, call.route.func(*wrap_numbers(call.route, _convert(call.args, zeros)), **real_kwargs))


def run_on_meta(func: Any, args: Any, kwargs: Any) -> Any:
    """Run a call whose result is a meta tensor: it reads nothing but the metadata of tensors on MPS."""

    def convert(tensor: MPSTensor) -> torch.Tensor:
        return tensor._mps.spec.meta()

    return func(*_convert(args, convert), **_convert(kwargs, convert))


# -- conversion ---------------------------------------------------------------------------------------------


def _as_meta(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor next to tensors on MPS as a meta tensor; without dimensions it is a number to C++."""
    plain = type(tensor) is torch.Tensor and tensor.dim() > 0 and tensor.device is not META
    return tensor.to(META) if plain else tensor


def _convert(
    value: Any, on_mps: Callable[[MPSTensor], Any], elsewhere: Callable[[torch.Tensor], Any] = lambda tensor: tensor
) -> Any:
    """Return the value with the functions applied to the tensors in it."""

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return on_mps(leaf) if is_on_mps(leaf) else elsewhere(leaf)

    return map_nested(convert, value)


def flat_tensors(value: Any) -> tuple[torch.Tensor, ...]:
    """Return the tensors in a value, in nested lists and tuples too."""
    if isinstance(value, torch.Tensor):
        return (value,)
    if type(value) in (list, tuple):
        return tuple(tensor for item in value for tensor in flat_tensors(item))
    return ()


def _list_unchanged(call: BoundCall) -> tuple[tuple[TensorMeta | None, ...], ...]:
    return tuple((None,) * len(flat_tensors(call.get_argument(index))) for index in call.route.writes)


def _spec(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        check_layout(output)
        return spec_of(output)
    if type(output) in (list, tuple):
        return [_spec(item) for item in output]
    return output


def check_layout(tensor: torch.Tensor) -> None:
    """Raise RefusedError for a layout, or a quantized dtype, that no tensor on MPS has."""
    if tensor.is_nested:
        raise RefusedError(*NESTED)
    if tensor.is_quantized:
        raise RefusedError(*_quantized(_CAST.quantizes_by))
    if tensor.layout not in (torch.strided, torch.sparse_coo):
        raise RefusedError(*COMPRESSED)


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
        return Body(tuple(self.names), tuple(call for call in self.calls.values() if call.route.name != composite))

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
            raise RuntimeError(f"{operator} got the answer {answer} and requests it again and again")
