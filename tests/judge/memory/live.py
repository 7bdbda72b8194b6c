"""The most memory that a program holds at once: seen on the plain CPU, and estimated from a simulated run."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from opcheck.capture.child.move import Mover
from opcheck.capture.child.recording.graph import op_calls, to_graph
from opcheck.capture.child.recording.recorder import Numbers, Recorder, lifetimes
from opcheck.data.registrations import load
from opcheck.judge.memory.replay import list_taken, sweep
from opcheck.model.records import Trace
from opcheck.simulator.mac import simulated_mac
from tests.simulator.mac import target

#: A module and its inputs are given; it may train.
Program = Callable[..., Any]


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types there
    """Adds up, after each call, the bytes of all storages that still have an owner."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}

    def see(self, values: Any) -> None:
        for value in tree_iter(values):
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._live[reference.cdata] = (reference, storage.nbytes())
        gone = [key for key, (item, _) in self._live.items() if item.expired()]  # type: ignore[no-untyped-call]
        for key in gone:
            del self._live[key]
        self.peak = max(self.peak, sum(size for _, size in self._live.values()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.see(result)
        return result


def seen(program: Program, module: nn.Module, *inputs: torch.Tensor) -> int:
    """Bytes on the CPU."""
    module = copy.deepcopy(module)
    watch = Watch()
    watch.see((list(module.parameters()), list(module.buffers()), inputs))
    # A Mac's attention with gradients is the one that writes the weights out.
    with sdpa_kernel(SDPBackend.MATH), watch:
        program(module, *inputs)
    return watch.peak


def estimated(program: Program, module: nn.Module, *inputs: torch.Tensor) -> int:
    """Bytes by the lifetimes of a run on the simulated Mac."""
    module = copy.deepcopy(module)
    trace = traced(program, module, *inputs)
    return max(peaks_as_recorded(trace).values())


def peaks_as_recorded(trace: Trace) -> dict[str, int]:
    """The most bytes at once in each phase of the recorded run, with nothing added for later steps."""
    peaks: dict[str, int] = {}
    for call, at in zip(trace.calls, sweep(list_taken(trace), len(trace.calls)), strict=True):
        peaks[call.phase] = max(sum(at.values()), peaks.get(call.phase, 0))
    return peaks


def traced(program: Program, module: nn.Module, *inputs: torch.Tensor) -> Trace:
    """The calls and the lifetimes, as a capture makes them."""
    recorder, mover = Recorder(), Mover(16_384)
    mover.module(module)
    moved = mover.value(inputs, "args")
    with simulated_mac(target(), dict(load().operators("2.13")), recorder), _phases(recorder):
        program(module, *moved)
    numbers = Numbers()
    graph = to_graph(recorder.calls, mover.names, recorder.place, numbers)
    lives = lifetimes(recorder.calls, recorder.tensors.freed, mover.placed, numbers)
    return Trace(model="program", calls=op_calls(graph), lifetimes=lives)


@contextlib.contextmanager
def _phases(recorder: Recorder) -> Iterator[None]:
    """Tell backward and the optimizer's step from the rest, as a captured training step does."""
    backward = torch.Tensor.backward

    def marked(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        recorder.sites.phase = "backward"
        torch.autograd.backward(tensor, *args, **kwargs)
        recorder.sites.phase = "optimizer"

    torch.Tensor.backward = marked  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.Tensor.backward = backward  # type: ignore[method-assign]
