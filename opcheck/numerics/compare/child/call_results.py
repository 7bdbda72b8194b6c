"""Counts the outcomes and measures the times of a comparison's calls, and makes records of them."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from opcheck.common.grouping import group_values
from opcheck.numerics.child.closeness import dtype_name
from opcheck.numerics.child.float64 import Float64Call
from opcheck.numerics.child.installed_devices import synchronize
from opcheck.numerics.child.kept_tensors import KeptTensor, place, restore
from opcheck.numerics.child.line_tally import LineTally, finite_digits
from opcheck.numerics.compare.child.compare_mode import ComparedCall
from opcheck.numerics.compare.child.cpu_reference import kernel_for
from opcheck.numerics.compare.comparison_records import ComparedOperator, Time, Wrong
from opcheck.tracing.call_sites import CallSites
from opcheck.tracing.torch_private.trees import tree_leaves, tree_map_only


class _Worst:
    """The worst of the wrong calls of one operator at one line, and the tensors that it was called with."""

    judged: ComparedCall | None = None
    inputs: tuple[str, ...] = ()


class CompareTally:
    """The outcomes of all calls."""

    def __init__(self, sites: CallSites) -> None:
        self.calls = 0
        self.outcomes: Counter[str] = Counter()
        #: the first wrong call, with its arguments
        self.first: ComparedCall | None = None
        self._sites = sites
        self._wrong: LineTally[_Worst] = LineTally(_Worst)
        #: by operator: the outcomes, the reasons, and the largest error of a call that is not wrong
        self._by_op: dict[str, tuple[Counter[str], Counter[str]]] = {}
        self._errors: dict[str, float] = {}

    def add(self, judged: ComparedCall) -> None:
        """Count one call, while it is being made."""
        index, self.calls = self.calls, self.calls + 1
        self.outcomes[judged.outcome] += 1
        outcomes, reasons = self._by_op.setdefault(judged.op, (Counter(), Counter()))
        outcomes[judged.outcome] += 1
        # For each call: this also notes which node of backward belongs to the line.
        here = self._sites.here()
        if judged.reason:
            reasons[judged.reason] += 1
        elif judged.outcome != "wrong":
            self._errors[judged.op] = max(self._errors.get(judged.op, 0.0), judged.worst.error)
        else:
            self.first = self.first or judged
            worst = self._wrong.add(judged.op, here, index, judged.worst.kind).value
            if worst.judged is None or judged.worst.error > worst.judged.worst.error:
                # Without its arguments: they may be large.
                worst.judged = judged._replace(call=judged.call._replace(args=(), kwargs={}))
                worst.inputs = specs(judged.call.args, judged.call.kwargs)

    def wrong(self) -> Iterator[Wrong]:
        """Yield the wrong calls, in the order of their first ones."""
        for row in self._wrong:
            judged = row.value.judged
            assert judged is not None
            assert judged.dtype is not None
            yield Wrong(
                op=row.key.op,
                place=row.place,
                first=row.first,
                output=judged.output,
                dtype=dtype_name(judged.dtype),
                error_cpu=None if judged.cpu is None else finite_digits(judged.cpu),
                inputs=row.value.inputs,
                **{**judged.worst._asdict(), "error": finite_digits(judged.worst.error)},
            )

    def operators(self) -> Iterator[ComparedOperator]:
        """Return the operators in the order of their names."""
        for op, (outcomes, reasons) in sorted(self._by_op.items()):
            error = self._errors.get(op)
            yield ComparedOperator(
                op=op,
                calls=outcomes.total(),
                outcomes=dict(outcomes),
                error=None if error is None else finite_digits(error),
                reasons=dict(reasons),
            )


def specs(*kept: Any) -> tuple[str, ...]:
    """Return the kept tensors among arguments, as ``2x3:float32``."""
    return tuple(
        f"{'x'.join(map(str, leaf.size)) or 'scalar'}:{dtype_name(leaf.dtype)}"
        + ("" if _is_contiguous(leaf) else f" strides {leaf.stride}")
        for leaf in tree_leaves(kept)
        if isinstance(leaf, KeptTensor)
    )


def _is_contiguous(kept: KeptTensor) -> bool:
    return torch.empty(kept.size, device="meta").stride() == kept.stride or 0 in kept.size


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
        """Return the times by operator, the slowest operator first."""
        rows = []
        for op, kinds in group_values((op, kind) for (op, _), kind in self._kinds.items()).items():
            calls, device = sum(number for number, _, _ in kinds), sum(number * each for number, each, _ in kinds)
            of_cpu = [number * each for number, _, each in kinds if each is not None]
            cpu = sum(of_cpu) if len(of_cpu) == len(kinds) else None
            rows.append(Time(op=op, calls=calls, device=device, cpu=cpu))
        yield from sorted(rows, key=lambda row: (-row.excess, -row.device, row.op))

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
    return repr(tree_map_only(KeptTensor, lambda kept: (kept.dtype, kept.size, kept.stride), arguments))
