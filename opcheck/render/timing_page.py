"""The estimate of time as facts, a table and sentences, for the formats for people."""

from collections.abc import Iterator, Sequence

from opcheck.common.text import duration, percent, plural
from opcheck.model.records import TimeEstimate
from opcheck.render.document import Block, Bullets, Column, Heading, Words, table_of
from opcheck.render.report_words import FAMILIES

TITLE = "Time (an estimate, never observed on a Mac)"

#: Shares that the summary names.
_PARTS = 3


def facts(times: Sequence[TimeEstimate], *, short: bool = False) -> Iterator[tuple[str, Words]]:
    """Yield the answer in three lines: how long, what it goes to, what would help.

    Args:
        times: the estimates of a report, those of a chip in a row.
        short: Leave out what it goes to where something would help.
    """
    if not times:
        return
    first = times[0]
    chips = list(dict.fromkeys(each.mac for each in times))
    if chips[1:]:
        same = [each for each in times if each.covers == first.covers]
        fast = min(same, key=lambda each: each.low_seconds * each.high_seconds)
        slow = max(same, key=lambda each: each.low_seconds * each.high_seconds)
        yield "time", f"{slow.mac} {_gpu(slow)} ... {fast.mac} {_gpu(fast)} a {first.unit} (--show time has all)"
        return
    cores = " or ".join(map(str, first.gpu_cores))
    yield ("time", f"{first.mac}: {_gpu(first)} a {first.unit} ({cores} GPU cores); its CPU: {_cpu(first)}")
    if not (short and first.advice):
        yield "spent on", ", ".join(_parts(first)[:_PARTS])
    if first.advice:
        yield "faster with", "; ".join(first.advice)


def blocks(times: Sequence[TimeEstimate]) -> Iterator[Block]:
    """Make the section: a row for each chip, what is left out, and what would help."""
    yield Heading(TITLE)
    columns: dict[str, Column] = {
        "Mac": "mac",
        "GPU cores": lambda each: " or ".join(map(str, each.gpu_cores)),
        "GPU": _gpu,
        "CPU": _cpu,
        "a": lambda each: f"{each.unit}: {each.covers}",
        "bound by": lambda each: f"{each.bound} ({percent(each.shares[each.bound], 1)})",
    }
    yield table_of(times, columns)
    yield Bullets(tuple(_sentences(times)))


def _sentences(times: Sequence[TimeEstimate]) -> Iterator[Words]:
    first = times[0]
    if first.without_formula:
        calls = plural(first.without_formula, "call")
        yield f"{calls} without a formula for the work: the intervals are wider for it"
    if first.left_out:
        yield f"left out: {plural(first.left_out, 'call')} that would raise"
    yield from (f"faster on {first.mac} with {line}" for line in first.advice)
    yield (
        "from published rates of the chips and shares fitted to published times "
        "(docs/explanation/time.md); data loading, heat and other programs are not modelled"
    )


def _gpu(each: TimeEstimate) -> str:
    return duration(each.low_seconds, each.high_seconds)


def _cpu(each: TimeEstimate) -> str:
    return duration(each.cpu_low_seconds, each.cpu_high_seconds)


def _parts(each: TimeEstimate) -> list[str]:
    """Return the shares in words, the largest first; those below a hundredth are left out."""
    where = f" at {each.waits_at}" if each.waits_at else ""
    waits = f"{plural(each.waits, 'wait')}{where}" if each.waits else "the wait for the result"
    shares = {FAMILIES[name]: share for name, share in each.families.items()}
    shares[f"launches of {plural(each.launches, 'kernel')}"] = each.shares["launch"]
    shares[waits] = each.shares["wait"]
    shares[plural(each.copies, "copy")] = each.shares["copy"]
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return [f"{percent(share, 1)} {name}" for name, share in ordered if share >= 0.01]
