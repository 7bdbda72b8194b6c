"""The memory estimate as tables and sentences, for the formats for people."""

from collections.abc import Iterator, Sequence

from opcheck.common.text import and_more, filesize, join_and, plural
from opcheck.common.vocabulary import MEMORY_USES, GrowthKind
from opcheck.model.records import MacFit, Memory, MemoryCache, MemoryGrowth, MemoryHolder, MemoryLimit, MemoryPlan
from opcheck.render import summary
from opcheck.render.document import Block, Bullets, Column, Heading, Table, TextSpan, Words, size_of, table_of

TITLE = "Memory on MPS (an estimate)"

#: What each state comes to, in the words of the table.
_STATES = {"fits": "fits", "pressure": "more than Metal recommends: may swap, slows down", "raises": "raises"}

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

    def size(number: int) -> str:
        return filesize(number) if number else "-"

    rows = ((peak.phase, filesize(peak.total), *(size(peak.held[name]) for name in shown)) for peak in memory.peaks)
    return Table(("phase", "peak", *shown), tuple(rows), right=tuple(range(1, len(shown) + 2)))


def _holders(memory: Memory) -> Table:
    """List the largest uses at the highest peak."""
    columns = {"what": "kind", "bytes": size_of("nbytes"), "tensors": "tensors:,", "made by": _made_by}
    return table_of(memory.holders, columns, right=(1, 2), shown=_HELD)


#: Empty: with a new shape, and the graphs are named.
_GROWS_WITH: dict[GrowthKind, str] = {"graphs": "", "tensors": "step", "buffers": "size"}


def _growth(growth: Sequence[MemoryGrowth]) -> Table:
    """Make a row for each line whose memory grows with each new shape, or with each step."""
    columns: dict[str, Column] = {
        "grows at": "line",
        "operators": lambda each: and_more(each.operators, _OPERATORS),
        "with each": lambda each: _GROWS_WITH[each.kind] or f"new shape: {plural(each.graphs, 'graph')}",
        "by at least": lambda each: f"{each.megabytes:g} MB",
        "what to do": "cure",
    }
    return table_of(growth, columns, right=(3,), shown=_HELD)


def _cache(entries: Sequence[MemoryCache]) -> Table:
    """Make a row for the cache of keys and values at each context."""
    sizes = {name: size_of(name) for name in ("dynamic", "growing", "static")}
    others = {"without windows": size_of("full"), "4 bits": size_of("quantized")}
    return table_of(entries, {"context": "context:,", **sizes, **others}, right=tuple(range(6)))


def answers(memory: Memory) -> Iterator[Block]:
    """Make what the user asked for: the plan, and the largest sizes."""
    if memory.plan:
        yield Bullets(tuple(_plans(memory.plan)))
    if memory.limits:
        yield _limits(memory.limits)


def _plans(entries: Sequence[MemoryPlan]) -> Iterator[str]:
    """Write a line for each plan: the changes, how they are written, and the memory."""
    for each in entries:
        changed = f"{_PLANNED[each.state]} {each.memory} GB with {join_and(each.changes)}"
        used = f"MPS allocated {filesize(each.allocated)}, other {filesize(each.other)} ({each.checked})"
        yield f"{changed}: {used}; {'; '.join(each.how)}".rstrip("; ")


def _limits(entries: Sequence[MemoryLimit]) -> Table:
    """Make a row for the largest size of each dimension, and what ends the next size."""
    columns: dict[str, Column] = {
        "dimension": "dimension",
        "range": "range",
        "largest": lambda each: f"{each.largest:,}" if each.largest else "none",
        "Mac": lambda each: f"{each.memory} GB",
        "with": lambda each: ", ".join(f"{name} {size:,}" for name, size in each.others.items()) or "-",
        "what ends it": "ends",
        "proved": lambda each: "by captures" if each.proved else "computed",
    }
    return table_of(entries, columns, right=(2, 3))


def _macs(memory: Memory) -> Table:
    """Make a row for each Mac."""
    columns: dict[str, Column] = {
        "Mac": lambda mac: f"{mac.memory} GB",
        "chips": lambda mac: ", ".join(mac.chips),
        "recommended": size_of("working_set"),
        "limit": size_of("limit", "none"),
        "MPS allocated": size_of("allocated"),
        "other": size_of("other"),
        "this run": _state,
    }
    return table_of(memory.macs, columns, right=(2, 3, 4, 5))


def _sentences(memory: Memory) -> Iterator[str]:
    """Say where the peak is, what would lower it, and what the estimate leaves out."""
    peak = memory.peak
    yield f"highest in {peak.phase}: {filesize(peak.total)}" + (
        f", during {peak.op} {summary.place(peak.place)}" if peak.place else ""
    )
    yield from _allocation(memory)
    yield from (f"to lower the peak: {line}" for line in memory.advice)
    yield from memory.notes


def _allocation(memory: Memory) -> Iterator[str]:
    """Describe what the allocator, the kernels and the move add to the tensors."""
    more = memory.allocation
    if more is None:
        return
    heaps, buffers = filesize(more.allocated), filesize(more.live)
    yield f"the allocator takes {heaps} of heaps for {buffers} of buffers"
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
