"""Install the target's MPS registrations in the dispatcher of the installed torch.

With a kernel for MPS present the dispatcher takes the Mac's decisions: ``aten::linear`` stays
whole, and the generated autograd kernel calls ``linear_backward``, because VariableType kernels are
registered for the alias key Autograd.  The kernels themselves are never reached where the
simulation's dispatch mode is on: its Python key comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from opcheck.simulator.real_device import unreachable
from opcheck.simulator.routes import KERNEL_VALUES
from opcheck.tracing.torch_private import dispatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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
