"""Install the target's MPS registrations in the dispatcher of the installed torch.

With a kernel for MPS present the dispatcher takes the Mac's decisions: ``aten::linear`` stays
whole, and the generated autograd kernel calls ``linear_backward``, because VariableType kernels are
registered for the alias key Autograd.  The kernels themselves are never reached where the
simulation's dispatch mode is on: its Python key comes first.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.simulator import target_reads
from opcheck.simulator.dispatch.dispatcher import Simulator
from opcheck.simulator.dispatch.operators import BRANCHES
from opcheck.simulator.dispatch.operators.operator import composite, overload_named
from opcheck.simulator.dispatch.routes import KERNEL_VALUES, is_implicit, registered_way
from opcheck.simulator.real_device import unreachable
from opcheck.tracing.torch_private import dispatch

#: torch registers these for MPS on every platform (torch/_refs/linalg/__init__.py, 2.10 to 2.13).
_REGISTERED_EVERYWHERE = "MPS"


def present_and_absent(registrations: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the overloads with a kernel on the target: those that the installed torch has, and those it lacks."""
    names = sorted(name for name, value in registrations.items() if value in KERNEL_VALUES)
    present = [name for name in names if dispatch.has_schema(name)]
    return present, sorted({*names} - {*present})


class MpsRegistrations:
    """The registrations while they are installed; ``remove`` restores the dispatcher."""

    def __init__(self, kernels: Iterable[str], branches: dict[str, Callable[..., Any]]) -> None:
        # A Library that is garbage-collected takes its registrations with it: keep both.
        self._kernels = torch.library.Library("aten", "IMPL", "MPS")
        self._branches = torch.library.Library("aten", "IMPL", "AutogradMPS")
        for name in kernels:
            if not dispatch.has_kernel(name, _REGISTERED_EVERYWHERE):
                self._kernels.impl(name, unreachable(name))
        for name, branch in branches.items():
            if dispatch.has_schema(name):
                self._branches.impl(name, branch)

    def remove(self) -> None:
        """Remove all registrations."""
        dispatch.unregister(self._kernels)
        dispatch.unregister(self._branches)


# -- other targets ---------------------------------------------------------------------------------------------------


def same_dispatch(simulator: Simulator, target: Target, counterpart: Target) -> bool:
    """Return whether the run that ``simulator`` recorded on ``target`` would be the same on ``counterpart``.

    In addition the trace names its target, and what of it the installed torch lacks (``absent``).

    Raises:
        OpListError: the lists have no such torch release.
    """
    if not simulator.context.ask.answered_alike(counterpart) or not target_reads.READS.fits(
        counterpart
    ):
        return False
    implicit_by_name = {route.name: route.implicit for route in simulator.routes}
    implicit_by_name.update(dict.fromkeys(simulator.passed, True))
    return _ways(implicit_by_name, target) == _ways(implicit_by_name, counterpart)


def note_branches(
    registrations: Mapping[str, str], branches: Mapping[str, Callable[..., Any]], passed: set[str]
) -> dict[str, Callable[..., Any]]:
    """Return the target's branches, and the composites that have a kernel or a branch in another release.

    Each of them notes its calls.

    Args:
        registrations: the target's value of every overload.
        branches: the branches of the target.
        passed: takes the names of the overloads called.
    """
    functions = {name: _noting(name, branch, passed) for name, branch in branches.items()}
    for name in _contested_composites():
        if name not in branches and registrations.get(name) not in KERNEL_VALUES:
            body = functools.partial(composite, overload_named(name))
            functions[name] = _noting(name, body, passed)
    return functions


def _noting(name: str, function: Callable[..., Any], passed: set[str]) -> Callable[..., Any]:
    def note_and_call(*args: Any, **kwargs: Any) -> Any:
        passed.add(name)
        return function(*args, **kwargs)

    return note_and_call


@functools.cache
def _contested_composites() -> tuple[str, ...]:
    """Return composites of the installed torch that have a kernel, or a branch, in some releases only."""
    lists = load()
    columns = [lists.operators(release.line) for release in lists.releases]
    names = {name for column in columns for name, value in column.items() if value in KERNEL_VALUES}
    names = {name for name in names if not all(c.get(name) in KERNEL_VALUES for c in columns)}
    names |= {
        name
        for name, branch in BRANCHES.items()
        if not all(Version.parse(release.line) in branch.releases for release in lists.releases)
    }
    return tuple(sorted(name for name in names if is_implicit(name)))


def _ways(implicit_by_name: Mapping[str, bool], target: Target) -> list[str]:
    registrations = load().operators(str(target.torch))
    branches = {name for name, branch in BRANCHES.items() if target.torch in branch.releases}
    return [
        registered_way(
            name,
            implicit=implicit,
            registrations=registrations,
            branches=branches,
        )
        for name, implicit in implicit_by_name.items()
    ]
