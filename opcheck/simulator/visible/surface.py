"""Simulate what Python sees of a Mac's torch next to tensors: ``torch.mps`` by release, streams, events, storages."""

from __future__ import annotations

import contextlib
import pkgutil
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import dataloader
from typing_extensions import Self

from opcheck.common.replacing import replace_attributes
from opcheck.common.versions import Target, Version
from opcheck.common.yaml_text import load_shipped
from opcheck.simulator import target_reads
from opcheck.simulator.dispatch import random_numbers
from opcheck.simulator.errors import NotSimulatedError, ProcessAbortedError
from opcheck.simulator.visible import device_mode
from opcheck.simulator.visible.constructors import CONSTRUCTORS
from opcheck.simulator.visible.machine import WORKING_SET, mac_machine
from opcheck.simulator.visible.storage import is_storage, new_shared, to_mps
from opcheck.tracing.torch_private import backend as places
from opcheck.tracing.torch_private.tensors import NEW_SHARED, storage_base

#: torch/utils/data/dataloader.py warns since 2.7.
_PIN_WARNING = "'pin_memory' argument is set as true but not supported on MPS now"


_ANSWERS: dict[str, Any] = load_shipped(Path(__file__).with_suffix(".yaml"))


def _do_nothing(*_: Any) -> None:
    """Return at once, because no work is pending."""


def _is_done(_work: Any) -> bool:
    """Return whether all work is done."""
    return True


class MacEvent:
    """An event on the single stream; all work before it has always finished."""

    def __init__(self, *_: Any, enable_timing: bool = False, **__: Any) -> None:
        self.enable_timing = enable_timing
        self.device = torch.device("mps", 0)
        self._at = 0.0

    def record(self, stream: Any = None) -> None:
        """Record the present time."""
        del stream
        self._at = time.perf_counter()

    wait = synchronize = _do_nothing
    query = _is_done

    def elapsed_time(self, end_event: MacEvent) -> float:
        """Return the milliseconds between two events, by this machine's clock.

        Raises:
            RuntimeError: an event keeps no time (aten/src/ATen/mps/MPSEvent.mm, ``elapsedTime``).
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise RuntimeError("Events were not created with argument 'enable_timing=True'")
        return (end_event._at - self._at) * 1000


class MacStream:
    """The stream of ``mps:0``."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("mps", 0)
        self.stream_id = 0
        self.device_index = 0
        self.device_type = 13

    def __repr__(self) -> str:
        """Return what THPStream_repr returns (torch/csrc/Stream.cpp)."""
        return "torch.Stream device_type=mps, device_index=0, stream_id=0"

    synchronize = wait_event = wait_stream = __exit__ = _do_nothing
    query = _is_done

    def is_capturing(self) -> bool:
        """MPS has no graphs to capture; optimizers of 2.15 ask."""
        return False

    def record_event(self, event: Any = None) -> Any:
        """An event, recorded."""
        event = event or MacEvent()
        event.record()
        return event

    def __enter__(self) -> Self:
        """Return the stream itself: there is no other."""
        return self


class _OfDevice(type):
    """Makes an object of a Mac for its own device; objects of other devices are torch's own."""

    original: Any
    of_mac: type
    #: the first release that makes one
    since = Version(0, 0)

    def __call__(cls, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        if device is not None and torch.device(device).type != "mps":
            return cls.original(device, *args, **kwargs)
        if target_reads.READS.ask(target_reads.is_before, cls.since):
            raise RuntimeError("Backend doesn't support create a new Stream.")
        return cls.of_mac(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (cls.of_mac, cls.original))


class AnyEvent(metaclass=_OfDevice):
    """Replaces ``torch.Event``."""

    original, of_mac = torch.Event, MacEvent


class AnyStream(metaclass=_OfDevice):
    """Replaces ``torch.Stream``."""

    original, of_mac = torch.Stream, MacStream
    # getNewStream, which ATen/mps/MPSGuardImpl.h overrides since 2.5 (the wheels of 2.4.1 and 2.5.1)
    since = Version(2, 5)


def answering(value: Any) -> Callable[..., Any]:
    """Make a function that returns the value.

    Each name needs its own: torch._dynamo refuses one object under two names (torch/_dynamo/trace_rules.py).
    """

    def function(*_: Any, **__: Any) -> Any:
        return value

    return function


def _answers(kind: str) -> Iterator[tuple[Any, str, Any]]:
    for owner, answers in _ANSWERS[kind].items():
        for name, value in answers.items():
            yield pkgutil.resolve_name(owner), name, answering(value)


def _refusing(message: str) -> Callable[..., Any]:
    def function(*_: Any, **__: Any) -> Any:
        raise NotSimulatedError(message)

    return function


def _warn(message: str, category: type[Warning] | None = None, stacklevel: int = 1) -> None:
    """Warn as the loader of data does, which mentions pinned memory on MPS since 2.7."""
    if not message.startswith(_PIN_WARNING) or not target_reads.READS.ask(target_reads.is_before, Version(2, 7)):
        warnings.warn(message, category, stacklevel=stacklevel + 1)


def _nothing(*_: Any, **__: Any) -> Iterator[None]:
    yield


class MemoryCount:
    """A count of bytes of the allocator (c10/core/CachingAllocator.h, ``Stat``)."""

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def update(self, current: int) -> None:
        """Set the count to its present value."""
        self.allocated += max(current - self.current, 0)
        self.freed += max(self.current - current, 0)
        self.current, self.peak = current, max(self.peak, current)


class MacMemory:
    """Answers for the allocator's memory; this one counts nothing, and keeps what the program sets."""

    #: what ``torch.mps.set_per_process_memory_fraction`` sets; None: nothing
    fraction: float | None = None

    def __init__(self) -> None:
        #: of live buffers and of heaps
        self.live, self.heaps = MemoryCount(), MemoryCount()

    def current(self) -> int:
        """Return the bytes of live buffers."""
        return 0

    def driver(self) -> int:
        """Return the bytes of all memory that Metal has allocated for the process."""
        return 0

    def empty_cache(self) -> None:
        """Release what is cached."""

    def set_fraction(self, fraction: float) -> None:
        """Set the high watermark."""
        self.fraction = fraction

    def reset_peaks(self) -> None:
        """Begin new peaks."""
        for count in (self.live, self.heaps):
            count.peak = count.current

    def reset_sums(self) -> None:
        """Count from zero what is allocated and freed."""
        for count in (self.live, self.heaps):
            count.allocated = count.freed = 0


def _no_device_allocator(target: Target) -> str:
    """Return what a release raises whose allocator does not serve torch.accelerator; empty where it does."""
    line = _ANSWERS["no_device_allocator_lines"].get(str(target.torch))
    return str(_ANSWERS["no_device_allocator"].format(line=line)) if line else ""


def _dtypes(target: Target) -> frozenset[str]:
    return frozenset(name for name, since in _ANSWERS["dtypes"].items() if target.torch >= Version.parse(since))


def _capability(*_: Any) -> dict[str, Any]:
    if dtypes := target_reads.READS.ask(_dtypes):
        return {"supported_dtypes": {getattr(torch, name) for name in dtypes}}
    # c10/core/impl/DeviceGuardImplInterface.h
    raise RuntimeError("Backend doesn't support getting device capabilities.")


def _empty_host_cache() -> None:
    if target_reads.READS.ask(target_reads.is_before, Version(2, 15)):
        raise ProcessAbortedError(_ANSWERS["no_host_allocator"])


def _read_stats(memory: MacMemory) -> dict[str, Any]:
    # MPSAllocator.mm, ``getDeviceStats``, sets the sums over both pools of these alone.
    live, heaps = {"all": vars(memory.live)}, {"all": vars(memory.heaps)}
    active = {} if target_reads.READS.ask(target_reads.is_before, Version(2, 15)) else {"active_bytes": live}
    others: dict[str, Any] = {name: {"all": vars(MemoryCount())} for name in _ANSWERS["memory_stats"]}
    return {**others, "allocated_bytes": live, "reserved_bytes": heaps, **active}


def _accelerator_memory(memory: MacMemory) -> Iterator[tuple[Any, str, Any]]:
    """Yield what torch.accelerator calls for memory in C++ (torch/accelerator/memory.py, 2.9 to 2.15)."""

    def since_2_13(function: Callable[[], Any]) -> Callable[..., Any]:
        def call(*_: Any) -> Any:
            if text := target_reads.READS.ask(_no_device_allocator):
                raise RuntimeError(text)
            return function()

        return call

    functions: dict[str, Callable[[], Any]] = {
        "isAllocatorInitialized": lambda: True,
        "emptyCache": memory.empty_cache,
        "getDeviceStats": lambda: _read_stats(memory),
        "resetPeakStats": memory.reset_peaks,
        "resetAccumulatedStats": memory.reset_sums,
        "getMemoryInfo": lambda: (max(WORKING_SET - memory.driver(), 0), WORKING_SET),
    }
    for name, function in functions.items():
        yield *places.accelerator_function(name), since_2_13(function)


@contextlib.contextmanager
def mac_surface(memory: MacMemory) -> Iterator[None]:
    """For the length of the block Python sees a Mac's torch, whose allocator ``memory`` answers for."""

    def set_fraction(fraction: Any) -> None:
        # torch/mps/__init__.py, ``set_per_process_memory_fraction`` (1.13 to 2.15)
        if not isinstance(fraction, float):
            raise TypeError("Invalid type for fraction argument, must be `float`")
        if fraction < 0 or fraction > 2:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~2")
        memory.set_fraction(fraction)

    changes: list[tuple[Any, str, Any]] = [
        (torch.mps, "current_allocated_memory", memory.current),
        (torch.mps, "driver_allocated_memory", memory.driver),
        (torch.mps, "empty_cache", memory.empty_cache),
        (torch.mps, "set_per_process_memory_fraction", set_fraction),
        (torch.mps, "Event", MacEvent),
        (torch.mps.profiler, "profile", contextlib.contextmanager(_nothing)),
        (torch.mps.event, "Event", MacEvent),
        (torch, "Stream", AnyStream),
        (torch.accelerator, "device_index", contextlib.contextmanager(_nothing)),
        (torch.accelerator, "current_stream", answering(MacStream())),
        (storage_base, "mps", to_mps),
        (torch, "is_storage", is_storage),
        (*NEW_SHARED, new_shared),
        *CONSTRUCTORS,
        *_answers("mac_surface"),
        (dataloader, "warnings", types.SimpleNamespace(warn=_warn)),
        (torch.accelerator, "get_device_capability", _capability),
        (torch.accelerator, "empty_host_cache", _empty_host_cache),
        *_accelerator_memory(memory),
    ]
    for text, refused in _ANSWERS["refused"].items():
        for owner, names in refused.items():
            module = pkgutil.resolve_name(owner)
            changes += [(module, name, _refusing(text.format(f"{owner}.{name}"))) for name in names]
    # Programs do not use a name that this torch lacks.
    present = [change for change in changes if hasattr(change[0], change[1])]
    with replace_attributes(present):
        yield


# -- the backend -----------------------------------------------------------------------------------------------------


_yes = answering(value=True)


_group_by_cpp_device = places.GROUP_TENSORS.value()


def _group(lists: Any, with_indices: Any = False) -> dict[Any, Any]:
    """Group by the device that Python sees, because C++ sees the CPU (torch/nn/utils/clip_grad.py)."""
    return {
        (next(t.device for t in group[0][0] if t is not None), dtype): group
        for (_, dtype), group in _group_by_cpp_device(lists, with_indices).items()
    }


# torch.compiler reads __wrapped__ of is_available (torch/_dynamo/trace_rules.py, 2.15).
_yes.__wrapped__ = _yes  # type: ignore[attr-defined]


def _no_cuda() -> None:
    """Raise the error of a build without CUDA; a CUDA build would search for its driver (torch/cuda/__init__.py)."""
    raise AssertionError("Torch not compiled with CUDA enabled")


_ALWAYS: tuple[tuple[Any, str, Any], ...] = (
    (*places.CUDA_INIT, _no_cuda),
    *((owner, "is_available", _yes) for owner in (torch.backends.mps, torch.mps, torch.accelerator)),
    (*places.MPS_IS_AVAILABLE, _yes),
    (*places.HAS_MPS, True),
    *random_numbers.REPLACEMENTS,
    (torch, "Event", AnyEvent),
    (*places.GROUP_TENSORS, _group),
    (torch.version, "cuda", None),
    (torch.mps, "recommended_max_memory", answering(WORKING_SET)),
    (*places.FUSED_DEVICES, device_mode.fused_devices),
    (torch.accelerator, "current_accelerator", answering(torch.device("mps"))),
    # Optimizers of 2.15 ask it whether a graph is being captured (torch/optim/optimizer.py): none is.
    (torch.accelerator, "current_stream", lambda *_: torch.Stream(device="cpu")),
    *_answers("mps_backend"),
)


@contextlib.contextmanager
def _hide_triton() -> Iterator[None]:
    """Make ``import triton`` raise ImportError: a CUDA build installs it, and it has no wheel for macOS.

    torch keeps the answer of its own import, so that this is cleared before and after.
    """
    before = {"triton": sys.modules["triton"]} if "triton" in sys.modules else {}
    places.forget_triton()
    sys.modules["triton"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.modules.pop("triton", None)
        sys.modules.update(before)
        places.forget_triton()


@contextlib.contextmanager
def mps_backend(target: Target) -> Iterator[None]:
    """Present that Mac's backend to the process for the length of the block.

    transformers reads ``is_available`` once, at import (integrations/sdpa_attention.py): enter this before.
    """

    def newer(major: int, minor: int = 0) -> bool:
        return target_reads.READS.ask(target_reads.is_newer, major, minor)

    replacements = (
        *_ALWAYS,
        *((*place, value) for place, value in places.without_cuda()),
        (torch.backends.mps, "is_macos_or_newer", newer),
        (torch.backends.mps, "is_macos13_or_newer", lambda minor=0: newer(13, minor)),
        (*places.MPS_IS_ON_MACOS, newer),
    )
    # Programs do not use a name that this torch lacks.
    present = [each for each in replacements if hasattr(each[0], each[1])]
    with replace_attributes(present), _hide_triton(), target_reads.READS.show_target(target), mac_machine():
        yield
