"""Decide which Macs have enough memory for a run, by Metal's working sets and the watermarks of the release."""

from opcheck.common.versions import Target
from opcheck.data.watermarks import HIGH, LOW, watermarks
from opcheck.model.records import MacFit, Memory, Trace, Watermarks


def ratios_of(trace: Trace, target: Target) -> Watermarks:
    """Return the ratios of a run: those that it was captured with, else the defaults of the release."""
    return trace.watermarks or watermarks({}, target.torch)


def describe_watermarks(trace: Trace, target: Target) -> str:
    """Describe in words how the allocator limits the working set."""
    ratios = ratios_of(trace, target)
    origin = f"as {HIGH} and {LOW} are set," if trace.watermarks else "by default"
    back = (
        f"gives cached memory back from {ratios.low:g} times the recommended working set on"
        if ratios.low
        else "keeps cached memory"
    )
    limit = f"raises above {ratios.high:g} times" if ratios.high else "sets no limit"
    names = "" if trace.watermarks else f" ({LOW}, {HIGH})"
    return f"{origin} torch {target.torch} {back}, and {limit}{names}"


def smallest(memory: Memory, *states: str) -> MacFit | None:
    """Return the smallest Mac in any of these states."""
    return next((mac for mac in memory.macs if mac.state in states), None)


def deciding(memory: Memory) -> MacFit | None:
    """Return the Mac that decides about a run: the Mac that the user named, else the largest if none is enough.

    None: nothing is known of Macs, or no Mac was named, and some Mac is enough.
    """
    if not memory.macs:
        return None
    mac = find_asked_mac(memory)
    if mac is None and smallest(memory, "fits", "pressure") is None:
        return memory.macs[-1]
    return mac


def runs_out(memory: Memory | None) -> bool:
    """Return whether the run raises on the Mac that decides."""
    mac = deciding(memory) if memory else None
    return mac is not None and mac.state == "raises"


def find_asked_mac(memory: Memory) -> MacFit | None:
    """Return the Mac that the user named: the largest known Mac with no more memory than that."""
    if not memory.asked:
        return None
    fitting = [mac for mac in memory.macs if mac.memory <= memory.asked]
    return fitting[-1] if fitting else memory.macs[0]
