"""Simulate ``torch.Event`` of a Mac, with one stream on which all work finishes at once."""

from __future__ import annotations

import time
from typing import Any

import torch


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

    def wait(self, stream: Any = None) -> None:
        """Return at once, because no work is pending."""

    def synchronize(self) -> None:
        """Return at once, because no work is pending."""

    def query(self) -> bool:
        """Return whether all work before the event has finished."""
        return True

    def elapsed_time(self, end_event: MacEvent) -> float:
        """Return the milliseconds between two events, by this machine's clock."""
        return (end_event._at - self._at) * 1000


class _EventOf(type):
    """Makes an event of the requested device; torch itself makes events of other devices."""

    original: Any = torch.Event

    def __call__(cls, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type == "mps":
            return MacEvent(*args, **kwargs)
        return _EventOf.original(device, *args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (MacEvent, _EventOf.original))


class AnyEvent(metaclass=_EventOf):
    """Replaces ``torch.Event``."""
