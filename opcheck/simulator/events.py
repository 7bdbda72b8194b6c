"""``torch.Event`` on a Mac: one stream, on which everything is done at once."""

from __future__ import annotations

import time
from typing import Any

import torch


class MacEvent:
    """An event on the one stream: what was asked for before it has always been done."""

    def __init__(self, *_: Any, enable_timing: bool = False, **__: Any) -> None:
        self.enable_timing = enable_timing
        self.device = torch.device("mps", 0)
        self._at = 0.0

    def record(self, stream: Any = None) -> None:
        """Now."""
        del stream
        self._at = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Nothing is left to wait for."""

    def synchronize(self) -> None:
        """Nothing is left to wait for."""

    def query(self) -> bool:
        """Whether all before it is done."""
        return True

    def elapsed_time(self, end_event: MacEvent) -> float:
        """Milliseconds of this machine's clock."""
        return (end_event._at - self._at) * 1000


class _EventOf(type):
    """Makes an event of the device that is asked for; one of another device is torch's own."""

    original: Any = torch.Event

    def __call__(cls, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type == "mps":
            return MacEvent(*args, **kwargs)
        return _EventOf.original(device, *args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (MacEvent, _EventOf.original))


class AnyEvent(metaclass=_EventOf):
    """``torch.Event``."""
