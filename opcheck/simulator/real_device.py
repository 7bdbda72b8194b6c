"""Keep the GPU of this machine out of reach while a program is followed: on a Mac the installed torch computes on it.

A simulation's modes belong to one thread, and C++ and libraries take ways that no mode sees.  So each kernel that is
registered for a key of MPS is covered for the whole process by a kernel that raises, and so is each function of
``torch._C`` that lets the device work.  What only describes the machine stays: whether there is a device, the
generator, which is an object of the host.

Two parts of a Mac's build cannot be covered from Python, and run nothing on the GPU: the device guard, which
no simulated tensor needs because its C++ device is the CPU (simulator/dispatch/tensor.py), and the
backend-wide fallback, which raises or computes on the CPU (MPSFallback.mm).
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from opcheck.common.replacing import replace_attributes
from opcheck.simulator.errors import OutsideError
from opcheck.tracing.torch_private import backend, dispatch

#: The keys that have kernels of MPS (op_lists/registrations).
_KEYS = ("MPS", "SparseMPS", "SparseCsrMPS")
#: C++ warns once that a kernel was registered before (aten/src/ATen/core/dispatch/OperatorEntry.cpp, 2.8 to 2.15).
_OVERRIDING = "Warning only once for all operators"

#: The kernels that are covered now, by key and operator.
_covered: set[tuple[str, str]] = set()


@contextlib.contextmanager
def out_of_reach() -> Iterator[None]:
    """Let no thread of this process compute on a real MPS device; it raises OutsideError instead.

    An inner block covers what was registered since the outer one began, as by a library that was imported.
    """
    if not backend.BUILT_FOR_MPS:
        yield
        return
    covers, names = _cover()
    try:
        with cover_device_functions():
            yield
    finally:
        _covered.difference_update(names)
        for cover in covers:
            dispatch.unregister(cover)


@contextlib.contextmanager
def cover_device_functions() -> Iterator[None]:
    """Let ``torch._C``'s functions of the device raise OutsideError, whatever torch is built for."""
    with replace_attributes([(*door, unreachable(door.name)) for door in backend.device_functions()]):
        yield


@contextlib.contextmanager
def hide_device() -> Iterator[None]:
    """Present a machine without an MPS device to a program that runs on the CPU, and keep a real one out of reach."""
    if not backend.BUILT_FOR_MPS:
        yield
        return
    answers = [(*place, answer) for place, answer in backend.without_device() if place.exists()]
    with out_of_reach(), replace_attributes(answers):
        yield


def unreachable(name: str) -> Callable[..., Any]:
    """Return a kernel, or a function, that raises OutsideError."""

    def kernel(*_args: Any, **_kwargs: Any) -> Any:
        message = (
            f"{name} was called for mps outside of the simulation: "
            "in a thread that was started before it, or by code that goes past PyTorch's dispatcher"
        )
        raise OutsideError(message)

    return kernel


def _cover() -> tuple[list[torch.library.Library], set[tuple[str, str]]]:
    names = {(key, name) for key in _KEYS for name in dispatch.registered_for(key)} - _covered
    covers: dict[tuple[str, str], torch.library.Library] = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_OVERRIDING)
        for key, name in names:
            namespace = name.partition("::")[0]
            if (key, namespace) not in covers:
                covers[key, namespace] = torch.library.Library(namespace, "IMPL", key)
            dispatch.register_over(covers[key, namespace], name, key, unreachable(name))
    _covered.update(names)
    return list(covers.values()), names
