"""What would make a run faster, in the words of a report; each line rests on an estimate or on the op lists."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from opcheck.common.text import plural
from opcheck.common.versions import Version
from opcheck.data.chips import Gpu, Parameters, load_chips, load_parameters
from opcheck.data.compile_defects import load_defects
from opcheck.data.kernel_routes import routes
from opcheck.data.macs import MacOptions, chips_by_memory
from opcheck.data.registrations import OpLists
from opcheck.judge.timing.intervals import estimate
from opcheck.model.options import Option
from opcheck.model.records import CallGroup, Report, TimeEstimate, Workload

#: From this share of the time on a cause is named.
_SHARE = 0.1
_LARGE_SHARE = 0.2
#: A change that makes a run so many times faster is named.
_GAIN = 1.2


def list_speedups(
    report: Report,
    work: Workload,
    estimated: TimeEstimate,
    gpus: Sequence[Gpu],
    parameters: Parameters,
    lists: OpLists,
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


def _half(
    work: Workload, estimated: TimeEstimate, gpus: Sequence[Gpu], parameters: Parameters
) -> Iterator[str]:
    """Yield the gain of half precision, if the same calls with half the bytes are estimated as faster."""
    rows = tuple(
        msgspec.structs.replace(row, dtype="float16", nbytes=row.nbytes // 2)
        if row.dtype == "float32"
        else row
        for row in work.rows
    )
    if rows == work.rows:
        return
    changed = estimate(msgspec.structs.replace(work, rows=rows), estimated.mac, gpus, parameters)
    gain = estimated.high_seconds / changed.high_seconds
    if gain >= _GAIN:
        yield f"float16 (--dtype float16): about {gain:.1f} times as fast"


def _fewer_launches(
    report: Report, work: Workload, estimated: TimeEstimate, lists: OpLists
) -> Iterator[str]:
    if estimated.shares["launch"] < _LARGE_SHARE:
        return
    if work.unit != "token":
        yield f"a larger batch: its {estimated.launches:,} launches stay as many"
    torch = Version.parse(report.target.torch)
    prototype = next((each for each in load_defects() if each.id == "prototype"), None)
    if (
        prototype is not None
        and prototype.torch.until is not None
        and torch >= prototype.torch.until
    ):
        yield f"torch.compile, if it works: opcheck compile {report.model} --torch {torch}"
    later = _release_with_metal(report.groups, torch, lists)
    if later is not None:
        line, calls = later
        yield f"torch {line}: Metal kernels in place of MPSGraph for {plural(calls, 'call')}"


def _release_with_metal(
    groups: Sequence[CallGroup], torch: Version, lists: OpLists
) -> tuple[str, int] | None:
    """Return the release whose Metal kernels replace most graphs, and for how many calls; None: there is none.

    The earliest of several that replace as many.
    """
    graphs = [each for each in groups if each.route == "graph"]
    best: tuple[str, int] | None = None
    for release in lists.releases:
        if Version.parse(release.line) <= torch:
            continue
        calls = sum(
            group.count
            for group in graphs
            if routes(lists).of_operators((group.op,), release.line).kind == "metal"
        )
        if calls > (best[1] if best else 0):
            best = release.line, calls
    return best


def _the_cpu(estimated: TimeEstimate) -> Iterator[str]:
    if estimated.cpu_high_seconds * estimated.cpu_low_seconds < (
        estimated.low_seconds * estimated.high_seconds
    ):
        yield "the CPU of the same Mac, which the estimate puts before its GPU"


# -- find the chips that a user chose, and add their estimates to a report -------------------------------------

#: What a report without an estimate of the time does not check, and with it.
WITHOUT_TIME = (
    "numerical results and speed; memory is estimated from the tensors' lifetimes, not measured"
)
_WITH_TIME = "numerical results; memory and time are estimated from the calls, not measured"

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
    return tuple(chip for chip in load_chips() if chip in names or (time and not macs))


def with_time(report: Report, chips: Iterable[str], lists: OpLists) -> Report:
    """Return the report with an estimate for each chip and each part of the run that repeats.

    Args:
        report: with the work of its run; without it nothing is estimated.
        chips: names of op_lists/chips.yaml.
        lists: the op lists, for the kernels of later releases.

    Raises:
        OpListError: a list is damaged.
    """
    parameters, sold = load_parameters(), load_chips()
    result = []
    for chip in chips:
        for work in report.workloads:
            each = estimate(work, chip, sold[chip].gpus, parameters)
            lines = list_speedups(report, work, each, sold[chip].gpus, parameters, lists)
            result.append(msgspec.structs.replace(each, advice=lines))
    if not result:
        return report
    left = tuple(_WITH_TIME if each == WITHOUT_TIME else each for each in report.not_checked)
    return msgspec.structs.replace(report, time=tuple(result), not_checked=left)
