"""The memory estimate as tables and sentences, for the formats for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opcheck.common.text import filesize
from opcheck.model.records import MacFit, Memory, MemoryHolder
from opcheck.render import summary

TITLE = "Memory on MPS (an estimate)"

#: What each state comes to, in the words of the table.
_STATES = {
    "fits": "fits",
    "pressure": "more than Metal recommends: may swap, slows down",
    "raises": "raises",
}

#: The columns of a peak that are only shown where some phase has them.
_COLUMNS = ("parameters", "buffers", "inputs", "gradients", "optimizer", "activations")


class Rows(NamedTuple):
    """One table."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    #: of each column: left or right
    aligned: tuple[str, ...]


def peaks(memory: Memory) -> Rows:
    """One row a phase: its peak and what that holds."""
    shown = [name for name in _COLUMNS if any(peak.held[name] for peak in memory.peaks)]
    return Rows(
        ("phase", "peak", *shown),
        tuple(
            (
                peak.phase,
                filesize(peak.total),
                *(filesize(peak.held[name]) if peak.held[name] else "-" for name in shown),
            )
            for peak in memory.peaks
        ),
        ("left", "right", *("right" for _ in shown)),
    )


def holders(memory: Memory, limit: int) -> Rows:
    """What holds most at the highest peak."""
    return Rows(
        ("what", "bytes", "tensors", "made by"),
        tuple(
            (holder.kind, filesize(holder.nbytes), f"{holder.tensors:,}", _made_by(holder))
            for holder in memory.holders[:limit]
        ),
        ("left", "right", "right", "left"),
    )


def macs(memory: Memory) -> Rows:
    """One row a Mac."""
    return Rows(
        ("Mac", "recommended", "limit", "this run"),
        tuple(
            (f"{mac.memory} GB", filesize(mac.working_set), filesize(mac.limit), _state(mac))
            for mac in memory.macs
        ),
        ("left", "right", "right", "left"),
    )


def sentences(memory: Memory) -> Iterator[str]:
    """Where the peak is, what would lower it, and what the estimate leaves out."""
    peak = memory.peak
    yield f"highest in {peak.phase}: {filesize(peak.total)}" + (
        f", during {peak.op} {summary.place(peak.place)}" if peak.place else ""
    )
    for line in memory.advice:
        yield f"to lower the peak: {line}"
    yield from memory.notes


def printed(macs: Sequence[MacFit]) -> tuple[str, str]:
    """The smallest Mac that raises, in words, and what it prints; both empty where none does."""
    first = next((mac for mac in macs if mac.state == "raises"), None)
    return (f"a Mac of {first.memory} GB prints", first.prints) if first else ("", "")


def _made_by(holder: MemoryHolder) -> str:
    return f"{holder.op} {summary.place(holder.place)}" if holder.op else "moved to mps"


def _state(mac: MacFit) -> str:
    words = _STATES[mac.state]
    if mac.state == "raises":
        where = f"at {summary.place(mac.place)}" if mac.place else "as the model is moved to mps"
        buffer = mac.prints.startswith("Invalid")
        words += f" {where}: {'a tensor larger than a buffer' if buffer else 'out of memory'}"
    return words if mac.basis == "reported" else f"{words} (working set estimated)"
