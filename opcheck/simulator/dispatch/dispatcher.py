"""Simulate the Mac's dispatcher on any machine: the target's registrations route each operator call.

Records nothing itself: every leaf call is handed to a sink, with its key (simulator/dispatch/tensor_meta.py).
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from opcheck.common.versions import Target
from opcheck.simulator.dispatch import calls, unbacked_values
from opcheck.simulator.dispatch.calls import Body, Call, Sink, flat_tensors
from opcheck.simulator.dispatch.dispatch_context import OF_THIS_MACHINE, RECORDED, DispatchContext
from opcheck.simulator.dispatch.gradient_devices import Nodes
from opcheck.simulator.dispatch.operators import LEGACY_BODIES, branches_of, legacy_body
from opcheck.simulator.dispatch.operators.operator import Role, mismatch, overload_named, row_of
from opcheck.simulator.dispatch.random_numbers import draw_on_mps, is_recomputed, keep_generators
from opcheck.simulator.dispatch.routes import BoundCall, Route, RouteKind, make_higher_route, make_route, wrap_numbers
from opcheck.simulator.dispatch.tensor import MPS_DEVICE, MPSTensor, detach_values, is_on_mps, set_bits, wrap
from opcheck.simulator.dispatch.tensor_meta import DICT, LIST, TensorMeta, ambient, encode, map_nested, spec_of
from opcheck.simulator.errors import NotSimulatedError
from opcheck.simulator.target_reads import TargetQueries, is_before
from opcheck.tracing.torch_private import dispatch, tensors
from opcheck.tracing.torch_private.backend import generator_class
from opcheck.tracing.torch_private.dispatch import DispatchKey, HigherOrderOperator

#: values are kept for tensors of at most this many elements: a 128 x 128 attention mask fits.
KEEP_ELEMENTS = 16_384
#: ... and those of an expanded view, which takes no memory: a mask of tokens, seen at the width of
#: their vectors.
VIEWED = 1 << 24

#: ATen/core/Generator.h, check_generator.
_CPU_GENERATOR = ("generator_device", "Expected a 'mps' device type for generator but found 'cpu'")

_CPU = torch.device("cpu")

#: what C++ makes of a Python number has any of these dtypes, and no float64 is on MPS.
_OF_NUMBERS = frozenset({torch.int64, torch.float64, torch.complex128, torch.bool})

#: what C++ takes on MPS where it takes the wider one elsewhere (ATen/AccumulateType.h,
#: toAccumulateType)
_NARROWER = {torch.float64: torch.float32, torch.complex128: torch.complex64}

#: nodes that compute in the device's accumulate type (FunctionsManual.cpp, renorm_backward, 1.13 to
#: 2.15)
_NARROWING_NODES = frozenset({"RenormBackward0"})


class Simulator(dispatch.DispatchMode):
    """A dispatch mode that routes calls on MPS tensors as the target does."""

    #: torch/_ops.py, HigherOrderOperator.dispatch: these are handed to __torch_dispatch__, too.
    supports_higher_order_operators = True

    def __init__(
        self, target: Target, registrations: Mapping[str, str], sink: Sink, *, keep: int = KEEP_ELEMENTS
    ) -> None:
        super().__init__()
        self.keep = keep
        #: is given each leaf call before it is computed; it may raise what the Mac raises
        self.before_call: Callable[[Call], None] | None = None
        #: why the results of the call in progress are not a Mac's; empty where they are
        self.not_computed = ""
        #: how many calls had nothing to do with MPS
        self.elsewhere = 0
        self.context = DispatchContext(TargetQueries(target), self.refuse)
        self.branches = branches_of(target, self.context)
        self._registrations = registrations
        self.sink = sink
        self._routes: dict[Any, Route] = {}
        self._results: dict[tuple[Any, ...], Any] = {}
        self._nodes = Nodes()
        #: the call that was recorded last is one whose result programs assert
        self._last_is_check = False
        self._unrunnable: set[Any] = set()
        #: composites that the dispatcher took without asking this (simulator/dispatch/mps_registrations.py)
        self.passed: set[str] = set()
        self._bodies: dict[tuple[Any, ...], Body] = {}
        #: of overloads in declared bodies, which no program calls
        self._inner_routes: dict[str, Route] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Route one call."""
        # torch/_tensor.py: a Parameter, and any other class that has Tensor's own dispatch, is as good as a tensor.
        if types and any(kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for kind in types):
            # A tensor subclass takes itself apart first (NestedTensor, torchao's): its parts come
            # here.
            self._routes.get(func) or self._route(func)
            return NotImplemented
        if (proxy := dispatch.mode_in_slot(dispatch.PROXY_MODE)) is not None:
            return self._trace(proxy, func, types, args, kwargs)
        return self._dispatch(func, args, kwargs or {})

    def _trace(self, proxy: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Let make_fx process the call first, as torch.func.linearize uses it.

        Its mode comes after all others (TorchDispatchModeTLS.cpp, pop_stack).
        """
        dispatch.clear_slot(dispatch.PROXY_MODE)
        try:
            with self:
                return proxy.__torch_dispatch__(func, types, args, kwargs)
        finally:
            dispatch.fill_slot(proxy)

    def _dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        route = self._routes.get(func) or self._route(func)
        if kwargs and kwargs.get("dtype") in _NARROWER and self._narrows():
            kwargs = {**kwargs, "dtype": _NARROWER[kwargs["dtype"]]}
            if route.operator.role is Role.CAST and args[0].dtype == kwargs["dtype"]:
                return _alias(args[0])
        if self.context.report_guess is not None and route.operator.repair is not None and is_on_mps(args[0]):
            args, kwargs = self._repair(BoundCall(route, args, kwargs))
        inputs: list[torch.Tensor] = []
        parts: list[Any] = [func, len(args)]
        parts += [_encode(value, inputs) for value in args]
        for name, value in kwargs.items():
            parts += (name, _encode(value, inputs))
        on_mps: list[Any] = [t for t in inputs if t._mps is not None]  # type: ignore[attr-defined]
        if not on_mps and not self._creates_on_mps(route, kwargs):
            self.elsewhere += 1
            self._nodes.note(on_mps=False)
            return func(*args, **kwargs)
        device = kwargs.get("device")
        if device is not None and device.type == "meta":
            self._nodes.note(on_mps=False)
            return calls.run_on_meta(func, args, kwargs)
        role = route.operator.role
        if role is Role.ZERO_TENSOR and not args[0] and kwargs.get("dtype") in _OF_NUMBERS:
            # The tangent of a Python number, which is on the CPU as the number is
            # (VariableType.cpp).
            return torch.zeros((), dtype=kwargs["dtype"])
        self._nodes.note(on_mps=True)
        if route.kind is not RouteKind.LEAF:
            return self._run_body(route, args, kwargs)
        return self._leaf(BoundCall(route, args, kwargs, tuple(parts)), inputs, on_mps)

    def _leaf(self, bound: BoundCall, inputs: list[torch.Tensor], on_mps: list[MPSTensor]) -> Any:
        """Compute a call that no Python code decomposes, and pass it to the sink."""
        route, kwargs = bound.route, bound.kwargs
        refusal = self._refusal(bound, inputs, on_mps)
        body = self._body(bound) if route.has_body else calls.NO_BODY
        again = route.draws and kwargs.get("generator") is None and is_recomputed()
        call = Call(route, bound.key, tuple(inputs), (), body, refusal)
        if self.before_call is not None:
            self.before_call(call._replace(recomputed=again))
        try:
            outputs = self._compute(bound, on_mps, _CPU if on_mps and self._leaves_mps(kwargs) else MPS_DEVICE)
        except NotSimulatedError as error:
            # The call is recorded although the program may end here; a sparse factory's is none of
            # the dense key.
            if kwargs.get("layout") in (None, torch.strided):
                self.sink.record(call._replace(not_computed=str(error)))
            raise
        except (RuntimeError, TypeError, LookupError, ValueError) as error:
            refusal = refusal or getattr(error, "refusal", None)  # of a RefusedError
            # A dtype that no backend computes, or two devices: the check of a meta kernel.
            failed = call._replace(refusal=refusal, not_computed=getattr(error, OF_THIS_MACHINE, ""))
            if refusal is not None or failed.in_refused_dtype or failed.not_computed:
                self.sink.record(failed)
                vars(error)[RECORDED] = True
            raise
        if route.operator.role is Role.DETACH:
            if not self.context.detaches:
                return outputs
            # Up to 2.9 at least, C++ detaches the result once more (VariableTypeUtils.h, as_view).
            self.context.detaches = False
        if route.name in self.context.hidden:
            return outputs
        flat = flat_tensors(outputs)
        if route.operator.passes and body.names and not body.calls:
            body = self._pass_arguments(bound, body.names, flat)
        because, self.not_computed = self.not_computed, ""
        self.sink.record(Call(route, bound.key, call.inputs, flat, body, refusal, because, again))
        self._last_is_check = route.operator.is_check
        return outputs

    def _refusal(self, bound: BoundCall, inputs: list[torch.Tensor], on_mps: list[MPSTensor]) -> tuple[str, str] | None:
        operator, refusal = bound.route.operator, None
        if not on_mps:
            refusal = calls.refuse_quantized(bound, inputs)
        elif operator.refuses_devices is not None:
            refusal = operator.refuses_devices(bound.args, inputs)
        elif len(inputs) != len(on_mps) and not operator.mixes_devices:
            refusal = self._device_mismatch(bound, inputs)
        if refusal is None and self.context.draws_on_cpu and bound.kwargs.get("generator") is not None:
            refusal = _CPU_GENERATOR
        return refusal

    def _device_mismatch(self, bound: BoundCall, inputs: list[torch.Tensor]) -> tuple[str, str] | None:
        route = bound.route
        since = route.operator.skips_empty
        if since is not None and not self.context.ask(is_before, since):
            inputs = [tensor for tensor in inputs if tuple(tensor.shape) != (0,)]
            if all(map(is_on_mps, inputs)):
                return None
        outs, written = (
            [t for index in indices for t in flat_tensors(bound.get_argument(index))]
            for indices in (route.outs, route.writes)
        )
        general = mismatch(route.name, bound.name_arguments(), inputs, outs, written, iterated=route.is_iterated)
        if general is None:
            return None
        texts = route.operator.device_texts
        row = self.context.ask(row_of, texts) if texts else None
        return "device_mismatch", (None if row is None else texts[row].text(inputs)) or general

    def refuse(self, func: Any, args: Any, identity: str, text: str) -> None:
        """Record that a Mac's composite refuses these arguments before it dispatches to anything."""
        inputs: list[torch.Tensor] = []
        key = (func, len(args), *(_encode(value, inputs) for value in args))
        self.sink.record(Call(self._route(func), key, tuple(inputs), (), calls.NOT_FOLLOWED, (identity, text)))

    @property
    def routes(self) -> tuple[Route, ...]:
        """The routes of all overloads called so far."""
        return tuple(self._routes.values())

    # -- which way ------------------------------------------------------------------------------------------

    def _route(self, func: Any) -> Route:
        if isinstance(func, HigherOrderOperator):
            route = make_higher_route(func, self.context)
        else:
            route = make_route(func, self._registrations, self.branches)
        self._routes[func] = route
        return route

    def _creates_on_mps(self, route: Route, kwargs: Mapping[str, Any]) -> bool:
        if getattr(kwargs.get("device"), "type", "") == "mps":
            return True
        return route.factory and route.has_device and self._in_flight()

    def _leaves_mps(self, kwargs: Mapping[str, Any]) -> bool:
        # In the engine only C++ names a device: AccumulateGrad copies a gradient with
        # ``variable.options()``.
        on_cpu = getattr(kwargs.get("device"), "type", "") == "cpu"
        return on_cpu and not (self.context.in_engine or self._in_flight())

    def _in_flight(self) -> bool:
        """Return whether temporaries that C++ makes now belong on MPS."""
        return self.context.on_mps or (self.context.in_engine and self._nodes.running_on_mps())

    def _narrows(self) -> bool:
        return self.context.narrows or (self.context.in_engine and self._nodes.name() in _NARROWING_NODES)

    def _run_body(self, route: Route, args: Any, kwargs: Any) -> Any:
        with self, self.context.set(on_mps=True):
            if route.body is not None:
                return route.body(*args, **kwargs)
            # Not OpOverload.decompose(): it prefers a Python decomposition to the C++ composite.
            body = dispatch.body_of(route.func)
            return body(DispatchKey.CompositeImplicitAutograd, *wrap_numbers(route, args), **kwargs)

    def _body(self, bound: BoundCall) -> Body:
        route = bound.route
        if (body := route.operator.body) is not None:
            return Body(body(bound.name_arguments(), self.context.ask) if callable(body) else body)
        if route.name in LEGACY_BODIES and (names := self.context.ask(legacy_body, route.name)) is not None:
            return Body(names)
        if route.bodiless:
            return calls.NOT_FOLLOWED
        case = (bound.key, ambient())
        if case not in self._bodies:
            self._bodies[case] = calls.NOT_FOLLOWED  # a body that calls itself is not followed twice
            self._bodies[case] = self._follow_body(bound)
        return self._bodies[case]

    def _pass_arguments(self, bound: BoundCall, names: tuple[str, ...], outputs: tuple[torch.Tensor, ...]) -> Body:
        """Return a declared body with the arguments that it passes on (``Operator.passes``)."""
        arguments, results = bound.name_arguments(), calls.metas(outputs)
        arguments |= {"result.shape": results[0].shape, "result.stride": results[0].stride} if results else {}
        result: list[calls.InnerCall] = []
        for name in names:
            if (renamed := bound.route.operator.passes.get(name)) is None:
                continue
            inner = self._inner_routes.get(name) or self._inner_routes.setdefault(
                name, make_route(overload_named(name), self._registrations, self.branches)
            )
            sources = {argument: renamed.get(argument, argument) for argument in inner.arguments}
            values = {argument: arguments[source] for argument, source in sources.items() if source in arguments}
            inputs: list[torch.Tensor] = []
            key = [part for item, value in values.items() for part in (item, _encode(value, inputs))]
            result.append(calls.InnerCall(inner, (inner.func, 0, *key), calls.metas(inputs), results))
        return Body(names, tuple(result))

    def _follow_body(self, bound: BoundCall) -> Body:
        """Return what the composite's body dispatches to.

        The body runs on copies without values: following it changes nothing.
        """
        route = bound.route
        if route.composite is None:
            return calls.NO_BODY
        followed = calls.BodySink()
        sink, self.sink = self.sink, followed
        before, self.before_call = self.before_call, None
        try:
            with torch.no_grad(), keep_generators(), dispatch.below_autograd(), self, self.context.set(on_mps=True):
                arguments = wrap_numbers(route, map_nested(_valueless, bound.args))
                dispatch.body_of(route.func)(route.composite, *arguments, **map_nested(_valueless, bound.kwargs))
        except Exception:  # noqa: BLE001 - any composite body of torch, on tensors without values
            return calls.NOT_FOLLOWED
        finally:
            self.sink, self.before_call = sink, before
        return followed.body(route.name)

    # -- results --------------------------------------------------------------------------------------------

    def _compute(self, bound: BoundCall, on_mps: list[MPSTensor], device: torch.device) -> Any:
        route = bound.route
        known = all(t._mps.payload is not None and t._mps.memory.known for t in on_mps)
        if not known or route.func in self._unrunnable:
            return self._compute_unknown(bound, device)
        if not (route.reads_data or route.reads_shape or route.operator.needs_values):
            result = self._result_of(bound)
            if result.elements > (VIEWED if route.operator.role is Role.EXPAND else self.keep):
                return self._compute_shapes(bound, result, device)
        try:
            return self._compute_real(bound, device)
        except NotImplementedError:
            # Only MPS has a kernel for it (_scaled_dot_product_attention_math_for_mps): no values
            # then.
            self._unrunnable.add(route.func)
            return self._compute_unknown(bound, device)

    def _compute_unknown(self, bound: BoundCall, device: torch.device) -> Any:
        route, args = bound.route, bound.args
        if route.reads_data:
            dtype = torch.bool if route.operator.answers_bool else args[0].dtype
            answer = unbacked_values.scalar(dtype, self.sink.count_requests(route.name), checks=self._last_is_check)
            self._report_guess(route.name, answer)
            return answer
        if route.operator.absorbing is not None:
            result = self._result_of(bound)
            spec = result.specs[0]
            if result.elements <= self.keep and _is_decided(route.operator.absorbing, spec, args):
                return self._wrap_guess((torch.full(spec.shape, route.operator.absorbing, dtype=spec.dtype),), device)
        if route.operator.unbacked is not None:
            guess = route.operator.unbacked(bound.name_arguments(), self.keep)
            if guess.assumed:
                self._report_guess(route.name, guess.assumed)
            return self._wrap_guess(guess.results, device)
        masks = unbacked_values.without_masks(args) if route.operator.takes_masks else None
        if masks is None:
            result = self._result_of(bound)
        else:
            # Not by its key: how much a mask selects may be known.
            replaced, assumed = masks
            if assumed:
                self._report_guess(route.name, assumed)
            result = calls.result_of(bound._replace(args=replaced), self.context.ask)
        return self._compute_shapes(bound, result, device)

    def _result_of(self, bound: BoundCall) -> calls.ShapedResult:
        # Factories without a dtype and divisions of integers take the default dtype.
        kept = (torch.get_default_dtype(), bound.key)
        if (result := self._results.get(kept)) is None:
            result = self._results[kept] = calls.result_of(bound, self.context.ask)
        return result

    def _report_guess(self, operator: str, answer: Any) -> None:
        # What does not fit from here on may be its fault (Operator.repair; indexing.py).
        self.context.report_guess = self._report_guess
        self.sink.guess(operator, answer)

    def _repair(self, bound: BoundCall) -> tuple[Any, Any]:
        """Return the arguments, made consistent if an assumed value led to some that do not fit together."""
        repair = bound.route.operator.repair
        changes = repair(bound.name_arguments()) if repair else None
        if changes is None:
            return bound.args, bound.kwargs
        changed, assumed = changes
        self._report_guess(bound.route.name, assumed)
        pairs = zip(bound.route.arguments, bound.args, strict=False)
        return (
            tuple(changed.get(name, value) for name, value in pairs),
            {name: changed.get(name, value) for name, value in bound.kwargs.items()},
        )

    def _wrap_guess(self, results: tuple[TensorMeta | torch.Tensor, ...], device: torch.device) -> Any:
        created = [
            (self._wrap_shape if isinstance(result, TensorMeta) else self._wrap_real)("new", result, None, device)
            for result in results
        ]
        return created[0] if len(created) == 1 else tuple(created)

    def _compute_real(self, bound: BoundCall, device: torch.device) -> Any:
        route = bound.route
        with draw_on_mps(bound.kwargs.get("generator")) if route.draws else contextlib.nullcontext():
            args, kwargs = map_nested(_payload, bound.args), map_nested(_payload, bound.kwargs)
            outputs = self._execute(route, wrap_numbers(route, args), kwargs)
        if route.operator.uninitialized:
            outputs.zero_()
        elif route.operator.role is Role.ZERO_TENSOR:
            # Nothing is behind it: its key makes zeros where a kernel reads it
            # (ATen/ZeroTensorFallback.cpp).
            outputs = torch.zeros(outputs.shape, dtype=outputs.dtype)
        for index in route.writes:
            for written in flat_tensors(bound.get_argument(index)):
                if is_on_mps(written) and written._mps.payload is not None:
                    refresh(written, spec_of(written._mps.payload))
        if not route.returns:
            return outputs
        bases = [bound.get_argument(each.argument) for each in route.returns]
        if route.returns_list:
            return [self._wrap_real(route.returns[0].relation, out, bases[0], device) for out in outputs]
        if len(route.returns) == 1:
            return self._wrap_real(route.returns[0].relation, outputs, bases[0], device)
        on_cpu = route.operator.results_on_cpu
        return tuple(
            self._wrap_real(each.relation, out, base, _CPU if index in on_cpu else device)
            for index, (each, out, base) in enumerate(zip(route.returns, outputs, bases, strict=True))
        )

    def _execute(self, route: Route, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return route.func(*args, **kwargs)

    def _wrap_real(self, relation: str, value: Any, base: Any, device: torch.device) -> Any:
        if relation == "argument":
            return base
        if not isinstance(value, torch.Tensor):
            return [self._wrap_real(relation, v, base, device) for v in value] if type(value) is list else value
        if device is _CPU:
            return value
        calls.check_layout(value)
        wrapped = self._wrap_beside(relation, spec_of(value), value, base)
        set_bits(wrapped, conjugate=value.is_conj(), negative=value.is_neg())
        return wrapped

    def _wrap_beside(self, relation: str, spec: TensorMeta, payload: torch.Tensor | None, base: Any) -> MPSTensor:
        """Return a result, which shares the memory of ``base`` if it is a view of it."""
        if relation != "view" or not is_on_mps(base):
            return wrap(spec, payload)
        # A view of an inference tensor has no version either; what ``detach`` returns has its own.
        inference = base.is_inference() and not self.context.detaches
        with torch.inference_mode() if inference else contextlib.nullcontext():
            return wrap(spec, payload, base._mps.memory, alias_of=base)

    def _compute_shapes(self, bound: BoundCall, result: calls.ShapedResult, device: torch.device) -> Any:
        route = bound.route
        for index, specs in zip(route.writes, result.written, strict=True):
            for written, spec in zip(flat_tensors(bound.get_argument(index)), specs, strict=True):
                if is_on_mps(written):
                    if index not in route.operator.keeps_values_of:
                        written._mps.memory.known = False
                    if spec is not None and spec is not written._mps.spec:
                        refresh(written, spec)
                else:
                    written.copy_(self._copied_to_host(spec_of(written)))
        outputs: list[Any] = []
        on_cpu = route.operator.results_on_cpu
        for index, ((relation, argument), spec) in enumerate(zip(route.returns, result.specs, strict=True)):
            base = bound.get_argument(argument)
            outputs.append(self._wrap_shape(relation, spec, base, _CPU if index in on_cpu else device))
            _keep_bits(route, relation, base, outputs[-1])
        if not outputs:
            return None
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _wrap_shape(self, relation: str, spec: Any, base: Any, device: torch.device) -> Any:
        if relation == "argument":
            return base
        if not isinstance(spec, TensorMeta):
            return [self._wrap_shape(relation, s, base, device) for s in spec] if type(spec) is list else spec
        if device is _CPU:
            return self._copied_to_host(spec)
        return self._wrap_beside(relation, spec, None, base)

    def _copied_to_host(self, spec: TensorMeta) -> torch.Tensor:
        """Substitute values for unknown ones, and record the assumption."""
        values, answer = unbacked_values.make_copy(spec, self.sink.count_requests("Tensor.cpu"))
        self._report_guess("Tensor.cpu", answer)
        return values


def _keep_bits(route: Route, relation: str, base: Any, views: Any) -> None:
    """Carry the conjugate and negative bits over to a view (ATen/ConjugateFallback.cpp)."""
    if relation != "view" or not is_on_mps(base):
        return
    conjugate = base.is_conj() is not (route.operator.role is Role.CONJUGATE)
    negative = base.is_neg() is not (route.operator.role is Role.NEGATE)
    if conjugate and route.operator.role is Role.VIEW_AS_REAL:
        torch.view_as_real(torch.ones(1, dtype=base.dtype).conj())  # raises what it raises
    if conjugate or negative:
        for view in views if type(views) is list else (views,):
            set_bits(view, conjugate=conjugate, negative=negative)


# -- arguments ----------------------------------------------------------------------------------------------


def _encode(value: Any, inputs: list[torch.Tensor]) -> Any:
    kind = type(value)
    if kind is int or kind is str or value is None:
        return value
    if kind is list or kind is tuple:
        return (LIST, *(_encode(item, inputs) for item in value))
    if isinstance(value, torch.Tensor):
        inputs.append(value)
        state = value._mps  # type: ignore[attr-defined]
        return spec_of(value, "cpu") if state is None else state.spec
    if kind is dict:
        return (DICT, *((name, _encode(item, inputs)) for name, item in value.items()))
    return encode(value)


def _valueless(value: Any) -> Any:
    if is_on_mps(value):
        return wrap(value._mps.spec)
    if isinstance(value, generator_class):
        return generator_class()
    if isinstance(value, torch.Tensor) and value.dim():
        return wrap(spec_of(value))
    return value


def _is_decided(absorbing: bool, result: TensorMeta, args: Any) -> bool:
    """Return whether one argument alone decides a result: True that of ``or`` of bools, 0 that of ``and``."""
    if absorbing and result.dtype != torch.bool:
        return False
    state = [t._mps.payload for t in args if is_on_mps(t) and t._mps.memory.known]
    return any(bool(payload.all()) if absorbing else not payload.any() for payload in state if payload is not None)


def _payload(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value._mps.payload if is_on_mps(value) else value
    # The class first: a quantized layer's packed weights (a ScriptObject) cannot be compared.
    return _CPU if type(value) is torch.device and value == MPS_DEVICE else value


def refresh(tensor: MPSTensor, spec: TensorMeta) -> None:
    """Give a tensor that was changed in place (``t_``, ``resize_``) its new metadata; its identity stays."""
    state = tensor._mps
    if spec is state.spec:
        return
    fresh = wrap(spec, alias_of=tensor)
    with dispatch.without_function_modes(), dispatch.without_dispatch_modes():
        tensors.set_data(tensor, fresh)
    state.spec = spec


def _alias(tensor: MPSTensor) -> MPSTensor:
    """Return the same values as a new tensor, because autograd writes into results."""
    state = tensor._mps
    return wrap(state.spec, detach_values(state.payload), state.memory, alias_of=tensor)
