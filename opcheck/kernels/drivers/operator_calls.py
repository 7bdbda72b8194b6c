"""Calls a kernel through the host side of an operator: with the launches that a program's own call has."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from opcheck.common.versions import Version
from opcheck.kernels.host import bindings
from opcheck.kernels.host.host_call import HostCall, HostLaunch, HostWork
from opcheck.kernels.host.release_kernels import ReleaseKernels
from opcheck.kernels.kernel_machine import Kernel
from opcheck.kernels.launch import KernelCall, Launch, Result
from opcheck.kernels.values import UNTOUCHED

#: The word of a kernel whose offsets have 64 bits.
_WIDE = re.compile(r"(?<=_[iu])64(?=_|$)|(?<=int)64(?=_)|(?<=_)64$")


class _OneKernel(ReleaseKernels):
    """A release with a single kernel, so that no other one is chosen."""

    def __init__(self, kernel: Kernel) -> None:
        self.torch = Version.parse("2.15")
        self._kernel = kernel

    def find(self, name: str) -> str:
        """Return the kernel's name if the host looks for it, or for its twin with offsets of 32 bits.

        The host chooses between the two by the size of the tensors, and those of the drivers are small.
        """
        own = self._kernel.name
        each = own, _WIDE.sub("32", own)
        return own if any(f"{spelling}_".startswith(f"{name}_") for spelling in each) else ""

    def kernel(self, name: str) -> Kernel:
        """Return the kernel."""
        assert name == self._kernel.name
        return self._kernel


def call_operator(
    call: KernelCall, name: str, *results: Result | None, dtypes: Sequence[torch.dtype] = (), **arguments: Any
) -> Launch:
    """Return the launch of a kernel in a call of an operator; the last launch, if there are several.

    Args:
        call: of the kernel.
        name: of the operator, as the host's tables have it.
        results: what each result should be; None: it is not compared.
        dtypes: of the results; those of the operands that ``results`` shows, if there are none.
        arguments: all arguments of the operator.

    Raises:
        UnboundError: the host launches another kernel.
    """
    dtypes = dtypes or [each[0].dtype if each else torch.bool for each in results]
    outputs = tuple(
        torch.empty(each[1].shape if each else (0,), dtype=dtype) for each, dtype in zip(results, dtypes, strict=True)
    )
    bound = bindings.bind(HostCall(None, name, arguments, outputs), _OneKernel(call.kernel))
    expected: dict[str, Result] = {}
    derived: dict[str, Callable[[Mapping[str, Tensor]], Tensor]] = {}
    place = max(at for at, step in enumerate(bound.launches) if isinstance(step, HostLaunch))
    for wanted, result in zip(results, bound.results, strict=True):
        if wanted is not None and result is not None:
            result.fill_(1 if result.dtype == torch.bool else UNTOUCHED)
            expected[f"result {len(expected)}"] = wanted
            derived[f"result {len(derived)}"] = _read(result, bound.launches[place + 1 :])
    for step in bound.launches[:place]:
        step.run()
    last = bound.launches[place]
    assert isinstance(last, HostLaunch)
    nothing = torch.empty(0)  # at address 0, as the host binds nothing
    memory = {key: nothing if held is None else held for key, held in last.memory.items()}
    return Launch({**memory, "kept": last.kept}, last.threads, expected, last.group, derived=derived)


def _read(result: Tensor, after: Sequence[HostWork | HostLaunch]) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """Return a function that does the host's work after the launch, and returns the result."""

    def read(_bound: Mapping[str, Tensor]) -> Tensor:
        for step in after:
            step.run()
        return result

    return read
