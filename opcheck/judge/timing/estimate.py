"""Make intervals of time from the work of a run, for chips by their published rates.

A call takes the longest of its arithmetic, its reads and writes, and its start; what the fitted shares of the rates are
is in op_lists/speed_fit.json.  Nothing was observed on a Mac.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from opcheck.common.vocabulary import TIME_BOUNDS, TimeBound
from opcheck.data.chips import Chip, Gpu, Parameters, load_chips, load_parameters, load_speed
from opcheck.judge.timing.workload import NONE
from opcheck.model.records import CallWork, Report, TimeEstimate, Workload

#: The clock in GHz that the costs of starting calls are stated for.
_CLOCK = 3.2
#: A view takes this share of what another call takes on the CPU: it starts no kernel.
_VIEW = 0.5
#: Bytes of a call that the caches of a chip may spare it to read from memory.
_CACHED = 16 << 20


class Interval(NamedTuple):
    """Seconds."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """Return the geometric mean of the ends."""
        return float((self.low * self.high) ** 0.5)


def estimates(
    workloads: Iterable[Workload], chips: Iterable[str], parameters: Parameters | None = None
) -> tuple[TimeEstimate, ...]:
    """Return an estimate for each chip and each part of a run.

    Args:
        workloads: of the run.
        chips: names of op_lists/chips.yaml.
        parameters: in place of the shipped ones.

    Raises:
        OpListError: a list is damaged.
    """
    fitted = parameters or load_parameters()
    parts = tuple(workloads)
    return tuple(
        estimate(work, name, load_chips()[name].gpus, fitted) for name in chips for work in parts
    )


def with_time(report: Report, chips: Iterable[str]) -> Report:
    """Return the report with the estimates for these chips; none replaces what it had.

    Raises:
        OpListError: a list is damaged.
    """
    return msgspec.structs.replace(report, time=estimates(report.workloads, chips))


def estimate(
    work: Workload, name: str, gpus: Sequence[Gpu], parameters: Parameters
) -> TimeEstimate:
    """Return the estimate of one part of a run for one chip.

    Args:
        work: the part.
        name: the chip.
        gpus: those that it may have; the interval is about all of them.
        parameters: the fitted ones.
    """
    chip = load_chips()[name]
    seconds = [_on_gpu(work, chip, gpu, parameters) for gpu in gpus]
    wide = _widening(work, gpus[0])
    ends = [_interval(each, chip, parameters, wide) for each in seconds]
    floor = min(_least(work, chip, gpu) for gpu in gpus)
    cpu = _interval(_on_cpu(work, chip, parameters), chip, parameters, wide, on_cpu=True)
    total = sum(seconds[0].values()) or 1.0
    shares = {bound: round(seconds[0][bound] / total, 3) for bound in TIME_BOUNDS}
    low = max(min(each.low for each in ends), floor)
    return TimeEstimate(
        mac=name,
        gpu_cores=tuple(gpu.cores for gpu in gpus),
        unit=work.unit,
        covers=work.covers,
        low_seconds=low,
        high_seconds=max(low, *(each.high for each in ends)),
        cpu_low_seconds=cpu.low,
        cpu_high_seconds=cpu.high,
        bound=max(TIME_BOUNDS, key=lambda bound: shares[bound]),
        shares=shares,
        launches=sum(row.launches * row.count for row in work.rows if row.route != "cpu"),
        waits=work.waits,
        copies=work.copies,
        without_formula=sum(row.count for row in work.rows if row.family == NONE),
        left_out=work.raising,
    )


_Seconds = dict[TimeBound, float]


def _on_gpu(work: Workload, chip: Chip, gpu: Gpu, parameters: Parameters) -> _Seconds:
    """Return the seconds of a part by what they go to; calls on the CPU make the GPU wait."""
    slower = _CLOCK / chip.cpu.ghz
    start = _start_costs(parameters)
    result: _Seconds = dict.fromkeys(TIME_BOUNDS, 0.0)
    for row in work.rows:
        if row.route == "cpu":
            result["wait"] += row.count * _cpu_call(row, chip, parameters)
            continue
        costs: _Seconds = {
            "launch": row.launches * slower * start(row.route),
            "compute": _compute(row, gpu.flops(row.dtype, chip.bfloat16), parameters),
            "memory": row.nbytes / (gpu.gb_s * 1e9 * _share_of_bandwidth(row, parameters)),
        }
        bound = max(costs, key=lambda name: costs[name])
        result[bound] += row.count * costs[bound]
    result["launch"] += work.views * _VIEW * parameters.host * slower
    result["wait"] += work.waits * parameters.wait * slower
    result["copy"] += _copy_seconds(work)
    return result


def _on_cpu(work: Workload, chip: Chip, parameters: Parameters) -> _Seconds:
    """Return the seconds of the same calls on the CPU, which neither copies nor waits."""
    slower = _CLOCK / chip.cpu.ghz
    calls = sum(row.count * _cpu_call(row, chip, parameters) for row in work.rows)
    return {"compute": calls, "launch": work.views * _VIEW * parameters.host * slower}


def _cpu_call(row: CallWork, chip: Chip, parameters: Parameters) -> float:
    share = parameters.cpu_convolution if row.family == "convolution" else parameters.cpu_matrix
    compute = row.flops / (chip.cpu.flops(row.dtype) * share)
    # The bandwidth of the memory is the same for the smallest GPU and for the CPU.
    memory = row.nbytes / (chip.gpus[0].gb_s * 1e9 * parameters.cpu_memory)
    return row.launches * parameters.host * _CLOCK / chip.cpu.ghz + max(compute, memory)


def _start_costs(parameters: Parameters) -> Callable[[str], float]:
    """Return the seconds that a call takes from Python to the GPU's queue, by its route."""
    graph, metal = parameters.host + parameters.graph, parameters.host + parameters.metal
    costs = {"graph": graph, "mps": graph, "metal": metal, "copy": metal}
    return lambda route: costs.get(route, (graph + metal) / 2)


def _compute(row: CallWork, rate: float, parameters: Parameters) -> float:
    share = parameters.gpu_convolution if row.family == "convolution" else parameters.gpu_matrix
    return row.flops / (rate * share)


def _share_of_bandwidth(row: CallWork, parameters: Parameters) -> float:
    return parameters.gpu_index if row.family == "index" else parameters.gpu_memory


def _copy_seconds(work: Workload) -> float:
    copy = load_speed().copy
    return work.copies * copy.seconds + work.copied / (copy.gb_s * 1e9)


def _interval(
    seconds: _Seconds,
    chip: Chip,
    parameters: Parameters,
    wide: float,
    *,
    on_cpu: bool = False,
) -> Interval:
    """Return the interval around a sum; its upper end has a wait for the result."""
    total = sum(seconds.values())
    factor = 2**parameters.spread
    end = 0.0 if on_cpu else parameters.wait * _CLOCK / chip.cpu.ghz
    return Interval(total / factor, (total + end) * factor + wide)


def _widening(work: Workload, gpu: Gpu) -> float:
    """Return the seconds that calls without a formula may take beyond their bytes."""
    nbytes = sum(row.nbytes * row.count for row in work.rows if row.family == NONE)
    calls = sum(row.launches * row.count for row in work.rows if row.family == NONE)
    wide = load_speed().widening
    return wide * (nbytes / (gpu.gb_s * 1e9) + calls * 1e-5)


def _least(work: Workload, chip: Chip, gpu: Gpu) -> float:
    """Return the seconds that the published rates of a chip allow at least."""
    return sum(
        row.count
        * max(
            row.flops / gpu.flops(row.dtype, chip.bfloat16),
            row.nbytes / (gpu.gb_s * 1e9) if row.nbytes > _CACHED and row.family != NONE else 0.0,
        )
        for row in work.rows
        if row.route != "cpu"
    )
