"""Computes one call by the release's kernels on the program's own values, next to the results of the CPU.

The launches of calls that differ in nothing but their numbers are kept, so that a loop binds each call once.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from opcheck.common.text import type_and_text
from opcheck.common.versions import Target
from opcheck.data.kernel_routes import routes
from opcheck.data.registrations import OpLists
from opcheck.kernels.host import bindings
from opcheck.kernels.host.host_call import CallArguments, HostCall, HostLaunch, HostWork, UnboundError
from opcheck.kernels.host.release_kernels import ReleaseKernels
from opcheck.kernels.kernel_machine import ArrangedLaunch, KernelError
from opcheck.kernels.pointwise import Unfit
from opcheck.numerics.child.float64 import Float64Call, is_random
from opcheck.numerics.kernels.child import sampling
from opcheck.numerics.kernels.child.wrong_results import WrongResults, find_wrong
from opcheck.tracing.torch_private.dispatch import schema_of

#: So many plans are kept: a step size that changes in each call makes a new one.
_KEPT = 4096


class CallPlan(NamedTuple):
    """The launches of a call, in memory, and the arguments that are put into each, by their places."""

    launches: tuple[ArrangedLaunch | HostWork, ...]
    slots: tuple[tuple[int, int, str], ...]
    bound: CallArguments

    def run(self, call: HostCall) -> CallArguments:
        """Run the launches with the operands of a call."""
        for launch, place, name in self.slots:
            arranged = self.launches[launch]
            assert isinstance(arranged, ArrangedLaunch)
            arranged.pointers[place] = call.arguments[name].data_ptr()
        for each in self.launches:
            each.run()
        return self.bound


class Plans:
    """The launches of the calls of a run."""

    def __init__(self, released: ReleaseKernels) -> None:
        self._released = released
        self._plans: dict[Any, CallPlan] = {}

    def run(self, call: HostCall) -> CallArguments:
        """Run the launches of a call; the memory of its results is used again by the next call of this form.

        Raises:
            UnboundError: the release computes the call by no kernel that the tables have.
            KernelError: a kernel cannot be run here.
            Unfit: a kernel has an argument that the tables do not have.
        """
        key = _key(call)
        plan = self._plans.get(key) if key else None
        if plan is not None:
            return plan.run(call)._replace(again=lambda: self._bind(call))
        bound = self._bind(call)
        if key and (plan := _plan_of(call, bound)):
            if len(self._plans) >= _KEPT:
                self._plans.clear()
            self._plans[key] = plan
        return bound

    def _bind(self, call: HostCall) -> CallArguments:
        bound = bindings.bind(call, self._released)
        bound.run()
        return bound


def _key(call: HostCall) -> Any:
    """Return everything that the launches depend on but for the numbers; None where that cannot be compared."""
    parts: list[Any] = [call.name, call.elements]
    for value in (*call.arguments.values(), *call.outputs):
        if isinstance(value, Tensor):
            if value.is_conj() or value.is_neg():
                return None
            parts.append((value.shape, value.stride(), value.dtype))
        elif isinstance(value, (list, tuple)):
            if any(isinstance(each, Tensor) for each in value):
                return None
            parts.append(tuple(value))
        else:
            parts.append((type(value), value))
    try:
        hash(key := tuple(parts))
    except TypeError:
        return None
    return key


def _plan_of(call: HostCall, bound: CallArguments) -> CallPlan | None:
    """Return the plan of a bound call; None where a launch has a copy of an operand, or two are the same memory."""
    tensors = {name: each for name, each in call.arguments.items() if isinstance(each, Tensor)}
    names = {each.data_ptr(): name for name, each in tensors.items()}
    if len(names) < len(tensors):
        return None
    launches, slots, used = [], [], set()
    for number, launch in enumerate(bound.launches):
        arranged = launch.arrange()
        for argument, tensor in launch.memory.items() if isinstance(launch, HostLaunch) else ():
            name = names.get(tensor.data_ptr()) if tensor is not None else None
            if name is not None:
                slots.append((number, launch.kernel.places[argument], name))  # type: ignore[union-attr]
                used.add(name)
        launches.append(arranged)
    if used != tensors.keys():
        return None
    return CallPlan(tuple(launches), tuple(slots), bound)


class CheckedCall(NamedTuple):
    """What came of computing a call by kernels: the elements compared and those that are wrong, or the reason."""

    kernels: str = ""
    elements: int = 0
    compared: int = 0
    wrong: WrongResults | None = None
    #: why it was not computed; empty where it was
    reason: str = ""


class CheckedOperator(NamedTuple):
    """What is checked of the calls of an overload."""

    name: str
    #: of calls that are not computed, for one reason
    unchecked: CheckedCall | None = None
    #: the names of the arguments, the defaults, and those that are written; none: no call is checked
    arguments: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = {}
    written: tuple[str, ...] = ()


class PreparedCall(NamedTuple):
    """A call before it is computed: its arguments as they are then, cut to the blocks that are checked."""

    call: Float64Call
    name: str
    arguments: Mapping[str, Any]
    #: of a call that writes to an argument: the blocks of its result, and the arguments of each
    parts: tuple[tuple[sampling.SampleBlock, Mapping[str, Any]], ...] = ()


class KernelCheck:
    """Computes calls by the kernels of a release.

    Args:
        target: the release and the macOS.
        lists: the op lists, which have what computes each operator.
        released: the kernels.
        replaces: the program gets the kernels' results.
    """

    def __init__(self, target: Target, lists: OpLists, released: ReleaseKernels, *, replaces: bool = False) -> None:
        self._line, self._routes, self._released = str(target.torch), routes(lists), released
        self._replaces, self._sampler = replaces, sampling.Sampler()
        self._operators: dict[str, CheckedOperator] = {}
        self._plans = Plans(released)
        #: kernels have threadgroup memory in common, and the program may have threads
        self._lock = threading.Lock()
        self._last = threading.local()

    def prepare(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> PreparedCall | None:
        """Return a call that the kernels can compute, with copies of what it writes to; None for others."""
        self._last.checked = None
        operator = self._operators.get(name)
        if operator is None:
            operator = self._operators[name] = self._operator(name, func)
        if not operator.arguments:
            self._last.checked = operator.unchecked
            return None
        arguments = {**operator.defaults, **dict(zip(operator.arguments, args, strict=False)), **kwargs}
        prepared = PreparedCall(Float64Call(func, args, kwargs), operator.name, arguments)
        written = [arguments[each] for each in operator.written]
        return self._with_copies(prepared, written) if written else prepared

    def _operator(self, name: str, func: Any) -> CheckedOperator:
        if self._routes.of_operators((name,), self._line).kind not in {"metal", "either"}:
            return CheckedOperator("")
        base = name.partition("::")[2].partition(".")[0]
        base = base if base.endswith("__") else base.rstrip("_")
        if is_random(func):
            return CheckedOperator(base, CheckedCall(reason="draws random numbers"))
        if not bindings.is_bound(base):
            reason = f"no host function of aten::{base} is in the table"
            return CheckedOperator(base, CheckedCall(reason=reason))
        declared = schema_of(func).arguments
        return CheckedOperator(
            base,
            None,
            tuple(each.name for each in declared),
            {each.name: each.default_value for each in declared if each.has_default_value()},
            tuple(each.name for each in declared if each.alias_info is not None and each.alias_info.is_write),
        )

    def _with_copies(self, prepared: PreparedCall, written: list[Tensor]) -> PreparedCall:
        """Return a call with copies of what it writes to, as far as it is checked."""
        host = HostCall(prepared.call.func, prepared.name, prepared.arguments, tuple(written))
        free, blocks = self._blocks(host)
        changed = {id(tensor) for tensor in written}
        parts = []
        for block in blocks:
            arguments = sampling.part(host, block, free).arguments
            parts.append((block, {
                name: value.clone() if id(prepared.arguments[name]) in changed else value
                for name, value in arguments.items()
            }))  # fmt: skip
        return prepared._replace(parts=tuple(parts))

    def _blocks(self, host: HostCall) -> tuple[bindings.FreeDims, list[sampling.SampleBlock]]:
        free = bindings.free_dims(host)
        if self._replaces:
            return free, [()]
        reads = max((each.numel() for each in host.arguments.values() if isinstance(each, Tensor)), default=0)
        return free, self._sampler.draw(host.outputs[0].shape, free.result, reads)

    def compare_result(self, prepared: PreparedCall, result: Any) -> Any:
        """Compute the call by the kernels, compare, and return the result for the program."""
        outputs = tuple(prepared.call.result_tensors(result))
        elements = sum(output.numel() for output in outputs)
        if not elements:
            self._last.checked = CheckedCall()
            return result
        host = HostCall(prepared.call.func, prepared.name, prepared.arguments, outputs)
        with self._lock, torch.inference_mode():
            try:
                self._last.checked = self._check(host, prepared, elements)
            except (UnboundError, KernelError, Unfit) as error:
                self._last.checked = CheckedCall(elements=elements, reason=str(error))
            except Exception as error:  # noqa: BLE001 - the program goes on with the CPU's values
                reason = f"opcheck's own limit: {type_and_text(error)}"
                self._last.checked = CheckedCall(elements=elements, reason=reason)
        return result

    def _check(self, host: HostCall, prepared: PreparedCall, elements: int) -> CheckedCall:
        if prepared.parts:
            calls = [sampling.with_operands(host, block, arguments) for block, arguments in prepared.parts]
        else:
            free, blocks = self._blocks(host)
            calls = [sampling.part(host, block, free) for block in blocks]
        total, wrong, kernels = 0, None, ""
        for call in calls:
            bound = self._plans.run(call)
            wrong_here, compared = find_wrong(call, bound)
            total, kernels = total + compared, bound.kernels
            if wrong_here and (wrong is None or wrong_here.error > wrong.error):
                wrong = wrong_here
            if self._replaces:
                self._replace(bound, host.outputs)
        return CheckedCall(kernels, elements, total, wrong)

    def _replace(self, bound: CallArguments, outputs: tuple[Tensor, ...]) -> None:
        for computed, output in zip(bound.results, outputs, strict=False):
            if computed is not None:
                with torch.no_grad():
                    output.copy_(computed)

    def take(self) -> CheckedCall | None:
        """Return what came of the call that this thread made last; None if no Metal kernel computes it."""
        checked: CheckedCall | None = getattr(self._last, "checked", None)
        self._last.checked = None
        return checked
