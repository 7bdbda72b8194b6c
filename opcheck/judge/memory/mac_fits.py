"""Decide which Macs have enough memory for a run, by Metal's working sets and the watermarks of the release."""

from __future__ import annotations

from opcheck.common.versions import Target
from opcheck.data.environment import load_environment
from opcheck.model.records import MacFit, Memory


def ratio(name: str, target: Target) -> float:
    """Return the release's default of a watermark (HIGH, LOW), as a multiple of the working set."""
    full = f"PYTORCH_MPS_{name}_WATERMARK_RATIO"
    variable = load_environment().explain(full, str(target.torch)).variable
    assert variable is not None
    return float(variable.default)


def watermarks(target: Target) -> str:
    """Describe in words how the release limits the working set."""
    return (
        f"by default torch {target.torch} gives cached memory back from {ratio('LOW', target):g} times the "
        f"recommended working set on, and raises above {ratio('HIGH', target):g} times "
        "(PYTORCH_MPS_LOW_WATERMARK_RATIO, PYTORCH_MPS_HIGH_WATERMARK_RATIO)"
    )


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
