"""The memory estimate as tables and sentences, for the formats for people."""

from collections.abc import Iterator, Sequence

from opcheck.common.text import and_more, filesize, plural
from opcheck.common.vocabulary import MEMORY_USES, GrowthKind
from opcheck.model.records import (
    MacFit,
    Memory,
    MemoryCache,
    MemoryGrowth,
    MemoryHolder,
    MemoryLimit,
    MemoryPlan,
)
from opcheck.render import summary
from opcheck.render.document import Block, Bullets, Heading, Table, TextSpan, Words

TITLE = "Memory on MPS (an estimate)"

#: What each state comes to, in the words of the table.
_STATES = {
    "fits": "fits",
    "pressure": "more than Metal recommends: may swap, slows down",
    "raises": "raises",
}

#: The same for a plan, before the memory of the Mac.
_PLANNED = {"fits": "fits", "pressure": "runs, but may swap, on", "raises": "raises on"}
#: Operators that a row names.
_OPERATORS = 3
#: How many lines are seen at once.
_HELD = 5


def blocks(memory: Memory) -> Iterator[Block]:
    """Make the section of the estimate."""
    yield Heading(TITLE)
    if memory.growth:
        yield _growth(memory.growth)
    if not memory.peaks:
        return
    if memory.cache:
        yield _cache(memory.cache)
    yield from (_peaks(memory), _holders(memory), _macs(memory))
    yield Bullets((*_printed_text(memory.macs), *_sentences(memory)))


def _peaks(memory: Memory) -> Table:
    """Make a row for each phase: its peak and the uses of that memory."""
    shown = [name for name in MEMORY_USES if any(peak.held[name] for peak in memory.peaks)]
    return Table(
        ("phase", "peak", *shown),
        tuple(
            (
                peak.phase,
                filesize(peak.total),
                *(filesize(peak.held[name]) if peak.held[name] else "-" for name in shown),
            )
            for peak in memory.peaks
        ),
        right=tuple(range(1, len(shown) + 2)),
    )


def _holders(memory: Memory) -> Table:
    """List the largest uses at the highest peak."""
    return Table(
        ("what", "bytes", "tensors", "made by"),
        tuple(
            (holder.kind, filesize(holder.nbytes), f"{holder.tensors:,}", _made_by(holder))
            for holder in memory.holders
        ),
        right=(1, 2),
        shown=_HELD,
    )


#: Empty: with a new shape, and the graphs are named.
_GROWS_WITH: dict[GrowthKind, str] = {"graphs": "", "tensors": "step", "buffers": "size"}


def _growth(growth: Sequence[MemoryGrowth]) -> Table:
    """Make a row for each line whose memory grows with each new shape, or with each step."""
    return Table(
        ("grows at", "operators", "with each", "by at least", "what to do"),
        tuple(
            (
                each.line,
                and_more(each.operators, _OPERATORS),
                _GROWS_WITH[each.kind] or f"new shape: {plural(each.graphs, 'graph')}",
                f"{each.megabytes:g} MB",
                each.cure,
            )
            for each in growth
        ),
        right=(3,),
        shown=_HELD,
    )


def _cache(entries: Sequence[MemoryCache]) -> Table:
    """Make a row for the cache of keys and values at each context."""
    columns = ("dynamic", "growing", "static", "without windows", "4 bits")
    return Table(
        ("context", *columns),
        tuple(
            (
                f"{each.context:,}",
                *map(
                    filesize, (each.dynamic, each.growing, each.static, each.full, each.quantized)
                ),
            )
            for each in entries
        ),
        right=tuple(range(len(columns) + 1)),
    )


def answers(memory: Memory) -> Iterator[Block]:
    """Make what the user asked for: the plan, and the largest sizes."""
    if memory.plan:
        yield _plans(memory.plan)
    if memory.limits:
        yield _limits(memory.limits)


def _plans(entries: Sequence[MemoryPlan]) -> Bullets:
    """Make a line for each plan: the changes, how they are written, and the memory."""
    return Bullets(
        tuple(
            f"{_PLANNED[each.state]} {each.memory} GB with {_and(each.changes)}: MPS allocated "
            f"{filesize(each.allocated)}, other {filesize(each.other)} ({each.checked}); "
            f"{'; '.join(each.how)}".rstrip("; ")
            for each in entries
        )
    )


def _and(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _limits(entries: Sequence[MemoryLimit]) -> Table:
    """Make a row for the largest size of each dimension, and what ends the next size."""
    return Table(
        ("dimension", "range", "largest", "Mac", "with", "what ends it", "proved"),
        tuple(
            (
                each.dimension,
                each.range,
                f"{each.largest:,}" if each.largest else "none",
                f"{each.memory} GB",
                ", ".join(f"{name} {size:,}" for name, size in each.others.items()) or "-",
                each.ends,
                "by captures" if each.proved else "computed",
            )
            for each in entries
        ),
        right=(2, 3),
    )


def _macs(memory: Memory) -> Table:
    """Make a row for each Mac."""
    return Table(
        ("Mac", "chips", "recommended", "limit", "MPS allocated", "other", "this run"),
        tuple(
            (
                f"{mac.memory} GB",
                ", ".join(mac.chips),
                filesize(mac.working_set),
                filesize(mac.limit) if mac.limit else "none",
                filesize(mac.allocated),
                filesize(mac.other),
                _state(mac),
            )
            for mac in memory.macs
        ),
        right=(2, 3, 4, 5),
    )


def _sentences(memory: Memory) -> Iterator[str]:
    """Say where the peak is, what would lower it, and what the estimate leaves out."""
    peak = memory.peak
    yield f"highest in {peak.phase}: {filesize(peak.total)}" + (
        f", during {peak.op} {summary.place(peak.place)}" if peak.place else ""
    )
    yield from _allocation(memory)
    for line in memory.advice:
        yield f"to lower the peak: {line}"
    yield from memory.notes


def _allocation(memory: Memory) -> Iterator[str]:
    """Describe what the allocator, the kernels and the move add to the tensors."""
    more = memory.allocation
    if more is None:
        return
    yield (
        f"the allocator takes {filesize(more.allocated)} of heaps for {filesize(more.live)} of buffers"
    )
    if more.workspace:
        yield (
            f"workspaces outside of the heaps: up to {filesize(more.workspace)} for one call, and up to "
            f"{filesize(more.workspaces)} if those of all calls between two waits exist at once (bounds)"
        )
    if more.checkpoint:
        yield (
            f"on the CPU while it is moved: {filesize(more.moved_weight)} (one weight at a time); "
            f"{filesize(more.checkpoint)} if a checkpoint was read whole and is still referenced"
        )


def _printed_text(macs: Sequence[MacFit]) -> Iterator[Words]:
    """Say what the smallest Mac that raises prints."""
    first = next((mac for mac in macs if mac.state == "raises"), None)
    if first is not None and first.prints:
        yield f"a Mac of {first.memory} GB prints:", TextSpan(first.prints)


def _made_by(holder: MemoryHolder) -> str:
    return f"{holder.op} {summary.place(holder.place)}" if holder.op else "moved to mps"


def _state(mac: MacFit) -> str:
    words = _STATES[mac.state]
    if mac.state == "raises":
        where = f"at {summary.place(mac.place)}" if mac.place else "as the model is moved to mps"
        buffer = mac.prints.startswith("Invalid")
        words += f" {where}: {'a tensor larger than a buffer' if buffer else 'out of memory'}"
    return words if mac.basis == "reported" else f"{words} (working set estimated)"
