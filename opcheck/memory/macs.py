"""Which Macs a run fits: the working sets that Metal recommends, and the watermarks of the release."""

from __future__ import annotations

from collections.abc import Sequence

from opcheck.messages import invalid_buffer_size, out_of_memory
from opcheck.model import MacFit, Memory
from opcheck.oplists.environment import explain
from opcheck.oplists.macs import WorkingSet, load_macs
from opcheck.versions import Target


def fits(
    target: Target, totals: Sequence[int], largest: int
) -> tuple[tuple[MacFit, int | None], ...]:
    """For each size of Mac whether the run fits, and the index of the total that is too much.

    Args:
        target: whose macOS, watermark and texts hold.
        totals: bytes that are there, in the order of the run.
        largest: bytes of the largest single piece.
    """
    high = ratio("HIGH", target)
    found = []
    for mac in load_macs():
        known = mac.on(target.macos)
        limit = int(high * known.nbytes)
        state, prints = _state(known, limit, max(totals, default=0), largest, target)
        fit = MacFit(
            memory=mac.memory,
            working_set=known.nbytes,
            limit=limit,
            basis=known.basis,
            state=state,
            prints=prints,
        )
        found.append((fit, next((i for i, total in enumerate(totals) if total > limit), None)))
    return tuple(found)


def ratio(name: str, target: Target) -> float:
    """The default of a watermark (HIGH, LOW) of the release, as a multiple of the working set."""
    variable = explain(f"PYTORCH_MPS_{name}_WATERMARK_RATIO", str(target.torch)).variable
    assert variable is not None  # noqa: S101  (environment.yaml: every release reads it)
    return float(variable.default)


def _state(
    known: WorkingSet, limit: int, peak: int, largest: int, target: Target
) -> tuple[str, str]:
    # MPSAllocator.mm, alloc_buffer_block: the size of the one buffer is asked first.
    if largest >= known.buffer:
        return "raises", invalid_buffer_size(largest, target.torch)
    if peak > limit:
        return "raises", out_of_memory(limit, target.torch)
    return ("fits" if peak <= known.nbytes else "pressure"), ""


def smallest(memory: Memory, *states: str) -> MacFit | None:
    """The smallest Mac in one of these states."""
    return next((mac for mac in memory.macs if mac.state in states), None)


def asked(memory: Memory) -> MacFit | None:
    """The Mac that was asked about: the largest known one that has no more memory."""
    if not memory.asked:
        return None
    fitting = [mac for mac in memory.macs if mac.memory <= memory.asked]
    return fitting[-1] if fitting else memory.macs[0]
