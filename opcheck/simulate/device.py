"""What Python sees of the simulated Mac: the ``mps`` device, ``torch.backends.mps``, ``torch.mps``."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from opcheck.simulate.flight import FLIGHT
from opcheck.simulate.tensor import MPS_DEVICE, MPSTensor, parse_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opcheck.versions import Version

_DETACH = {torch.Tensor.detach, torch.Tensor.detach_, torch.detach, torch.detach_}
_TO = {torch.Tensor.to}
_TO_MPS = {getattr(torch.Tensor, name) for name in ("mps",) if hasattr(torch.Tensor, name)}


class DeviceMode(TorchFunctionMode):
    """Moves CPU tensors to ``mps`` and notes for each API call whether it works on MPS tensors.

    C++ refuses ``.to("mps")`` on a build without MPS, and cannot see that a temporary belongs on MPS
    (simulate/dispatcher.py, ``Flight``).
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See one API call."""
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if device is not None and func not in _TO:
            # A string without an index is a device that C++ would initialize.
            kwargs = {**kwargs, "device": as_device(device)}
        if func in _TO and type(args[0]) is not MPSTensor:
            moved = _moved(*args, **kwargs)
            if moved is not None:
                return moved
        elif func in _TO_MPS:
            return torch.ops.aten._to_copy.default(args[0], device=MPS_DEVICE)
        before = (FLIGHT.on_mps, FLIGHT.detaches)
        FLIGHT.on_mps = device is None and _any_on_mps(args, kwargs)
        FLIGHT.detaches = func in _DETACH
        try:
            return func(*args, **kwargs)
        finally:
            FLIGHT.on_mps, FLIGHT.detaches = before


def as_device(device: Any) -> Any:
    """``mps`` as ``mps:0``; anything else as it is."""
    if device == "mps" or (isinstance(device, torch.device) and device.type == "mps"):
        return MPS_DEVICE
    return device


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
    return torch.ops.aten._to_copy.default(tensor, **options)


def _names_mps(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return type(value) is MPSTensor
    return as_device(value) is MPS_DEVICE


@contextlib.contextmanager
def mps_backend(macos: Version) -> Iterator[None]:
    """``torch.backends.mps`` and ``torch.mps`` as on a Mac of this version.

    transformers reads ``is_available`` once, at import (integrations/sdpa_attention.py): enter this before.
    """

    def newer(major: int, minor: int = 0) -> bool:
        return (macos.major, macos.minor) >= (major, minor)

    def yes(*_args: Any, **_kwargs: Any) -> bool:
        return True

    def nothing(*_args: Any, **_kwargs: Any) -> None:
        return None

    def zero(*_args: Any, **_kwargs: Any) -> int:
        return 0

    backend, runtime = torch.backends.mps, torch.mps
    replaced: list[tuple[Any, str, Any]] = [
        (backend, "is_available", yes),
        (backend, "is_built", yes),
        (backend, "is_macos_or_newer", newer),
        (backend, "is_macos13_or_newer", lambda minor=0: newer(13, minor)),
        (torch._C, "_mps_is_available", yes),
        (torch._C, "_has_mps", True),
        (torch._C, "_mps_is_on_macos_or_newer", newer),
        (runtime, "is_available", yes),
        (runtime, "device_count", lambda: 1),
        (runtime, "synchronize", nothing),
        (runtime, "empty_cache", nothing),
        (runtime, "manual_seed", nothing),
        (runtime, "seed", nothing),
        # The simulated device draws from the CPU's generator.  Functions of our own: torch._dynamo refuses one
        # object under two names (torch/_dynamo/trace_rules.py, get_torch_obj_rule_map).
        (runtime, "get_rng_state", lambda: torch.get_rng_state()),
        (runtime, "set_rng_state", lambda state: torch.set_rng_state(state)),
        (runtime, "current_allocated_memory", zero),
        (runtime, "driver_allocated_memory", zero),
    ]
    if hasattr(torch, "accelerator"):
        replaced += [
            (torch.accelerator, "is_available", yes),
            (torch.accelerator, "device_count", lambda: 1),
            (
                torch.accelerator,
                "current_accelerator",
                lambda check_available=False: torch.device("mps"),
            ),  # noqa: ARG005, FBT002
        ]
    before = [
        (place, name, getattr(place, name)) for place, name, _ in replaced if hasattr(place, name)
    ]
    # torch.compiler reads __wrapped__ of is_available (torch/_dynamo/trace_rules.py, 2.15).
    yes.__wrapped__ = yes  # type: ignore[attr-defined]
    try:
        for place, name, value in replaced:
            if hasattr(place, name):
                setattr(place, name, value)
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)
