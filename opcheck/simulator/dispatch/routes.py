"""Decide what the target's dispatcher does with each overload, once for each overload."""

import contextlib
import enum
import functools
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from opcheck.common.versions import Target, Version
from opcheck.common.vocabulary import OF_PROGRAM
from opcheck.data.extensions import LIBRARIES
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators import OPERATORS, PLAIN, PYTHON_KERNELS
from opcheck.simulator.dispatch.operators.operator import Operator, is_iterated
from opcheck.simulator.errors import NotSimulatedError
from opcheck.tracing.torch_private import dispatch
from opcheck.tracing.torch_private.dispatch import DispatchKey, HigherOrderOperator, OpOverload

#: registrations that stop the dispatcher at the MPS key (op_lists/README.md).
KERNEL_VALUES = frozenset({"kernel", "cpu_fallback", "error_stub"})

#: In the dispatcher's order (c10/core/DispatchKeySet.cpp and OperatorEntry.cpp,
#: computeDispatchTableEntry).
_EVERYWHERE = DispatchKey.CompositeExplicitAutograd
_COMPOSITES = (DispatchKey.CompositeExplicitAutogradNonFunctional, _EVERYWHERE)

#: what an operator of another namespace is registered for: what a Mac could do with it.
_TELLING_KEYS = ("MPS", "CPU", "CUDA", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "Meta", "Autograd")

#: namespaces that the op lists describe: their composites are judged as calls.
_DESCRIBED = frozenset({"aten", *LIBRARIES})

_NUMBERS = frozenset({int, float, bool, complex})
_TENSOR_TYPES = frozenset({"Tensor", "Optional[Tensor]"})
#: how the names of operators in place begin that give their argument another size
_RESHAPES = ("resize", "set_", "_resize")


class RouteKind(enum.Enum):
    """The ways that a call can take."""

    LEAF = "leaf"
    #: CompositeImplicit without a kernel on the target: its C++ body runs on the simulated tensors.
    DECOMPOSE = "decompose"
    #: a Python function runs, such as for a branch that C++ takes only on a Mac.
    PYTHON = "python"


class Return(NamedTuple):
    """How one result relates to the arguments: ``new``, ``view`` of or the very ``argument``."""

    relation: str
    argument: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One overload's way through the simulated dispatcher."""

    #: a higher-order operator where simulator/dispatch/routes.py makes the route; the defaults are that route's
    func: Any
    name: str
    operator: Operator
    #: the installed torch has a CompositeImplicitAutograd kernel for it
    implicit: bool
    kind: RouteKind
    body: Callable[..., Any] | None
    returns: tuple[Return, ...] = ()
    #: the single result is a list of tensors
    returns_list: bool = False
    #: positions in the schema of arguments that are written
    writes: tuple[int, ...] = ()
    #: ... those of ``out=``
    outs: tuple[int, ...] = ()
    #: TensorIterator checks the devices of its tensors
    is_iterated: bool = False
    #: the metadata of a written argument can change (``t_``, ``resize_``, ``out=``)
    reshapes: bool = False
    #: the result is not known without the values (``item``, ``equal``), or its shape may not be
    #: (``nonzero``)
    reads_data: bool = False
    reads_shape: bool = False
    #: draws random numbers
    draws: bool = False
    factory: bool = False
    has_device: bool = False
    #: the composite kernel below autograd, for overloads that the target has no kernel for
    composite: DispatchKey | None = None
    #: a composite on the target and none in the installed torch: its body is not here
    bodiless: bool = False
    #: what it calls decides on the target: a composite that is recorded as a call
    has_body: bool = False
    arguments: tuple[str, ...] = ()
    #: positions that take a tensor and no number: a number there was a wrapped one to C++
    takes_tensor: tuple[int, ...] = ()
    #: dispatch keys with a kernel, for namespaces that the lists do not describe, and whether it is the program's own
    registrations: tuple[str, ...] = ()


def is_implicit(name: str) -> bool:
    """Return whether the installed torch has a CompositeImplicitAutograd kernel for an overload, in C++.

    ``OpOverload.has_kernel_for_dispatch_key`` counts Python decompositions, too (upsample_nearest3d), which
    ``_op_dk`` does not reach: it ends the process.
    """
    return dispatch.has_schema(name) and dispatch.has_kernel(name, "CompositeImplicitAutograd")


def registered_way(name: str, *, implicit: bool, registrations: Mapping[str, str], branches: Container[str]) -> str:
    """Return the way of an overload by the registrations and branches, which is all that they decide.

    Args:
        name: the overload.
        implicit: whether the installed torch has a CompositeImplicitAutograd kernel for it.
        registrations: the target's value of every overload.
        branches: the overloads that have one on the target.
    """
    if name in branches:
        return "branch"
    value = registrations.get(name)
    end = end_of(value, registrations)
    if end == "python_kernel" and name in PYTHON_KERNELS:
        return "python"
    if implicit and value not in KERNEL_VALUES:
        return "decompose"
    return "composite" if end in {"composite_explicit", "composite_implicit"} else "leaf"


def make_route(func: OpOverload, registrations: Mapping[str, str], branches: Mapping[str, Callable[..., Any]]) -> Route:
    """Return the route of ``func``, given the target's value of every overload (op_lists/README.md)."""
    name: str = func.name()
    implicit, has_schema = is_implicit(name), dispatch.has_schema(name)
    way = registered_way(name, implicit=implicit, registrations=registrations, branches=branches)
    operator, schema, tags = OPERATORS.get(name, PLAIN), dispatch.schema_of(func), func.tags
    body = _python_body(func, way, branches)
    kind = RouteKind.PYTHON
    if body is None:
        kind = RouteKind.DECOMPOSE if way == "decompose" else RouteKind.LEAF
    is_composite = kind is RouteKind.LEAF and way == "composite"
    composite = None
    if has_schema and (is_composite or (kind is RouteKind.LEAF and func.namespace in LIBRARIES)):
        composite = next((key for key in _COMPOSITES if dispatch.has_kernel(name, key.name)), None)
    bodiless = is_composite and composite is None
    arguments = tuple(enumerate(schema.arguments))
    writes = tuple(n for n, each in arguments if each.alias_info and each.alias_info.is_write)
    outs = tuple(index for index in writes if schema.arguments[index].kwarg_only)
    may_reshape = torch.Tag.inplace_view in tags or name.partition("::")[2].startswith(_RESHAPES)
    takes_numbers = dispatch.takes_numbers_as_tensors(schema.name.partition("::")[2])
    return Route(
        func=func,
        name=name,
        operator=operator,
        implicit=implicit,
        kind=kind,
        body=body,
        returns=tuple(_relation(operator, each, schema.arguments) for each in schema.returns),
        returns_list=len(schema.returns) == 1 and str(schema.returns[0].type).startswith("List"),
        writes=writes,
        outs=outs,
        is_iterated=is_iterated(name, tags),
        reshapes=bool(outs) or (bool(writes) and may_reshape),
        reads_data=torch.Tag.data_dependent_output in tags,
        reads_shape=torch.Tag.dynamic_output_shape in tags,
        draws=torch.Tag.nondeterministic_seeded in tags or operator.draws,
        factory=not any("Tensor" in str(each.type) for _, each in arguments),
        has_device=any(each.name == "device" for _, each in arguments),
        composite=composite,
        bodiless=bodiless,
        has_body=composite is not None or bodiless,
        arguments=tuple(each.name for _, each in arguments),
        takes_tensor=() if takes_numbers else tuple(n for n, each in arguments if str(each.type) in _TENSOR_TYPES),
        registrations=() if func.namespace == "aten" or not has_schema else _registrations(name),
    )


def _python_body(func: OpOverload, way: str, branches: Mapping[str, Callable[..., Any]]) -> Callable[..., Any] | None:
    """Return the Python function that runs for an overload; None: the dispatcher's own way is followed."""
    name: str = func.name()
    if way in {"branch", "python"}:
        return (branches if way == "branch" else PYTHON_KERNELS)[name]
    # What a kernel written in Python with torch._refs runs: the prim's aten form (torch/_prims/__init__.py).
    body = getattr(func, "impl_aten", None) if func.namespace == "prims" else None
    # Only Python has what jagged tensors are queried by: prim::layout, in torch 2.9 aten::dim too.
    is_foreign = dispatch.has_schema(name) and func.namespace not in _DESCRIBED
    return _own_body(func) if body is None and is_foreign and not is_implicit(name) else body


def _own_body(func: OpOverload) -> Callable[..., Any] | None:
    """Return what a Mac runs for an operator of the program's own: its kernel for MPS, or its body for all devices.

    torch.library.custom_op registers its function for all, unless it gets the device (torch/_library/custom_ops.py).
    """
    if func.has_kernel_for_dispatch_key(DispatchKey.MPS):
        is_own = _is_of_python(func.name(), "MPS")
        return functools.partial(dispatch.body_of(func), DispatchKey.MPS) if is_own else None
    everywhere = func.has_kernel_for_dispatch_key(_EVERYWHERE)
    return functools.partial(dispatch.body_of(func), _EVERYWHERE) if everywhere else None


def end_of(value: str | None, registrations: Mapping[str, str]) -> str | None:
    """Return the value at the end of a chain of ``out:`` and ``wrapper:``."""
    while value is not None and value.startswith(("out:", "wrapper:")):
        value = registrations.get(value.partition(":")[2])
    return value


def _registrations(name: str) -> tuple[str, ...]:
    keys = tuple(key for key in _TELLING_KEYS if dispatch.has_kernel(name, key))
    return (*keys, OF_PROGRAM) if "CPU" in keys and _is_of_python(name, "CPU") else keys


def _is_of_python(name: str, key: str) -> bool:
    """Return whether a kernel was registered by a file of Python: a Mac runs the same file."""
    kernels = dispatch.describe_kernels(name).splitlines()
    return any(line.startswith(f"{key}: registered at ") and ".py:" in line.partition(" :: ")[0] for line in kernels)


def _relation(operator: Operator, result: Any, arguments: Any) -> Return:
    if (info := result.alias_info) is None:
        return Return("view", 0) if operator.shares_first else Return("new")
    for index, argument in enumerate(arguments):
        alias = argument.alias_info
        # A list of views (split, unbind) has no set of its own: its base is the argument marked "->
        # *".
        if alias is not None and (alias.before_set & info.before_set or "*" in alias.after_set):
            return Return("argument" if info.is_write else "view", index)
    return Return("new")


def wrap_numbers(route: Route, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments, with numbers as tensors where a call from Python would refuse a number."""
    if not route.takes_tensor or not any(type(value) in _NUMBERS for value in args):
        return args
    return tuple(
        torch.tensor(value) if type(value) in _NUMBERS and index in route.takes_tensor else value
        for index, value in enumerate(args)
    )


class BoundCall(NamedTuple):
    """A call in progress: an overload's way, and the arguments."""

    route: Route
    args: Any
    kwargs: dict[str, Any]
    #: as in simulator/dispatch/calls.py, ``Call``
    key: tuple[Any, ...] = ()

    def name_arguments(self) -> dict[str, Any]:
        """Return the arguments by their names in the schema, without those that were omitted."""
        return {**dict(zip(self.route.arguments, self.args, strict=False)), **self.kwargs}

    def get_argument(self, index: int) -> Any:
        """Return the argument at a position of the schema; None where there is none."""
        if index < 0:
            return None
        return self.args[index] if index < len(self.args) else self.kwargs.get(self.route.arguments[index])


# -- higher-order operators ------------------------------------------------------------------------------------------


#: torch/nn/attention/flex_attention.py, ``_validate_device`` (2.5 to 2.15): the devices, until which release
_DEVICES_OF_FLEX = {Version(2, 6): "CUDA", Version(2, 7): "CUDA or CPU", Version(2, 13): "CUDA, CPU or HPU"}


def make_higher_route(func: HigherOrderOperator, context: DispatchContext) -> Route:
    """Return the route of a higher-order operator, which is never a leaf: its eager form runs."""
    name, body = f"higher_order::{func.name()}", functools.partial(_run_eager_form, func, context)
    return Route(func=func, name=name, operator=PLAIN, implicit=False, kind=RouteKind.PYTHON, body=body)


def _run_eager_form(func: HigherOrderOperator, context: DispatchContext, *args: Any, **kwargs: Any) -> Any:
    """Run the eager form while the simulation is on.

    Raises:
        NotSimulatedError: it has none.
    """
    if (kernel := func.py_kernels.get(_EVERYWHERE)) is None:
        raise NotSimulatedError(f"the higher-order operator {func.name()} has no form that runs without a compiler")
    if func.name() == "flex_attention" and (devices := context.ask(_devices_of_flex)):
        text = f"FlexAttention is only supported on {devices} devices. Found input tensors on mps device."
        context.refuse(func, args[:3], "flex_attention_device", text)
    with _unseen(kernel.__globals__):
        return kernel(*args, **kwargs)


@contextlib.contextmanager
def _unseen(names: dict[str, Any]) -> Iterator[None]:
    """Hide the dispatch mode from forms that assert that none is on, as in a compiler (cond.py, scan.py of 2.13)."""
    asked = names.get("_get_current_dispatch_mode")
    if asked is None:
        yield
        return
    names["_get_current_dispatch_mode"] = lambda: None
    try:
        yield
    finally:
        names["_get_current_dispatch_mode"] = asked


def _devices_of_flex(target: Target) -> str:
    """Return the devices that the operator's Python function takes; empty if mps is among them."""
    return next((devices for until, devices in _DEVICES_OF_FLEX.items() if target.torch < until), "")
