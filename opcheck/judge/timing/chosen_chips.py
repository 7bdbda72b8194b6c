"""Find the chips that a user chose, and add their estimates to a report."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from opcheck.data.chips import load_chips, load_parameters
from opcheck.data.macs import MacOptions, chips_by_memory
from opcheck.data.registrations import OpLists
from opcheck.judge.timing.intervals import estimate
from opcheck.judge.timing.speedups import list_speedups
from opcheck.model.options import Option
from opcheck.model.records import Report

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
