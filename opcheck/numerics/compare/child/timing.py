"""Measures how long each call takes on the device and on the CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from opcheck.numerics.child.devices import synchronize
from opcheck.numerics.child.float64 import Float64Call
from opcheck.numerics.child.kept_tensors import KeptTensor, place, restore
from opcheck.numerics.compare.child.reference import kernel_for
from opcheck.numerics.compare.records import Time
from opcheck.tracing.torch_private.trees import tree_map_only

#: runs that are not counted: the first ones load kernels and fill caches
_WARM = 2


class Clock:
    """Times each kind of call once: what has the same operator, shapes and dtypes takes as long again."""

    def __init__(self, device: torch.device, times: int) -> None:
        self._device = device
        self._times = times
        #: kind of call -> how often, seconds on the device, seconds on the CPU
        self._kinds: dict[tuple[str, str], tuple[int, float, float | None]] = {}

    def time(self, call: Float64Call) -> None:
        """Count one call; time it where there was none of its kind."""
        key = (call.func.name(), _kind(call))
        calls, device, cpu = self._kinds.get(key) or (0, *self._seconds(call))
        self._kinds[key] = (calls + 1, device, cpu)

    def records(self) -> Iterator[Time]:
        """Return the times by operator, the one that lost most first."""
        ops = dict.fromkeys(op for op, _ in self._kinds)
        rows = []
        for op in ops:
            kinds = [kind for (name, _), kind in self._kinds.items() if name == op]
            known = [calls * cpu for calls, _, cpu in kinds if cpu is not None]
            rows.append(
                Time(
                    op=op,
                    calls=sum(calls for calls, _, _ in kinds),
                    device=sum(calls * device for calls, device, _ in kinds),
                    cpu=sum(known) if len(known) == len(kinds) else None,
                )
            )
        yield from sorted(rows, key=lambda row: (-row.lost, -row.device, row.op))

    def _seconds(self, call: Float64Call) -> tuple[float, float | None]:
        here = restore((call.args, call.kwargs))
        there = tree_map_only(torch.Tensor, lambda tensor: place(tensor, self._device), here)
        device = self._median(call.func, there, self._device)
        if self._device.type == "cpu":
            return device, device
        cpu = torch.device("cpu")
        here = tree_map_only(torch.device, lambda _: cpu, here)
        try:
            return device, self._median(kernel_for(call.func), here, cpu)
        except Exception:  # noqa: BLE001 - the CPU has no kernel for it
            return device, None

    def _median(self, call: Callable[..., Any], given: Any, device: torch.device) -> float:
        """Return the seconds of one call.  A call that writes is repeated: the values in its tensors cost no time."""
        args, kwargs = given
        seconds = []
        for number in range(_WARM + self._times):
            synchronize(device)
            start = time.perf_counter()
            call(*args, **kwargs)
            synchronize(device)
            if number >= _WARM:
                seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)


def _kind(call: Float64Call) -> str:
    arguments = call.args, call.kwargs
    return repr(
        tree_map_only(KeptTensor, lambda kept: (kept.dtype, kept.size, kept.stride), arguments)
    )
