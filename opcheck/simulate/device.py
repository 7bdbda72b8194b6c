"""The ``mps`` device as Python sees it: moves, and which API call works on it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from opcheck.simulate import indexing, optimizers, sparse
from opcheck.simulate.crossing import copied, swap
from opcheck.simulate.flight import FLIGHT
from opcheck.simulate.tensor import MPS_DEVICE, MPSTensor, parse_to

#: torch/nn/parameter.py detaches what is of another class than Tensor, as nothing on a Mac is.
_MAKES_PARAMETER = torch.nn.Parameter.__new__.__code__
_DETACH = {torch.Tensor.detach, torch.Tensor.detach_, torch.detach, torch.detach_}
_TO = {torch.Tensor.to}
_PIN = {torch.Tensor.pin_memory}
_TO_MPS = {getattr(torch.Tensor, name) for name in ("mps",) if hasattr(torch.Tensor, name)}
_REPLACED: dict[Any, Callable[..., Any]] = {
    indexing.GET: indexing.get,
    indexing.SET: indexing.put,
    **optimizers.REPLACED,
    **sparse.REPLACED,
}
#: make a tensor of Python data, in which C++ would read the numbers of tensors below the simulation's key
_FROM_DATA = {torch.tensor, torch.as_tensor}
_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]  # a descriptor

Watcher = Callable[[Callable[..., Any], Any, Any, Any], None]


class DeviceMode(TorchFunctionMode):
    """Moves CPU tensors to ``mps`` and notes for each API call whether it works on MPS tensors.

    C++ refuses ``.to("mps")`` on a build without MPS, and cannot see that a temporary belongs on MPS
    (simulate/dispatcher.py, ``Flight``).
    """

    def __init__(self, on_cpu: Watcher | None = None) -> None:
        super().__init__()
        #: told each API call whose result stays on the CPU, with that result
        self._on_cpu = on_cpu

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See one API call."""
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if device is None and as_device(_device.CURRENT_DEVICE) is MPS_DEVICE and _makes(func):
            # torch.set_default_device: its mode is always below this one (torch/utils/_device.py).
            device = MPS_DEVICE
            kwargs = {**kwargs, "device": device}
        if device is not None and func not in _TO:
            # A string without an index is a device that C++ would initialize.
            kwargs = {**kwargs, "device": as_device(device)}
        instead = _instead(func, args, kwargs)
        if instead is not None:
            return instead
        if func in _FROM_DATA and args:
            args = (_read(args[0]), *args[1:])
        before = (FLIGHT.on_mps, FLIGHT.detaches, FLIGHT.engine)
        FLIGHT.on_mps = device is None and _any_on_mps(args, kwargs)
        FLIGHT.engine = False
        FLIGHT.detaches = func in _DETACH and sys._getframe(1).f_code is not _MAKES_PARAMETER
        generator = kwargs.get("generator")
        if generator is not None:
            FLIGHT.draws_on_cpu = generator.device.type == "cpu"
            if (
                not FLIGHT.draws_on_cpu
                and not FLIGHT.on_mps
                and as_device(device) is not MPS_DEVICE
            ):
                # ATen/core/Generator.h, check_generator, in a kernel of the CPU
                FLIGHT.on_mps, FLIGHT.detaches, FLIGHT.engine = before
                raise RuntimeError("Expected a 'cpu' device type for generator but found 'mps'")
        try:
            result = _REPLACED.get(func, func)(*args, **kwargs)
        finally:
            FLIGHT.on_mps, FLIGHT.detaches, FLIGHT.engine = before
            FLIGHT.draws_on_cpu = False
        if self._on_cpu is not None and type(result) is torch.Tensor:
            self._on_cpu(func, args, kwargs, result)
        return result


def _instead(func: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
    """What the call comes to where it is not made; None: it is."""
    if func in _TO and type(args[0]) is not MPSTensor:
        return _moved(*args, **kwargs)
    if func in _PIN:
        # Asks the accelerator of the build for its allocator; pages that are pinned change no operator call.
        return cast("torch.Tensor", args[0])
    if func in _TO_MPS:
        return copied(args[0], device=MPS_DEVICE)
    if func == _SET_DATA and type(args[0]) is not type(args[1]) is MPSTensor:
        swap(*args)
        return cast("torch.Tensor", args[0])
    return None


def as_device(device: Any) -> Any:
    """``mps`` as ``mps:0``, and so the index of the accelerator; anything else as it is."""
    if type(device) is int:
        return torch.device("mps", device) if device else MPS_DEVICE
    if device == "mps" or (isinstance(device, torch.device) and device.type == "mps"):
        return MPS_DEVICE
    return device


def _read(data: Any) -> Any:
    """Nested data with the values of its tensors in place of them."""
    if type(data) is not list and type(data) is not tuple:
        return data
    return [each.tolist() if type(each) is MPSTensor else _read(each) for each in data]


def _makes(func: Any) -> bool:
    return func in _device._device_constructors()


def _any_on_mps(args: Any, kwargs: Any) -> bool:
    for value in args:
        kind = type(value)
        if kind is MPSTensor:
            return True
        if (kind is list or kind is tuple) and _any_on_mps(value, {}):
            return True
    return any(type(value) is MPSTensor for value in kwargs.values())


def _moved(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor | None:
    if not any(_names_mps(value) for value in (*args, *kwargs.values())):
        return None
    _device, dtype, non_blocking, memory_format, _copy = parse_to(
        *(as_device(value) for value in args),
        **{name: as_device(value) for name, value in kwargs.items()},
    )
    options: dict[str, Any] = {"device": MPS_DEVICE, "dtype": dtype, "non_blocking": non_blocking}
    if memory_format is not None:
        options["memory_format"] = memory_format
    return copied(tensor, **options)


def _names_mps(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return type(value) is MPSTensor
    return as_device(value) is MPS_DEVICE
