"""The kernels of one release, found by the beginnings of their names, and loaded once."""

import bisect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from opcheck.common.errors import OpcheckError
from opcheck.common.versions import Version
from opcheck.kernels import library
from opcheck.kernels.host.host_call import CallArguments, Extents, HostCall, HostLaunch, UnboundError, launch
from opcheck.kernels.kernel_machine import Kernel, KernelError, KernelMachine

#: What is bound, by the names of a kernel's arguments.
Bound = Mapping[str, Any]
#: The name of a kernel, or those that it has in one release or another.
Names = str | Sequence[str]


class ReleaseKernels:
    """The kernels of a release, for this machine.

    Args:
        released: the library of the release.
        machine: runs the kernels.
    """

    def __init__(self, released: library.Library, machine: KernelMachine) -> None:
        self.torch = Version.parse(released.torch)
        self._released, self._machine = released, machine
        self._names = sorted(released.functions)
        self._loaded: dict[str, Kernel | str] = {}

    def find(self, name: str) -> str:
        """Return the kernel of this name, or that whose name goes on with the types of its parameters; or empty."""
        if name in self._released.functions:
            return name
        place = bisect.bisect_left(self._names, f"{name}_")
        following = self._names[place] if place < len(self._names) else ""
        return following if following.startswith(f"{name}_") else ""

    def first(self, *names: str) -> Kernel:
        """Return the first kernel of some names that the release has.

        Raises:
            UnboundError: it has none of them.
            KernelError: it cannot be compiled or run here.
        """
        for name in names:
            if whole_name := self.find(name):
                return self.kernel(whole_name)
        raise UnboundError(f"the release has no kernel for it: {names[0]}")

    def launch(self, names: Names, bound: Bound, threads: Extents, group: Extents = 1, **more: Any) -> HostLaunch:
        """Return the launch of the kernel of a name, or of the first of several; as ``host_call.launch``."""
        several = (names,) if isinstance(names, str) else names
        return launch(self.first(*several), bound, threads, group, **more)

    def bind(
        self, names: Names, bound: Bound, threads: Extents, *results: Tensor | None, group: Extents = 1
    ) -> CallArguments:
        """Return a call that is one launch, as ``launch``."""
        return CallArguments((self.launch(names, bound, threads, group),), results)

    def kernel(self, name: str) -> Kernel:
        """Return a kernel, compiled for this machine.

        Raises:
            KernelError: it cannot be compiled or run here.
        """
        loaded = self._loaded.get(name)
        if loaded is None:
            try:
                compiled = self._machine.compile_cached(self._released.functions[name])
                loaded = self._machine.kernel(compiled)
            except KernelError as error:
                loaded = str(error)
            except OpcheckError as error:  # no C++ compiler
                loaded = error.message
            self._loaded[name] = loaded
        if isinstance(loaded, str):
            raise KernelError(loaded)
        return loaded


#: Returns the launches of a call in a release.
Binder = Callable[[HostCall, ReleaseKernels], CallArguments]


def of_release(release: str, machine: KernelMachine, wheels: Path | None = None) -> ReleaseKernels:
    """Return the kernels of a release such as 2.15.0.

    Raises:
        OpListError: the wheel cannot be had, or has no compiled kernels.
    """
    released = library.read(release, wheels)
    released.check_compiled()
    return ReleaseKernels(released, machine)
