"""Simulate a Mac for the length of a with block."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from opcheck.common.replacing import replace_attributes
from opcheck.common.versions import Target
from opcheck.data.registrations import load
from opcheck.simulator.dispatch import mps_registrations
from opcheck.simulator.dispatch.calls import Sink
from opcheck.simulator.dispatch.dispatch_context import make_current
from opcheck.simulator.dispatch.dispatcher import KEEP_ELEMENTS, Simulator
from opcheck.simulator.dispatch.gradient_devices import engine_seen_by
from opcheck.simulator.dispatch.tensor import retire
from opcheck.simulator.real_device import cover_device_functions, out_of_reach
from opcheck.simulator.visible.device_mode import DeviceMode, Watcher
from opcheck.simulator.visible.methods import methods_of_mac
from opcheck.simulator.visible.storage import dlpack_of_mac
from opcheck.simulator.visible.surface import MacMemory, mac_surface, mps_backend
from opcheck.tracing.torch_private import dispatch
from opcheck.tracing.torch_private.backend import only_cpu_lifted, set_only_cpu_lifted

Modes = Callable[[], contextlib.AbstractContextManager[object]]


@contextlib.contextmanager
def simulated_mac(
    target: Target,
    registrations: Mapping[str, str],
    sink: Sink,
    *,
    keep: int = KEEP_ELEMENTS,
    on_cpu: Watcher | None = None,
    simulator_type: type[Simulator] = Simulator,
    memory: MacMemory | None = None,
) -> Iterator[Simulator]:
    """Dispatch as the target does; ``registrations`` maps each overload to its value on MPS.

    ``on_cpu`` receives each API call whose result is a tensor of the CPU; ``memory`` answers for the allocator, with
    zeros where it is not followed.

    The process's dispatcher and ``torch.backends.mps`` are as before when the block ends.  Nothing inside it reaches
    a real device, in no thread (simulator/real_device.py).
    """
    simulator = simulator_type(target, registrations, sink, keep=keep)
    context = simulator.context
    lists = load()
    policies = lists.operators(str(target.torch), "AutocastMPS")
    device = DeviceMode(context, on_cpu)
    with contextlib.ExitStack() as parts:
        parts.enter_context(out_of_reach())
        parts.callback(retire)
        branches = mps_registrations.note_branches(registrations, simulator.branches, simulator.passed)
        present, _absent = mps_registrations.present_and_absent(registrations)
        for library in mps_registrations.install(present, branches):
            parts.callback(dispatch.unregister, library)
        # torch.tensor(..., device="mps") allocates below all modes unless only CPU tensors are lifted
        # (torch/csrc/utils/tensor_new.cpp; FakeTensorMode sets the same).
        parts.callback(set_only_cpu_lifted, only_cpu_lifted())
        set_only_cpu_lifted(True)
        for part in (
            make_current(context),
            cover_device_functions(),
            mps_backend(target),
            mac_surface(memory or MacMemory()),
            mps_registrations.autocast_of(context.ask, policies, lists.names("AutocastMPS")),
            methods_of_mac(),
            dlpack_of_mac(),
            simulator,
            device,
            engine_seen_by(device, context),
            followed_threads(lambda: _modes(simulator, on_cpu)),
        ):
            parts.enter_context(part)
        yield simulator


@contextlib.contextmanager
def _modes(simulator: Simulator, on_cpu: Watcher | None) -> Iterator[None]:
    with simulator, DeviceMode(simulator.context, on_cpu):
        yield


# -- threads ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def followed_threads(modes: Modes) -> Iterator[None]:
    """Run each thread that is started in the block under the modes that ``modes`` makes.

    So runs what is submitted to a ThreadPoolExecutor, whose threads may be older.  The dispatch context of the
    simulation has values of its own in each thread.
    """
    original, submit_to = threading.Thread.start, ThreadPoolExecutor.submit
    here = threading.local()
    here.followed = True

    @contextlib.contextmanager
    def follow_modes() -> Iterator[None]:
        if getattr(here, "followed", False):
            yield
            return
        here.followed = True
        try:
            with modes():
                yield
        finally:
            here.followed = False

    def start(thread: threading.Thread) -> None:
        # Not Thread.run: subclasses override it.
        run = thread.run

        def run_simulated() -> Any:
            with follow_modes():
                return run()

        thread.run = run_simulated  # type: ignore[method-assign]
        original(thread)

    def submit(pool: Any, work: Any, /, *args: Any, **kwargs: Any) -> Any:
        def run_simulated(*arguments: Any, **named: Any) -> Any:
            with follow_modes():
                return work(*arguments, **named)

        return submit_to(pool, run_simulated, *args, **kwargs)

    with replace_attributes([(threading.Thread, "start", start), (ThreadPoolExecutor, "submit", submit)]):
        yield
