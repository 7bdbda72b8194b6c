"""The parts of a Mac's torch that Python sees beside tensors: ``torch.mps`` by release, streams, storages."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

import torch

from opcheck.common.versions import Target, Version
from opcheck.simulator import python_visible_target
from opcheck.simulator.errors import NotSimulatedError
from opcheck.simulator.events import MacEvent
from opcheck.simulator.storage import to_mps
from opcheck.tracing.torch_private.tensors import storage_base

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

#: torch/utils/data/dataloader.py warns since 2.7.
_PIN_WARNING = "'pin_memory' argument is set as true but not supported on MPS now"
_V2_7 = Version(2, 7)


#: whether MPS's allocator answers torch.accelerator, and since when, stands in no source that was
#: read
_MEMORY = (
    *("empty_cache", "empty_host_cache", "get_memory_info", "memory_stats", "memory_allocated"),
    *("max_memory_allocated", "memory_reserved", "max_memory_reserved"),
    *("reset_accumulated_memory_stats", "reset_peak_memory_stats", "get_device_capability"),
)


class MacStream:
    """The stream of ``mps:0``."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("mps", 0)
        self.stream_id = 0
        self.device_index = 0
        self.device_type = 13

    def synchronize(self) -> None:
        """Do nothing: all work is done."""

    def query(self) -> bool:
        """Return whether all work is done."""
        return True

    def is_capturing(self) -> bool:
        """MPS has no graphs to capture; optimizers of 2.15 ask."""
        return False

    def wait_event(self, event: Any) -> None:
        """Do nothing: all work is done."""

    def wait_stream(self, stream: Any) -> None:
        """Do nothing: all work is done."""

    def record_event(self, event: Any = None) -> MacEvent:
        """An event, recorded."""
        event = event or MacEvent()
        event.record()
        made: MacEvent = event
        return made

    def __enter__(self) -> Self:
        """Return the stream itself: there is no other."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


class _StreamOf(type):
    """Makes a stream of the requested device; streams of other devices are torch's own."""

    original: Any = torch.Stream

    def __call__(cls, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type == "mps":
            if not python_visible_target.ask(_makes_streams):
                # c10/core/impl/DeviceGuardImplInterface.h, getNewStream, which MPSGuardImpl
                # overrides since 2.15
                message = "Backend doesn't support create a new Stream."
                raise RuntimeError(message)
            return MacStream()
        return _StreamOf.original(device, *args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (MacStream, _StreamOf.original))


class AnyStream(metaclass=_StreamOf):
    """``torch.Stream``."""


def _makes_streams(target: Target) -> bool:
    return target.torch >= Version(2, 15)


def _no(*_: Any, **__: Any) -> bool:
    return False


def _unknown(name: str) -> Callable[..., Any]:
    """Make a function whose result on a Mac is unknown, because no source documents it."""

    def function(*_: Any, **__: Any) -> Any:
        message = f"what {name} answers on a Mac is not known here"
        raise NotSimulatedError(message)

    return function


@contextlib.contextmanager
def _index(_device: Any) -> Iterator[None]:
    yield


def _no_metal(*_: Any, **__: Any) -> Any:
    message = "Metal code does not run here: an emulated Mac has no Metal compiler"
    raise NotSimulatedError(message)


def _nothing() -> Callable[..., None]:
    """Make a function that does nothing.

    Each name needs its own: torch._dynamo refuses one object under two names
    (torch/_dynamo/trace_rules.py).
    """

    def function(*_: Any, **__: Any) -> None:
        return None

    return function


@contextlib.contextmanager
def _no_profile(*_: Any, **__: Any) -> Iterator[None]:
    yield


def _set_memory_fraction(fraction: Any) -> None:
    # torch/mps/__init__.py, ``set_per_process_memory_fraction`` (1.13 to 2.15)
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if fraction < 0 or fraction > 2:
        message = f"Invalid fraction value: {fraction}. Allowed range: 0~2"
        raise ValueError(message)


@contextlib.contextmanager
def mac_surface(target: Target, allocated: Callable[[], int]) -> Iterator[None]:
    """For the length of the block Python sees a Mac's torch.

    Args:
        target: whose release decides which names there are.
        allocated: bytes that live tensors take on the device.
    """
    stream = MacStream()

    def bytes_now(*_: Any, **__: Any) -> int:
        return allocated()

    def the_stream(*_: Any, **__: Any) -> MacStream:
        return stream

    changes: list[tuple[Any, str, Any]] = [
        (torch.mps, "current_allocated_memory", bytes_now),
        (torch.mps, "driver_allocated_memory", bytes_now),
        (torch.mps, "set_per_process_memory_fraction", _set_memory_fraction),
        (torch.mps, "compile_shader", _no_metal),
        (torch.mps, "load_metallib", _no_metal),
        (torch.mps, "Event", MacEvent),
        (torch.mps.profiler, "start", _nothing()),
        (torch.mps.profiler, "stop", _nothing()),
        (torch.mps.profiler, "profile", _no_profile),
        # Metal allows a capture only where MTL_CAPTURE_ENABLED=1 was set.
        (torch.mps.profiler, "is_metal_capture_enabled", _no),
        (torch.mps.profiler, "is_capturing_metal", _no),
        (torch.mps.profiler, "metal_capture", _unknown("torch.mps.profiler.metal_capture")),
        (torch.mps.event, "Event", MacEvent),
        (torch, "Stream", AnyStream),
        (torch.accelerator, "device_index", _index),
        (torch.accelerator, "current_device_index", lambda: 0),
        (torch.accelerator, "current_device_idx", lambda: 0),
        (torch.accelerator, "set_device_index", _nothing()),
        (torch.accelerator, "set_device_idx", _nothing()),
        (torch.accelerator, "current_stream", the_stream),
        (torch.accelerator, "set_stream", _nothing()),
        (torch.accelerator, "synchronize", _nothing()),
        (storage_base, "mps", to_mps),
    ]
    changes += [
        (torch.accelerator, name, _unknown(f"torch.accelerator.{name}")) for name in _MEMORY
    ]
    with contextlib.ExitStack() as undo:
        for place, name, value in changes:
            _change(place, name, value, undo)
        if target.torch < _V2_7:
            undo.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", message=_PIN_WARNING)
        yield


def _change(place: Any, name: str, value: Any, undo: contextlib.ExitStack) -> None:
    if name not in vars(place):
        return  # this torch lacks the name, so no program of it uses the name
    undo.callback(setattr, place, name, vars(place)[name])
    setattr(place, name, value)
