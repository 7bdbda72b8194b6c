"""Keeps the launches of calls that differ in nothing but their numbers, so that a loop binds each call once."""

from typing import Any, NamedTuple

from torch import Tensor

from opcheck.kernels.host import bindings
from opcheck.kernels.host.host_call import BoundCall, HostCall, HostLaunch, HostWork
from opcheck.kernels.host.release_kernels import ReleaseKernels
from opcheck.kernels.kernel_machine import ArrangedLaunch

#: So many plans are kept: a step size that changes in each call makes a new one.
_KEPT = 4096


class CallPlan(NamedTuple):
    """The launches of a call, in memory, and the arguments that are put into each, by their places."""

    launches: tuple[ArrangedLaunch | HostWork, ...]
    slots: tuple[tuple[int, int, str], ...]
    bound: BoundCall

    def run(self, call: HostCall) -> BoundCall:
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

    def run(self, call: HostCall) -> BoundCall:
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

    def _bind(self, call: HostCall) -> BoundCall:
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


def _plan_of(call: HostCall, bound: BoundCall) -> CallPlan | None:
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
