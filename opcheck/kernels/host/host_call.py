"""An operator call as the host side gets it, and what it launches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from opcheck.kernels import launch as launching
from opcheck.kernels.kernel_machine import ArrangedLaunch, Kernel
from opcheck.kernels.kernel_names import WORDS

#: Metal's word for each dtype.
_METAL: dict[str, str] = {
    "float8_e4m3fn": "float8_e4m3fn",
    **{dtype: word for word, dtype in WORDS.items() if word not in WORDS.values() or word == "bool"},
}


#: The extents of a grid or a threadgroup; of one extent the number.
Extents = int | Sequence[int]


class UnboundError(ValueError):
    """The host side of this call is not in the table, or chooses no kernel; the message has the reason."""


class HostCall(NamedTuple):
    """A call of an operator: the overload, its name without that and underscore, all arguments, the results."""

    func: Any
    name: str
    arguments: Mapping[str, Any]
    outputs: tuple[Tensor, ...]
    #: of the first result of the whole call, where this is a part of it
    elements: int = 0


class HostLaunch(NamedTuple):
    """One launch of a kernel."""

    kernel: Kernel
    #: by the names of the kernel's arguments; None: the host binds nothing
    memory: Mapping[str, Tensor | None]
    threads: Sequence[int]
    group: Sequence[int] = (1,)
    #: tensors whose addresses are in the memory
    kept: tuple[Tensor, ...] = ()

    def run(self) -> None:
        """Run it.

        Raises:
            KernelError: it cannot be run.
        """
        self.arrange().run()

    def arrange(self) -> ArrangedLaunch:
        """Return the launch in memory."""
        arranged = ArrangedLaunch(self.kernel, self.threads, self.group)
        for name, tensor in self.memory.items():
            if name in self.kernel.places:
                address = 0 if tensor is None else tensor.data_ptr()
                arranged.pointers[self.kernel.places[name]] = address
        return arranged


class HostWork(NamedTuple):
    """What the host does between launches, on memory that the call alone has."""

    run: Callable[[], object]

    def arrange(self) -> HostWork:
        """Return itself: it needs no arrangement."""
        return self


#: A step of a call.
Step = HostLaunch | HostWork


class CallArguments(NamedTuple):
    """The launches of a call, in their order, and the memory of its results."""

    launches: tuple[Step, ...]
    #: in the shape of the call's outputs; None for an output that is not compared
    results: tuple[Tensor | None, ...]
    #: of a pointwise call: the functor, its operands, its parameters
    functor: str = ""
    operands: tuple[Tensor, ...] = ()
    parameters: tuple[float, ...] = ()
    #: binds and runs the call itself, where the launches and operands here are those of an earlier call of its form
    again: Callable[[], CallArguments] | None = None

    def run(self) -> None:
        """Run the launches.

        Raises:
            KernelError: one cannot be run.
        """
        for launch in self.launches:
            launch.run()

    def run_otherwise(self, look: Callable[[], Tensor]) -> Tensor:
        """Return what a look at the results finds where nothing is fused and denormals are kept; then run again.

        Raises:
            KernelError: a launch cannot be run.
        """
        kernels = {id(kernel): kernel for kernel in self.used_kernels}.values()
        flushed = [kernel.flushed for kernel in kernels]
        try:
            for kernel in kernels:
                kernel.flushed = False
                if kernel.fusible:
                    kernel.fuse(fused=False)
            self.run()
            seen = look()
        finally:
            for kernel, was in zip(kernels, flushed, strict=True):
                kernel.flushed = was
                if kernel.fusible:
                    kernel.fuse(fused=True)
        self.run()
        return seen

    @property
    def used_kernels(self) -> list[Kernel]:
        """The kernel of each launch."""
        return [launch.kernel for launch in self.launches if isinstance(launch, HostLaunch)]

    @property
    def kernels(self) -> str:
        """The names of the kernels."""
        return " ".join(dict.fromkeys(kernel.name for kernel in self.used_kernels))


def metal_type(tensor: Tensor) -> str:
    """Return Metal's name of a tensor's dtype.

    Raises:
        UnboundError: Metal has none.
    """
    word = _METAL.get(str(tensor.dtype).removeprefix("torch."))
    if word is None:
        raise UnboundError(f"no Metal type for {tensor.dtype}")
    return word


def empty_like(output: Tensor) -> Tensor:
    """Return memory for a result of the same shape, strides and dtype."""
    return torch.empty_strided(output.shape, output.stride(), dtype=output.dtype)


def launch(
    kernel: Kernel, bound: Mapping[str, Any], threads: Extents, group: Extents = 1, kept: tuple[Tensor, ...] = ()
) -> HostLaunch:
    """Return the launch of a kernel; a number takes the type of its argument.

    Args:
        kernel: the kernel.
        bound: memory, numbers, those of a struct by its fields, or None where the host binds nothing, by the names
            of its arguments; names that this release lacks are left out.
        threads: the extents of the grid.
        group: those of a threadgroup.
        kept: tensors whose addresses are among the numbers.

    Raises:
        UnboundError: an argument has neither memory nor a number.
    """
    each = (threads,) if isinstance(threads, int) else threads
    of_group = (group,) if isinstance(group, int) else group
    memory: dict[str, Tensor | None] = {name: None for name, value in bound.items() if value is None}
    memory |= launching.bind(kernel, launching.Launch(bound, each, {}, of_group))
    if lacking := {argument.name for argument in kernel.buffers} - memory.keys():
        raise UnboundError(f"{kernel.name}: nothing is known of its arguments {', '.join(sorted(lacking))}")
    return HostLaunch(kernel, memory, each, of_group, kept)


def round_up(number: int, step: int) -> int:
    """Return the next multiple of a step."""
    return math.ceil(number / step) * step
