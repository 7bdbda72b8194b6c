"""Counts the calls of a run and their memory; equal calls share a row, so that a loop takes no memory."""

import os
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, cast

import msgspec
import torch

from opcheck.capture.child.recording.graph import flops_of
from opcheck.common.grouping import group_values
from opcheck.common.text import error_chain
from opcheck.common.versions import Target, Version
from opcheck.common.vocabulary import PHASES, Phase, RouteKind
from opcheck.data.environment import find_invalid, watermarks
from opcheck.data.messages import invalid_buffer_size, out_of_memory
from opcheck.data.registrations import OpLists
from opcheck.device.emulator.child.mac_errors import CALL_RAISED, kind_on_a_mac, mark_raised_on_a_mac
from opcheck.device.emulator.child.verdicts import JudgedCall, Verdicts
from opcheck.judge.callgraph import common_route, example_of, list_places
from opcheck.judge.judge import outcome
from opcheck.judge.memory.growth import REAL_NUMBERS_IN_KEY, VARIES, GraphPlace, GraphUses, describe, growth_of_results
from opcheck.judge.memory.replay import LARGE_HEAP, Allocator, HeapBlock, LimitExceededError
from opcheck.model.records import CallGroup, Example, GroupLocation, MemoryGrowth, Partition, Verdict
from opcheck.numerics.kernels.child.kernel_run import ShadowKernels
from opcheck.simulator.dispatch.calls import Call, metas
from opcheck.simulator.dispatch.tensor import MPSTensor, is_on_mps
from opcheck.simulator.dispatch.tensor_meta import decode
from opcheck.simulator.visible.machine import LARGEST_BUFFER, WORKING_SET
from opcheck.simulator.visible.surface import MacMemory
from opcheck.tracing.call_sites import ProgramStack
from opcheck.tracing.source_locations import Site, UserFrames, locate
from opcheck.tracing.torch_private.tensors import sparse_indices, sparse_values


class EmulatedMemory(MacMemory):
    """Replays the allocator over the program's tensors; it reads the environment when it starts, as the Mac's does.

    Args:
        torch: the release.
    """

    def __init__(self, torch: Version) -> None:
        super().__init__()
        self.torch = torch
        self._allocator: Allocator | None = None
        self._most_live = self._most_held = 0
        #: operator and line -> the sizes of its results
        self._sizes: dict[tuple[str, Hashable], set[int]] = defaultdict(set)

    def allocate(self, nbytes: int, op: str, line: Hashable) -> HeapBlock | None:
        """Return the buffer of a result; None: it needs none.

        Raises:
            RuntimeError: as on the Mac: a watermark is invalid, the tensor is too large, or the limit is exceeded.
        """
        if not nbytes:
            return None
        self.check_size(nbytes)
        allocator = self._start()
        try:
            block = allocator.allocate(nbytes)
        except LimitExceededError:
            used = {"allocated": allocator.allocated, "other": allocator.other, "allowed": allocator.limit}
            raise RuntimeError(out_of_memory(self.torch, **used, tried=nbytes)) from None
        self._sizes[op, line].add(nbytes)
        self._most_live = max(self._most_live, allocator.live)
        self._most_held = max(self._most_held, allocator.live + allocator.cached_bytes)
        self._count(allocator)
        return block

    def check_size(self, nbytes: int) -> None:
        """Raise a RuntimeError for a tensor that is larger than a buffer (MPSAllocator.mm, ``alloc_buffer_block``)."""
        if nbytes >= LARGEST_BUFFER:
            raise RuntimeError(invalid_buffer_size(nbytes, self.torch))

    def free(self, block: HeapBlock) -> None:
        """Take a buffer back."""
        allocator = self._start()
        allocator.free(block)
        self._count(allocator)

    def current(self) -> int:
        """Return the bytes of live buffers."""
        return self._start().live

    def driver(self) -> int:
        """Return the bytes of the heaps."""
        return self._start().allocated

    def empty_cache(self) -> None:
        """Release what is cached."""
        allocator = self._start()
        allocator.empty_cache()
        self._count(allocator)

    def _count(self, allocator: Allocator) -> None:
        self.live.update(allocator.live)
        self.heaps.update(allocator.allocated)

    def set_fraction(self, fraction: float) -> None:
        """Set the high watermark; the low one stays."""
        super().set_fraction(fraction)
        self._start().limit = int(fraction * WORKING_SET)

    def growth(self, locate: Callable[[Any], object]) -> Iterator[MemoryGrowth]:
        """Yield the line with most sizes, if freed buffers take as much memory as the program needs.

        Args:
            locate: returns the place of a line.
        """
        extra = self._most_held - self._most_live
        most = max(self._sizes, key=lambda each: len(self._sizes[each]), default=None)
        if most is None or len(self._sizes[most]) < VARIES or extra < max(self._most_live, LARGE_HEAP):
            return
        op, line = most
        sizes = len(self._sizes[most])
        yield growth_of_results("buffers", str(locate(line) or ""), op, extra / sizes, sizes)

    def _start(self) -> Allocator:
        """Return the allocator, which the first use starts.

        Raises:
            RuntimeError: a watermark is invalid.
        """
        if self._allocator is None:
            ratios = watermarks(os.environ)
            if (invalid := find_invalid(ratios)) is not None:
                raise RuntimeError(invalid.prints)
            high, low = (int(ratio * WORKING_SET) for ratio in ratios)
            self._allocator = Allocator(self.torch, limit=high, low=low)
        return self._allocator


# -- counts the calls of a run; equal calls share a row, so that a loop takes no memory --

#: the fields of a Partition that a process counts, in this order
_COPIED = ("transfers_to_cpu", "transfers_to_mps", "bytes_to_cpu", "bytes_to_mps")


class CallRow(NamedTuple):
    """The calls of an overload with a verdict, from a line of a module in a phase."""

    op: str
    #: of the verdict, which ``CallKind`` keeps
    verdict: int
    site: Site
    module: str
    phase: Phase


class CallKind(NamedTuple):
    """The calls of an overload with a verdict, from wherever."""

    verdict: Verdict
    example: Example | None
    dtypes: set[str]
    routes: set[RouteKind]


class LiveMemory(NamedTuple):
    """The memory of a result: its buffer and bytes, what made it, where, and in which step of a training."""

    block: HeapBlock | None
    nbytes: int
    op: str
    site: Site
    step: int


class KeptResults:
    """Finds lines whose results from several training steps exist at once, as a list of losses keeps them."""

    #: steps whose results exist at once
    _STEPS = 4

    def __init__(self) -> None:
        #: how many backward passes and optimizer steps were followed by another forward pass
        self.step = 0
        self._phase: Phase = "forward"
        self._steps: dict[tuple[str, Site], Counter[int]] = {}
        self._most: dict[tuple[str, Site], tuple[int, int]] = {}

    def note_phase(self, phase: Phase) -> None:
        """Count a step where a forward pass follows a backward pass."""
        self.step += phase == "forward" and self._phase in {"backward", "optimizer"}
        self._phase = phase

    def add(self, live: LiveMemory) -> None:
        """Count a new result."""
        key = (live.op, live.site)
        steps = self._steps.setdefault(key, Counter())
        steps[live.step] += live.nbytes
        if len(steps) >= self._STEPS:
            self._most[key] = max(self._most.get(key, (0, 0)), (len(steps), sum(steps.values())))

    def remove(self, live: LiveMemory) -> None:
        """Forget a result."""
        steps = self._steps[live.op, live.site]
        steps[live.step] -= live.nbytes
        if steps[live.step] <= 0:
            del steps[live.step]

    def growth(self) -> Iterable[MemoryGrowth]:
        """Return the lines, the one that keeps most first."""
        most = sorted(self._most.items(), key=lambda item: -item[1][1])
        return [
            growth_of_results("tensors", str(locate(site) or ""), op, nbytes // steps, steps)
            for (op, site), (steps, nbytes) in most
        ]


class CallCounts:
    """Takes the calls of the simulator: raises and warns as the target does, and counts."""

    def __init__(self, verdicts: Verdicts, modules: ProgramStack, kernels: ShadowKernels | None = None) -> None:
        self._verdicts = verdicts
        self._modules = modules
        self._kernels = kernels
        self.rows: Counter[CallRow] = Counter()
        self._kinds: dict[tuple[str, int], CallKind] = {}
        self._frames = UserFrames()
        self._warned: set[tuple[str, Site]] = set()
        self._copies = [0, 0, 0, 0]
        self._live: dict[int, LiveMemory] = {}
        self.memory = EmulatedMemory(verdicts.torch)
        self._graphs = GraphUses()
        self._kept_results = KeptResults()
        self._at_first: Callable[[], None] | None = None
        self._known_flops: dict[Any, int] = {}

    def watch_first(self, work: Callable[[], None]) -> None:
        """Call ``work`` when the next call comes."""
        self._at_first = work

    def retarget(self, target: Target) -> None:
        """Judge the calls from here on for this target."""
        self._verdicts.retarget(target)
        self.memory.torch = target.torch

    def follow_modules(self) -> AbstractContextManager[None]:
        """For the length of the block, follow the modules of the program."""
        return self._modules.follow_modules()

    # -- what the simulator calls ------------------------------------------------------------------

    def ask(self, call: Call) -> None:
        """Raise what the target raises instead of computing the call.

        Raises:
            NotImplementedError, TypeError, RuntimeError ...: as the target does.
        """
        judged = self._verdicts.before_call(call)
        if judged is not None and judged.error is not None:
            self._count(call, judged, self._frames.innermost(sys._getframe(1)))
            raise _again(judged.error)

    def record(self, call: Call) -> None:
        """Count one computed call; raise, or warn, where its results decide that.

        Raises:
            TypeError, RuntimeError ...: as the target does.
        """
        judged = self._verdicts.after_call(call)
        site = self._frames.innermost(sys._getframe(1))
        self._count(call, judged, site)
        if self._kernels is not None:
            payloads = tuple(t._mps.payload if is_on_mps(t) else t for t in call.outputs)
            values, flops = tuple(t for t in payloads if t is not None), self._flops(call)
            self._kernels.add(call.route.name, judged.route, values, flops, lambda: (site, *self._modules.where()))
        if judged.error is not None:
            raise _again(judged.error)
        for output in call.outputs:
            if is_on_mps(output) and output._mps.memory.watcher is None:
                self._watch_memory(output, call.route.name, site)
        if judged.side == "cpu":
            self._count_copies(call)
        if judged.warning:
            self._warn(judged.warning, site)

    def count_requests(self, _operator: str) -> int:
        """Return 0: every tensor has its values, so that nothing is guessed."""
        return 0

    def guess(self, operator: str, answer: Any) -> None:
        """Do nothing: every tensor has its values."""

    # -- counting ----------------------------------------------------------------------------------

    def _count(self, call: Call, judged: JudgedCall, site: Site) -> None:
        if self._at_first is not None:
            self._at_first()
            self._at_first = None
        op, number = call.route.name, id(judged.verdict)
        module, phase = self._modules.where()
        self._kept_results.note_phase(phase)
        if self._verdicts.compiles_graph(op, judged.route):
            self._graphs.add(GraphPlace(op, site, module), _graph_key(call))
        self.rows[CallRow(op, number, site, module, phase)] += 1
        if (kind := self._kinds.get((op, number))) is None:
            example = example_of((judged.call,), judged.verdict)
            kind = self._kinds[op, number] = CallKind(judged.verdict, example, set(), set())
        kind.dtypes.update(judged.dtypes)
        kind.routes.add(judged.route)

    def _flops(self, call: Call) -> int:
        if (flops := self._known_flops.get(call.key)) is None:
            flops = self._known_flops[call.key] = flops_of(call.route, call.key, list(metas(call.outputs)))
        return flops

    def _watch_memory(self, tensor: MPSTensor, op: str, site: Site) -> None:
        memory, payload = tensor._mps.memory, tensor._mps.payload
        if payload is None:
            return
        if payload.layout is torch.strided:
            size = payload.untyped_storage().nbytes()
        else:
            size = sparse_indices(payload).nbytes + sparse_values(payload).nbytes
        block = self.memory.allocate(size, op, site)
        self._live[memory.number] = LiveMemory(block, size, op, site, self._kept_results.step)
        self._kept_results.add(self._live[memory.number])
        memory.watcher = self._forget_memory

    def _forget_memory(self, number: int) -> None:
        if (live := self._live.pop(number, None)) is not None:
            if live.block is not None:
                self.memory.free(live.block)
            self._kept_results.remove(live)

    def _count_copies(self, call: Call) -> None:
        """Count what the fallback copies: all arguments there, results and written ones back."""
        there = [t for t in call.inputs if is_on_mps(t)]
        sent = {id(t) for t in there}
        back = [t for t in call.outputs if is_on_mps(t) and (call.route.writes or id(t) not in sent)]
        for index, copied in enumerate((there, back)):
            self._copies[index] += len(copied)
            self._copies[index + 2] += sum(t.numel() * t.element_size() for t in copied)

    def _warn(self, text: str, site: Site) -> None:
        if (text, site) in self._warned:
            return
        self._warned.add((text, site))
        if site is None:
            warnings.warn(text, UserWarning, stacklevel=2)
        else:
            warnings.warn_explicit(text, UserWarning, site[0].co_filename, site[1], registry={})

    # -- what it comes to --------------------------------------------------------------------------

    def groups(self) -> tuple[CallGroup, ...]:
        """The groups of calls with the same overload and verdict, the worst first, then by name."""
        members = group_values(((row.op, row.verdict), (row, count)) for row, count in self.rows.items())
        return merge_groups(
            CallGroup.judged(
                key[0],
                self._kinds[key].verdict,
                count=sum(count for _, count in rows),
                locations=tuple(list_places((locate(row.site), row.module, row.phase, n) for row, n in rows)),
                dtypes=tuple(sorted(self._kinds[key].dtypes)),
                phases=_order_phases(row.phase for row, _ in rows),
                example=self._kinds[key].example,
                route=common_route(self._kinds[key].routes),
            )
            for key, rows in members.items()
        )

    def growth(self, target: Target, lists: OpLists) -> tuple[MemoryGrowth, ...]:
        """What grew over the run: graphs by line, most first, then the lines of results that were kept."""
        lines = []
        for site, ops, shapes in self._graphs.lines(growing=True):
            seen = sum(ops.values())
            lines.append(describe(str(locate(cast("Site", site)) or ""), ops, -(-seen // shapes), seen, target, lists))
        lines.sort(key=lambda each: -each.seen)
        return (*lines, *self._kept_results.growth(), *self.memory.growth(locate))

    def copies(self) -> tuple[int, ...]:
        """What the fallbacks copied: tensors to the CPU, tensors back, and their bytes."""
        return tuple(self._copies)


def partition_of(copies: Iterable[tuple[int, ...]]) -> Partition:
    """What the fallbacks of processes copied; regions are not known."""
    copied: Any = dict(zip(_COPIED, map(sum, zip(*copies, strict=True)), strict=True))
    return Partition(**copied)


def merge_groups(groups: Iterable[CallGroup]) -> tuple[CallGroup, ...]:
    """Return one group for each overload and verdict, the worst first, then by name."""
    by_key: dict[tuple[str, Verdict], CallGroup] = {}
    for group in groups:
        before = by_key.get((group.op, group.verdict))
        by_key[group.op, group.verdict] = group if before is None else _sum(before, group)
    return tuple(sorted(by_key.values(), key=lambda group: (-outcome(group.verdict).severity, group.op)))


def _order_phases(phases: Iterable[Phase]) -> tuple[Phase, ...]:
    return tuple(sorted(set(phases), key=PHASES.index))


def _sum(first: CallGroup, second: CallGroup) -> CallGroup:
    counts: Counter[GroupLocation] = Counter()
    for place in (*first.locations, *second.locations):
        counts[msgspec.structs.replace(place, count=0)] += place.count
    return msgspec.structs.replace(
        first,
        count=first.count + second.count,
        dtypes=tuple(sorted({*first.dtypes, *second.dtypes})),
        phases=_order_phases((*first.phases, *second.phases)),
        locations=tuple(msgspec.structs.replace(place, count=count) for place, count in counts.items()),
        example=first.example or second.example,
        route=common_route({first.route, second.route}),
    )


def _graph_key(call: Call) -> tuple[Any, ...]:
    """What tells the graph of a call from others: the dtypes and sizes of its tensors, and its numbers."""
    tensors = tuple((meta.dtype_name, meta.shape) for meta in metas(call.inputs))
    values = (decode(part) for part in call.key[2:])
    counted = _NUMBERS | {float} if call.route.name.startswith(REAL_NUMBERS_IN_KEY) else _NUMBERS
    return tensors, *(repr(value) for value in values if type(value) in counted)


#: the types of arguments in the key of a graph
_NUMBERS = frozenset({bool, int, str})


def _again(error: BaseException) -> BaseException:
    """A marked copy: an exception that is raised twice would keep its first traceback and its frames."""
    return mark_raised_on_a_mac(type(error)(*error.args), CALL_RAISED)


def origin_on_a_mac(error: BaseException) -> str:
    """Return the kind of the Mac's error that a program raised this one because of, or while it handled it."""
    return next(filter(None, map(kind_on_a_mac, error_chain(error))), "")
