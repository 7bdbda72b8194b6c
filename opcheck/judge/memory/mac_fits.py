"""Decide which Macs have enough memory for a run, by Metal's working sets and the watermarks of the release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from opcheck.common.versions import Target
from opcheck.data.environment import load_environment
from opcheck.data.macs import chips_by_memory, load_macs
from opcheck.data.messages import invalid_buffer_size, out_of_memory
from opcheck.model.records import MacFit, Memory


class MemoryMoment(NamedTuple):
    """The memory at one call of a run, or at the move before the first call."""

    #: bytes that are allocated, and the bytes of the largest new piece.
    total: int
    largest: int


def fits(target: Target, moments: Sequence[MemoryMoment]) -> Iterator[tuple[MacFit, int | None]]:
    """Yield for each size of Mac whether the run fits, and the index of the moment when it raises.

    Args:
        target: the target, for its macOS, watermark and texts.
        moments: of the run, in order.
    """
    high = ratio("HIGH", target)
    peak = max(moment.total for moment in moments)
    chips = chips_by_memory()
    for mac in load_macs():
        known = mac.on(target.macos)
        limit = int(high * known.nbytes)
        fit = MacFit(
            memory=mac.memory,
            chips=tuple(chips[mac.memory]),
            working_set=known.nbytes,
            limit=limit,
            basis=known.basis,
            state="fits" if peak <= known.nbytes else "pressure",
        )
        for index, moment in enumerate(moments):
            # MPSAllocator.mm, alloc_buffer_block: it compares the size of the one buffer first.
            if moment.largest >= known.buffer:
                text = invalid_buffer_size(moment.largest, target.torch)
            elif moment.total > limit:
                text = out_of_memory(limit, target.torch)
            else:
                continue
            yield msgspec.structs.replace(fit, state="raises", prints=text), index
            break
        else:
            yield fit, None


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

    None: no Mac was named, and some Mac is enough.
    """
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
