"""Runs OpInfos on the simulated Mac and keeps the calls, the composites entered, and every failure."""

import contextlib
import itertools
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.testing._internal import common_methods_invocations

from opcheck.capture.child.recording.graph import op_calls, to_graph
from opcheck.capture.child.recording.recorder import TensorLog, TraceEntry
from opcheck.common.versions import Target, Version
from opcheck.common.vocabulary import Phase
from opcheck.data.registrations import load
from opcheck.model.records import OpCall
from opcheck.simulator.dispatch.calls import Call
from opcheck.simulator.dispatch.dispatcher import Simulator
from opcheck.simulator.dispatch.routes import RouteKind
from opcheck.simulator.dispatch.tensor import placement, to_mps
from opcheck.simulator.mac import simulated_mac
from scripts.opinfo.store import SIMULATED_MACOS, Body, Run

#: values are kept whole: the samples are small, and much of OpInfo's own code looks at them.
KEEP = 1 << 20
_MOST_GUESSES = 200
_CONVOLUTION = "aten::convolution"
_MOST_FAILURES = 4


class Loops(RuntimeError):  # noqa: N818 - what happened, not a kind of error
    """The sample asks for unknown values again and again."""


class Watch:
    """A sink that keeps distinct calls and knows which composites are running."""

    def __init__(self) -> None:
        self.on = False
        self.phase: Phase = "forward"
        self.calls: dict[Any, TraceEntry] = {}
        self._tensors = TensorLog(())
        self.bodies: dict[str, Body] = {}
        self.enters: dict[str, None] = {}
        self._stack: list[set[str]] = []
        self._guesses = 0
        #: the operators as an audit lists them: a composite that C++ runs whole by its own name
        self.called: set[str] = set()

    @contextlib.contextmanager
    def watching(self, phase: Phase = "forward") -> Iterator[None]:
        """Keep what happens in the block."""
        self.on, self.phase, self._guesses, self._stack = True, phase, 0, []
        try:
            yield
        finally:
            self.on = False

    @contextlib.contextmanager
    def calling(self) -> Iterator[set[str]]:
        """Yield the set of the operators that an audit of the block would list, which is complete at its end."""
        self.called = set()
        with self.watching():
            yield self.called

    def record(self, call: Call) -> None:
        """Keep one leaf call."""
        if not self.on:
            return
        name = call.route.name
        inner = call.inner if call.route.composite is not None else None
        if not self._stack and call.refusal is None:
            self.enters.setdefault(name)
        if inner is not None:
            self._enter(name, inner)
        # A plain call of convolution does not say whether it is a transposed one: what it runs does.
        self.called |= set(inner or ()) if name == _CONVOLUTION else {name}
        result = {name} if inner is None else set(inner)
        for leaves in self._stack:
            leaves.update(result)
        key = (self.phase, call.key, inner, call.refusal)
        if key not in self.calls:
            self.calls[key] = TraceEntry(self._tensors.keep(call), None, "", self.phase)

    def count_requests(self, _operator: str) -> int:
        """Each question is the first."""
        return 0

    def guess(self, operator: str, answer: Any) -> None:
        """Give up on a sample that loops.

        Raises:
            Loops: it asked too often.
        """
        self._guesses += 1
        if self.on and self._guesses > _MOST_GUESSES:
            message = f"{operator} was asked for unknown values {self._guesses} times: {answer}"
            raise Loops(message)

    def follow_bodies(self, simulator: Simulator) -> None:
        """Note what runs inside of a composite's body."""
        run: Callable[..., Any] = simulator._run_body  # noqa: SLF001 - its only seam

        def watched(route: Any, args: Any, kwargs: Any) -> Any:
            if not self.on:
                return run(route, args, kwargs)
            if not self._stack:
                self.enters.setdefault(route.name)
            leaves: set[str] = set()
            self._stack.append(leaves)
            try:
                result = run(route, args, kwargs)
            finally:
                self._stack.pop()
            if route.kind is not RouteKind.LEAF:
                self._enter(route.name, leaves)
            return result

        simulator._run_body = watched  # type: ignore[method-assign]  # noqa: SLF001

    def _enter(self, name: str, leaves: Iterable[str]) -> None:
        self.merge({name: Body(entered=1, leaves=dict.fromkeys(leaves, 1))})

    def merge(self, bodies: dict[str, Body]) -> None:
        """Add what another process has seen of composites."""
        for name, seen in bodies.items():
            body = self.bodies.setdefault(name, Body(leaves={}))
            body.entered += seen.entered
            for leaf, number in seen.leaves.items():
                body.leaves[leaf] = body.leaves.get(leaf, 0) + number

    def taken(self) -> tuple[OpCall, ...]:
        """The distinct calls since the last time, in order."""
        graph = to_graph(list(self.calls.values()), {})
        self.calls = {}
        return op_calls(graph)


@contextlib.contextmanager
def mac(line: str, watch: Watch) -> Iterator[Simulator]:
    """The simulated Mac with ``line``'s registrations, on which make_tensor makes MPS tensors."""
    target = Target(torch=Version.parse(line), macos=Version.parse(SIMULATED_MACOS))
    registrations = dict(load().operators(line))
    with simulated_mac(target, registrations, watch, keep=KEEP) as simulator, _samples_on_mps():
        watch.follow_bodies(simulator)
        yield simulator


@contextlib.contextmanager
def _samples_on_mps() -> Iterator[None]:
    original = torch.testing.make_tensor

    def make_tensor(*shape: Any, device: Any = "cpu", **options: Any) -> Any:
        if not str(device).startswith("mps"):
            return original(*shape, device=device, **options)
        needs_grad = options.pop("requires_grad", False)
        made = to_mps(original(*shape, device="cpu", **options), keep=KEEP)
        return made.requires_grad_(needs_grad) if needs_grad else made

    instead = {
        "make_tensor": make_tensor,
        # It looks for the running test by inspecting the whole stack, which takes longer than most samples.
        "extract_test_fn": lambda: None,
    }
    with contextlib.ExitStack() as stack:
        # OpInfo seeds before each sample, and torch.manual_seed formats a stack for every other device.
        stack.enter_context(patch.object(torch, "manual_seed", torch.default_generator.manual_seed))
        # Every module of OpInfo's has imported the names for itself.
        for path, module in list(sys.modules.items()):
            if path.startswith("torch.testing._internal"):
                for name in instead.keys() & vars(module).keys():
                    stack.enter_context(patch.object(module, name, instead[name]))
        yield


def samples_of(op: Any, dtype: torch.dtype, limit: int, device: str = "mps:0") -> list[Any]:
    """Up to ``limit`` samples as test/test_mps.py makes them; on MPS inside of ``mac``."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the generator that OpInfo draws from
    torch.manual_seed(0)
    made = op.sample_inputs(
        device,
        dtype,
        requires_grad=dtype.is_floating_point or dtype.is_complex,
        include_conjugated_inputs=dtype.is_complex and op.test_conjugated_samples,
    )
    return list(itertools.islice(made, limit))


def run(op: Any, samples: list[Any], watch: Watch, *, gradient: bool) -> Run:
    """The calls that the samples make: forward in inference mode, or forward and backward."""
    failures: dict[str, None] = {}
    for sample in samples:
        try:
            args = list(sample.args)
            # test/test_mps.py: the second argument of tensor_split must be on the CPU.
            known = placement(args[0]) if args and isinstance(args[0], torch.Tensor) else None
            if op.name == "tensor_split" and known is not None:
                args[0] = known.payload
            if gradient:
                _with_gradient(op, sample.input, args, sample.kwargs, watch)
            else:
                with watch.watching(), torch.inference_mode():
                    op(sample.input, *args, **sample.kwargs)
        except Exception as error:  # noqa: BLE001 - torch's samples on a device that is not there
            text = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
            failures.setdefault(text[:200])
    return Run(samples=len(samples), calls=watch.taken(), failures=tuple(failures)[:_MOST_FAILURES])


def _with_gradient(op: Any, first: Any, args: Any, kwargs: Any, watch: Watch) -> None:
    with watch.watching():
        out = op(first, *args, **kwargs)
    outputs = [
        tensor
        for tensor in (out if isinstance(out, (list, tuple)) else [out])
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad
    ]
    inputs = [tensor for tensor in flat((first, args, kwargs)) if tensor.requires_grad and tensor.is_leaf]
    if not outputs or not inputs:
        return
    # The gradients come from outside, so that no reduction of ours is among the calls.
    gradients = [torch.ones_like(tensor) for tensor in outputs]
    with watch.watching("backward"):
        torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)


def flat(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested arguments."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from flat(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from flat(item)


def op_db() -> list[Any]:
    """The operator database of the installed release."""
    return list(common_methods_invocations.op_db)
