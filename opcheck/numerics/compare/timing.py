"""How long each call takes on the device and on the CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from opcheck.numerics.compare.devices import synchronize
from opcheck.numerics.compare.records import Time
from opcheck.numerics.compare.snapshot import Kept, map_kept, place
from opcheck.numerics.compare.stand_ins import on_cpu
from opcheck.tracing.torch_private.trees import tree_map_only

#: runs that are not counted: the first ones load kernels and fill caches
_WARM = 2


class Clock:
    """Times each kind of call once: what has the same operator, shapes and dtypes takes as long again."""

    def __init__(self, device: torch.device, times: int) -> None:
        self._device = device
        self._times = times
        #: kind of call -> how often, seconds on the device, seconds on the CPU
        self._found: dict[tuple[str, str], tuple[int, float, float | None]] = {}

    def time(self, func: Any, kept: Any, _made: Any) -> None:
        """Count one call; time it where there was none of its kind."""
        key = (func.name(), _kind(kept))
        calls, device, cpu = self._found.get(key) or (0, *self._seconds(func, kept))
        self._found[key] = (calls + 1, device, cpu)

    def records(self) -> Iterator[Time]:
        """By operator, what lost most first."""
        ops = dict.fromkeys(op for op, _ in self._found)
        rows = []
        for op in ops:
            kinds = [one for (name, _), one in self._found.items() if name == op]
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

    def _seconds(self, func: Any, kept: Any) -> tuple[float, float | None]:
        here = map_kept(Kept.tensor, kept)
        there = tree_map_only(torch.Tensor, lambda one: place(one, self._device), here)
        device = self._median(func, there, self._device)
        if self._device.type == "cpu":
            return device, device
        cpu = torch.device("cpu")
        here = tree_map_only(torch.device, lambda _: cpu, here)
        try:
            return device, self._median(on_cpu(func), here, cpu)
        except Exception:  # noqa: BLE001 - the CPU has no kernel for it
            return device, None

    def _median(self, call: Callable[..., Any], given: Any, device: torch.device) -> float:
        """Seconds of one call.  A call that writes does so again and again: what is in its tensors costs nothing."""
        args, kwargs = given
        taken = []
        for number in range(_WARM + self._times):
            synchronize(device)
            start = time.perf_counter()
            call(*args, **kwargs)
            synchronize(device)
            if number >= _WARM:
                taken.append(time.perf_counter() - start)
        return statistics.median(taken)


def _kind(kept: Any) -> str:
    return repr(map_kept(lambda one: (one.dtype, one.size, one.stride), kept))
