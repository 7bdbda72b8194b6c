"""Make intervals of time from the work of a run, for chips by their published rates.

A call takes the longest of its arithmetic, its reads and writes, and its start; what the fitted shares of the rates are
is in op_lists/speed_fit.json.  Nothing was observed on a Mac.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from opcheck.common.picking import pick
from opcheck.common.text import plural
from opcheck.common.versions import Version
from opcheck.common.vocabulary import TIME_BOUNDS, TimeBound
from opcheck.data.chips import CHIPS, FIT, SPEED, Chip, Gpu, Parameters
from opcheck.data.compile_defects import DEFECTS
from opcheck.data.kernel_routes import routes
from opcheck.data.macs import MacOptions, chips_by_memory
from opcheck.data.registrations import OpLists
from opcheck.judge.texts import NOT_CHECKED
from opcheck.judge.timing.workload import NONE
from opcheck.model.options import Option
from opcheck.model.records import CallGroup, CallWork, Report, TimeEstimate, Workload

#: The clock in GHz that the costs of starting calls are stated for.
_CLOCK = 3.2
#: A view starts no kernel: the CPU spends this share of the time of another call.
_VIEW = 0.3
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


def middle(estimated: TimeEstimate) -> float:
    """Return the geometric mean of the ends of an estimate, in seconds."""
    return Interval(estimated.low_seconds, estimated.high_seconds).middle


def estimate(work: Workload, name: str, gpus: Sequence[Gpu], parameters: Parameters) -> TimeEstimate:
    """Return the estimate of one part of a run for one chip.

    Args:
        work: the part.
        name: the chip.
        gpus: those that it may have; the interval is about all of them.
        parameters: the fitted ones.
    """
    chip = CHIPS.load().chips[name]
    runs = [_on_gpu(work, chip, gpu, parameters) for gpu in gpus]
    wide = _widening(work, gpus[0], parameters)
    ends = [_interval(each, parameters) for each in runs]
    floor = min(_least(work, chip, gpu) for gpu in gpus)
    on_cpu, factor = _on_cpu(work, chip, parameters), 2**parameters.cpu_spread
    parts = runs[0].shares()
    shares = {bound: round(sum(parts[key] for key in parts if key[0] == bound), 3) for bound in TIME_BOUNDS}
    low, high = min(each.low for each in ends), max(each.high for each in ends)
    # A share of a published rate cannot exceed it: where that cuts the lower side, half as much of the upper side goes.
    cut = min(low / floor, 1.0) if floor else 1.0
    low, high = low / cut, max(high * cut**0.5, low / cut)
    return TimeEstimate(
        mac=name,
        gpu_cores=tuple(gpu.cores for gpu in gpus),
        **pick(work, "unit", "covers", "waits", "waits_at", "copies"),
        low_seconds=low,
        high_seconds=high + wide,
        cpu_low_seconds=on_cpu / factor,
        cpu_high_seconds=on_cpu * factor + wide,
        bound=max(TIME_BOUNDS, key=lambda bound: shares[bound]),
        shares=shares,
        families={
            family: round(parts["compute", family] + parts["memory", family], 3)
            for family in sorted({family for _, family in parts} - {""})
        },
        launches=sum(row.launches * row.count for row in work.rows if row.route != "cpu"),
        without_formula=sum(row.count for row in work.rows if row.family == NONE),
        left_out=work.raising,
    )


#: Seconds or shares by their cause, and by the family of the calls where the GPU is busy.
_Parts = defaultdict[tuple[TimeBound, str], float]


class _Run(NamedTuple):
    """The seconds of a part on one GPU."""

    #: of the GPU, by cause and by the family of the calls; of waits and copies
    busy: _Parts
    rest: _Parts
    #: of the CPU, where it starts all calls, and of those that take longer to start than to compute
    starting: float
    exposed: float
    #: of the GPU, for the calls that take longer to compute than to start
    covered: float

    def ends(self) -> Interval:
        """Return the seconds where the CPU starts calls as far ahead as it can, and where it never does."""
        rest = sum(self.rest.values())
        overlapping = max(self.starting, sum(self.busy.values()))
        return Interval(overlapping + rest, self.exposed + self.covered + rest)

    def shares(self) -> _Parts:
        """Return the parts of the middle, together 1; starting calls takes what the rest leaves."""
        parts = {**self.busy, **self.rest}
        others = sum(parts.values())
        total = max(self.ends().middle, others)
        result = _Parts(float, {key: seconds / total for key, seconds in parts.items()})
        result["launch", ""] = 1 - others / total
        return result


def _on_gpu(work: Workload, chip: Chip, gpu: Gpu, parameters: Parameters) -> _Run:
    """Return the seconds of a part by their cause; calls on the CPU make the GPU wait."""
    slower = _CLOCK / chip.cpu.ghz
    start = _start_costs(parameters)
    exposed = starting = work.views * _VIEW * parameters.host * slower
    covered = 0.0
    busy, rest = _Parts(float), _Parts(float)
    # The program waits once more, for the result.
    rest["wait", ""] = (work.waits + 1) * parameters.wait * slower
    copy = SPEED.load().copy
    rest["copy", ""] = work.copies * copy.seconds + work.copied / (copy.gb_s * 1e9)
    for row in work.rows:
        if row.route == "cpu":
            rest["wait", ""] += row.count * _cpu_call(row, chip, parameters)
            continue
        compute = _compute(row, gpu.flops(row.dtype, chip.bfloat16), parameters)
        share = parameters.gpu_index if row.family == "index" else parameters.gpu_memory
        memory = row.nbytes / (gpu.gb_s * 1e9 * share)
        launch = row.launches * slower * start(row.route)
        starting += row.count * launch
        busy["compute", row.family] += row.count * compute
        busy["memory", row.family] += row.count * memory
        if launch > compute + memory:
            exposed += row.count * launch
        else:
            covered += row.count * (compute + memory)
    return _Run(busy, rest, starting, exposed, covered)


def _on_cpu(work: Workload, chip: Chip, parameters: Parameters) -> float:
    """Return the seconds of the same calls on the CPU, which neither copies nor waits."""
    calls = sum(row.count * _cpu_call(row, chip, parameters) for row in work.rows)
    return calls + work.views * _VIEW * parameters.host * _CLOCK / chip.cpu.ghz


def _cpu_call(row: CallWork, chip: Chip, parameters: Parameters) -> float:
    compute = row.flops / (chip.cpu.flops(row.dtype) * parameters.cpu_matrix)
    memory = row.nbytes / (chip.cpu.bandwidth(chip.gpus[0].gb_s) * parameters.cpu_memory)
    return row.launches * parameters.host * _CLOCK / chip.cpu.ghz + max(compute, memory)


def _start_costs(parameters: Parameters) -> Callable[[str], float]:
    """Return the seconds that a call takes from Python to the GPU's queue, by its route."""
    starts = SPEED.load().starts
    graph, metal = parameters.host + starts.graph, parameters.host + starts.metal
    costs = {"graph": graph, "mps": graph, "metal": metal, "copy": metal}
    return lambda route: costs.get(route, (graph + metal) / 2)


def _compute(row: CallWork, rate: float, parameters: Parameters) -> float:
    share = parameters.gpu_convolution if row.family == "convolution" else parameters.gpu_matrix
    return row.flops / (rate * share)


def _interval(run: _Run, parameters: Parameters) -> Interval:
    """Return the interval of a part, the wider the more of it the CPU takes."""
    spreads = {"compute": parameters.compute_spread, "memory": parameters.memory_spread}
    spread = sum(share * spreads.get(bound, parameters.launch_spread) for (bound, _), share in run.shares().items())
    ends = run.ends()
    return Interval(ends.low / 2**spread, ends.high * 2**spread)


def _widening(work: Workload, gpu: Gpu, parameters: Parameters) -> float:
    """Return the seconds that calls without a formula may take beyond their bytes."""
    rows = [row for row in work.rows if row.family == NONE]
    nbytes = sum(row.nbytes * row.count for row in rows)
    calls = sum(row.launches * row.count for row in rows)
    return SPEED.load().widening * (nbytes / (gpu.gb_s * 1e9) + calls * parameters.host)


def _least(work: Workload, chip: Chip, gpu: Gpu) -> float:
    """Return the seconds that the published rates of a chip allow at least."""

    def least(row: CallWork) -> float:
        memory = row.nbytes / (gpu.gb_s * 1e9) if row.nbytes > _CACHED and row.family != NONE else 0.0
        return row.count * max(row.flops / gpu.flops(row.dtype, chip.bfloat16), memory)

    return sum(least(row) for row in work.rows if row.route != "cpu")


# -- What would make a run faster, in the words of a report; each line rests on an estimate or on the op lists --


#: From this share of the time on a cause is named.
_SHARE = 0.1
_LARGE_SHARE = 0.2
#: A change that makes a run so many times faster is named.
_GAIN = 1.2


def list_speedups(
    report: Report, work: Workload, estimated: TimeEstimate, gpus: Sequence[Gpu], parameters: Parameters, lists: OpLists
) -> tuple[str, ...]:
    """Return what would help most, the cheapest change first.

    Args:
        report: of the run.
        work: the part of it that was estimated.
        estimated: the estimate.
        gpus: the GPUs that it is about.
        parameters: of the estimate.
        lists: the op lists, for kernels of later releases.

    Raises:
        OpListError: a list is damaged.
    """
    return (
        *_fewer_waits(work, estimated),
        *_half(work, estimated, gpus, parameters),
        *_fewer_launches(report, work, estimated, lists),
        *_the_cpu(estimated),
    )


def _fewer_waits(work: Workload, estimated: TimeEstimate) -> Iterator[str]:
    if work.waits and estimated.shares["wait"] + estimated.shares["copy"] >= _SHARE:
        where = f", most at {work.waits_at}" if work.waits_at else ""
        yield f"fewer than {plural(work.waits, 'wait')} for the GPU{where}"


def _half(work: Workload, estimated: TimeEstimate, gpus: Sequence[Gpu], parameters: Parameters) -> Iterator[str]:
    """Yield the gain of half precision, if the same calls with half the bytes are estimated as faster."""

    def halved(row: CallWork) -> CallWork:
        return replace(row, dtype="float16", nbytes=row.nbytes // 2) if row.dtype == "float32" else row

    changed_work = replace(work, rows=tuple(map(halved, work.rows)))
    if changed_work == work:
        return
    changed = estimate(changed_work, estimated.mac, gpus, parameters)
    gain = estimated.high_seconds / changed.high_seconds
    if gain >= _GAIN:
        yield f"float16 (--dtype float16): about {gain:.1f} times as fast"


def _fewer_launches(report: Report, work: Workload, estimated: TimeEstimate, lists: OpLists) -> Iterator[str]:
    if estimated.shares["launch"] < _LARGE_SHARE:
        return
    if work.unit != "token":
        yield f"a larger batch: its {estimated.launches:,} launches stay as many"
    torch = Version.parse(report.target.torch)
    prototype = next((each for each in DEFECTS.load().defects if each.id == "prototype"), None)
    if prototype is not None and prototype.torch.until is not None and torch >= prototype.torch.until:
        yield f"torch.compile, if it works: opcheck compile {report.model} --torch {torch}"
    later = _release_with_metal(report.groups, torch, lists)
    if later is not None:
        line, calls = later
        yield f"torch {line}: Metal kernels in place of MPSGraph for {plural(calls, 'call')}"


def _release_with_metal(groups: Sequence[CallGroup], torch: Version, lists: OpLists) -> tuple[str, int] | None:
    """Return the release whose Metal kernels replace most graphs, and for how many calls; None: there is none.

    The earliest of several that replace as many.
    """
    graphs = [each for each in groups if each.route == "graph"]

    def replaced(line: str) -> int:
        table = routes(lists)
        return sum(each.count for each in graphs if table.of_operators((each.op,), line).kind == "metal")

    calls = {release.line: replaced(release.line) for release in lists.releases if release.version > torch}
    best = max(calls, key=calls.__getitem__, default="")
    return (best, calls[best]) if calls.get(best) else None


def _the_cpu(estimated: TimeEstimate) -> Iterator[str]:
    if estimated.cpu_high_seconds * estimated.cpu_low_seconds < (estimated.low_seconds * estimated.high_seconds):
        yield "the CPU of the same Mac, which the estimate puts before its GPU"


# -- find the chips that a user chose, and add their estimates to a report -------------------------------------

TIME = Option("Estimate the time, on every chip without --mac.")


def chips_of(mac: MacOptions, *, time: bool = False) -> tuple[str, ...]:
    """Return the chips that the options of a Mac mean, in the order of their release.

    Args:
        mac: the options; a memory alone means no chip without ``time``.
        time: the user wants the time; without a Mac, every chip is meant.

    Raises:
        UsageError: no Mac has the name.
    """
    macs = mac.macs() if mac.mac or time else ()
    names = {each.chip for each in macs}
    if "" in names:
        sold = chips_by_memory()
        names |= {chip for each in macs for chip in sold.get(each.memory, ())}
    return tuple(chip for chip in CHIPS.load().chips if chip in names or (time and not macs))


def with_time(report: Report, chips: Iterable[str], lists: OpLists) -> Report:
    """Return the report with an estimate for each chip and each part of the run that repeats.

    Args:
        report: with the work of its run; without it nothing is estimated.
        chips: names of op_lists/chips.yaml.
        lists: the op lists, for the kernels of later releases.

    Raises:
        OpListError: a list is damaged.
    """
    parameters, sold = FIT.load().parameters, CHIPS.load().chips
    result = []
    for chip in chips:
        for work in report.workloads:
            each = estimate(work, chip, sold[chip].gpus, parameters)
            lines = list_speedups(report, work, each, sold[chip].gpus, parameters, lists)
            result.append(replace(each, advice=lines))
    if not result:
        return report
    with_time, without_time = NOT_CHECKED["with_time"], NOT_CHECKED["without_time"]
    left = tuple(with_time if each == without_time else each for each in report.not_checked)
    return replace(report, time=tuple(result), not_checked=left)
