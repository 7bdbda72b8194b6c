"""Simulate a Mac for the length of a with block."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from opcheck.data.registrations import load
from opcheck.simulator.dispatch.autocast import autocast_of
from opcheck.simulator.dispatch.calls import Sink
from opcheck.simulator.dispatch.dispatch_context import entered
from opcheck.simulator.dispatch.dispatcher import KEEP_ELEMENTS, Simulator
from opcheck.simulator.dispatch.gradient_devices import engine_seen_by
from opcheck.simulator.dispatch.mps_registrations import (
    MpsRegistrations,
    note_branches,
    present_and_absent,
)
from opcheck.simulator.dispatch.tensor import retire
from opcheck.simulator.real_device import cover_device_functions, out_of_reach
from opcheck.simulator.threads import followed_threads
from opcheck.simulator.visible.device_mode import DeviceMode, Watcher
from opcheck.simulator.visible.methods import methods_of_mac
from opcheck.simulator.visible.storage import dlpack_of_mac
from opcheck.simulator.visible.surface import mac_surface, mps_backend
from opcheck.tracing.torch_private.backend import only_cpu_lifted, set_only_cpu_lifted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from opcheck.common.versions import Target


@contextlib.contextmanager
def simulated_mac(
    target: Target,
    registrations: Mapping[str, str],
    sink: Sink,
    *,
    keep: int = KEEP_ELEMENTS,
    on_cpu: Watcher | None = None,
    simulator_type: type[Simulator] = Simulator,
    allocated: Callable[[], int] = int,
) -> Iterator[Simulator]:
    """Dispatch as the target does; ``registrations`` maps each overload to its value on MPS.

    ``on_cpu`` is told each API call whose result is a tensor of the CPU; ``allocated`` returns the bytes that live
    tensors take on the device, 0 where nobody counts them.

    The process's dispatcher and ``torch.backends.mps`` are as before when the block ends.  Nothing inside it reaches
    a real device, in no thread (simulator/real_device.py).
    """
    with (
        out_of_reach(),
        _simulated(
            target, registrations, sink, keep, on_cpu, simulator_type, allocated
        ) as simulator,
    ):
        yield simulator


@contextlib.contextmanager
def _simulated(
    target: Target,
    registrations: Mapping[str, str],
    sink: Sink,
    keep: int,
    on_cpu: Watcher | None,
    simulator_type: type[Simulator],
    allocated: Callable[[], int],
) -> Iterator[Simulator]:
    simulator = simulator_type(target, registrations, sink, keep=keep)
    context = simulator.context
    kernels, _ = present_and_absent(registrations)
    installed = MpsRegistrations(
        kernels, note_branches(registrations, simulator.branches, simulator.passed)
    )
    # torch.tensor(..., device="mps") allocates below all modes unless only CPU tensors are lifted
    # (torch/csrc/utils/tensor_new.cpp; FakeTensorMode sets the same).
    lifted = only_cpu_lifted()
    set_only_cpu_lifted(True)
    lists = load()
    policies = lists.operators(str(target.torch), "AutocastMPS")
    autocast = autocast_of(context.ask, policies, lists.names("AutocastMPS"))
    try:
        device = DeviceMode(context, on_cpu)
        with (
            entered(context),
            cover_device_functions(),
            mps_backend(target),
            mac_surface(target, allocated),
            autocast,
            methods_of_mac(),
            dlpack_of_mac(),
            simulator,
            device,
            engine_seen_by(device, context),
            followed_threads(lambda: _modes(simulator, on_cpu)),
        ):
            yield simulator
    finally:
        set_only_cpu_lifted(lifted)
        installed.remove()
        retire()


@contextlib.contextmanager
def _modes(simulator: Simulator, on_cpu: Watcher | None) -> Iterator[None]:
    with simulator, DeviceMode(simulator.context, on_cpu):
        yield
