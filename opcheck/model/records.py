"""The records that travel from the capture to the report. No torch object is inside any of them.

The saved report is the encoding of ``Report`` (model/saved.py), and its JSON schema is generated
from the types here: the docstrings and the descriptions are its texts. A key of the report that
differs from the field's name is next to it.
"""

from __future__ import annotations

import functools
import math
import re
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from opcheck.common import vocabulary as words
from opcheck.common.errors import UsageError
from opcheck.common.names import DTYPES
from opcheck.common.text import normalised_code
from opcheck.common.versions import Version, target_text

Scalar = bool | int | float | str | None

#: Values that JSON has no numbers for: these words represent them in a call's arguments.
ENDLESS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
#: So does the text of a complex number, as Python writes it.
COMPLEX = re.compile(r"\(?[-+.\w]*\dj\)?")

Count = Annotated[int, Meta(ge=0)]


def note(text: str, **limits: Any) -> Meta:
    """Return the schema's description of a field, and the limits of its values."""
    return Meta(description=text, **limits)


class Record(msgspec.Struct, frozen=True):
    """Base of all records: frozen and picklable (keyword-only is not inherited: each states so)."""


class TensorSpec(Record, frozen=True, kw_only=True):
    """One tensor that a call reads or writes."""

    #: identity of the tensor and of the memory behind it, within one trace.
    tensor: int
    storage: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...] = ()
    #: elements of its memory before its first element.
    offset: int = 0
    layout: str = "strided"
    device: str = "mps"
    #: of an input: its name in the operator's schema; the tensors of a list share it.
    argument: str = ""
    #: of an input: the operator's schema states that the call writes to it.
    written: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes that its elements take."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def __str__(self) -> str:
        """``float32[1, 3, 224, 224]``, with the device where it is not mps."""
        device = "" if self.device == "mps" else f"@{self.device}"
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]{device}"


def contiguous_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the stride of a tensor of this shape whose elements lie in order."""
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))


class SourceLocation(Record, frozen=True, kw_only=True):
    """A line of code; ``file`` is relative to the working directory or to site-packages."""

    file: str
    line: int
    function: str = ""
    text: str = ""
    #: the whole statement, in a normal form, for fingerprints; empty: unknown.
    statement: str = ""

    def __str__(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"


class OpCall(Record, frozen=True, kw_only=True):
    """One captured invocation of an operator overload on the simulated Mac."""

    op: str
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    #: the other arguments, by the names of the operator's schema.
    arguments: dict[str, Scalar | tuple[Scalar, ...]] = {}
    location: SourceLocation | None = None
    module: str = ""
    phase: words.Phase = "forward"
    #: overloads that the body of a composite kernel dispatches to; None: it was not followed.
    inner: tuple[str, ...] | None = None
    #: those calls themselves, as far as their arguments are known; their tensors have no identity.
    inside: tuple[OpCall, ...] = ()
    #: the Mac refuses the call whatever is registered: (limitation id, the text that it prints).
    refusal: tuple[str, str] | None = None
    #: what the call's own registrations say, for a namespace that the lists do not describe.
    registrations: tuple[str, ...] = ()
    #: floating-point operations by the formulas of torch.utils.flop_counter; 0: none counts it.
    flops: int = 0
    #: the result is a number, or has a shape, that depends on the tensors' values: the CPU waits for the GPU.
    waits: bool = False
    #: draws random numbers again, where torch.utils.checkpoint computes a forward pass again.
    recomputed: bool = False

    @property
    def place(self) -> GroupLocation:
        """The line that makes the call."""
        return GroupLocation.at(self.location, module=self.module, phase=self.phase)


class Birth(Record, frozen=True, kw_only=True):
    """Where a tensor of a dtype that MPS may refuse was made, before it came to a recorded call."""

    #: as in TensorSpec
    tensor: int
    dtype: str
    #: how it got its dtype: numpy, default_dtype, dtype_given, cast, python_complex ... (judge/rules/dtype_origins.py)
    how: str
    #: what made it, as it is written: ``torch.from_numpy``
    api: str = ""
    location: SourceLocation | None = None
    #: the parameter, buffer or input that it is
    name: str = ""


class Lifetime(Record, frozen=True, kw_only=True, array_like=True):
    """The memory behind tensors on MPS, from the call that took it to the call that gave it back."""

    #: as in TensorSpec
    storage: int
    nbytes: int
    #: index of the first call of the trace that has it; 0 for earlier memory.
    first: int
    #: how many calls of the trace had been made when it was given back; None: not while the run lasted.
    freed: int | None
    kind: words.MemoryOrigin
    #: of a parameter, buffer or input
    name: str = ""


#: Kinds of problems that end the program on a Mac, too: it requests CUDA, for a package that no Mac
#: has, for a name of a later torch, or for what PyTorch refuses on mps before it calls an operator; or Python code
#: that it runs on mps alone raises; or a process of the program cannot be spawned, or lacks
#: a global that the main process sets; or a call has arguments that no
#: device takes.
RAISED_ON_A_MAC = frozenset(
    {
        *("lacks_global", "mps_branch", "needs_cuda", "needs_newer_torch", "needs_package"),
        *("not_spawned", "refused_everywhere", "refused_on_mps"),
    }
)
#: ... and of those that end it where opcheck cannot follow it.
OWN_LIMITS = frozenset({"not_simulated", "opcheck_limit"})


class Problem(Record, frozen=True, kw_only=True):
    """Something that keeps a trace from being the whole truth."""

    #: model_raised, component_raised, call_raised, module_missing, timeout, process_died, guess, value_check,
    #: gradient_lost, module_not_called, a member of RAISED_ON_A_MAC, OWN_LIMITS ...
    kind: str
    message: str
    location: SourceLocation | None = None
    module: str = ""
    #: the operator that raised or lost a gradient; of a guess: the operator that needed a value, the answer, and how
    #: often.
    op: str = ""
    answered: str = ""
    count: int = 1


class CacheShape(Record, frozen=True, kw_only=True):
    """The cache of keys and values of a model that generates, for one sequence."""

    #: layers with attention, and those of them that look back over a window
    layers: int
    sliding: int
    window: int
    heads: int
    #: of one head
    size: int
    itemsize: int
    #: tokens that the model takes; 0: unknown
    longest: int


class Watermarks(NamedTuple):
    """The ratios of the MPS allocator to the recommended working set; 0: none."""

    high: float
    low: float


class Trace(Record, frozen=True, kw_only=True):
    """The operator calls of one run of a model on the simulated Mac, in their order."""

    model: str
    calls: tuple[OpCall, ...] = ()
    tracer: str = "dispatch"
    mode: words.Mode = "inference"
    #: of a training step: its optimizer, and which number was minimized.
    optimizer: str = ""
    loss: str = ""
    #: dtype of torch.autocast; empty: none.
    autocast: str = ""
    inputs: tuple[str, ...] = ()
    #: the dimensions of the inputs that may vary, by name (capture/dimensions.py)
    sizes: dict[str, int] = {}
    #: of a model that generates
    cache: CacheShape | None = None
    #: where the inputs come from, if the user did not give them
    inputs_note: str = ""
    #: what the model was called for, in order.
    called: tuple[str, ...] = ()
    #: what was read of a model on a hub or in a folder.
    source: str = ""
    parameters: int = 0
    parameter_bytes: int = 0
    installed_torch: str = ""
    #: release line whose registrations the dispatcher followed.
    target_torch: str = ""
    target_macos: str = ""
    #: what differs between the two: operators that either lacks, branches on the version.
    differences: tuple[str, ...] = ()
    #: libraries that did not get the target's answers about torch.
    differing_libraries: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    #: of tensors that were made on the CPU in a dtype that MPS may refuse.
    births: tuple[Birth, ...] = ()
    #: of all memory on MPS; a line of a few numbers each.
    lifetimes: tuple[Lifetime, ...] = ()
    #: of the allocator, where the environment or the program sets them
    watermarks: Watermarks | None = None
    #: modules that the run never called, by their qualified names.
    uncalled: tuple[str, ...] = ()
    #: whether the run came to its end.
    complete: bool = True
    environment: dict[str, str] = {}
    packages: dict[str, str] = {}

    def differing_library(self, location: SourceLocation | None) -> str:
        """Return the differing library that the line belongs to; empty if it belongs to none."""
        package = location.file.partition("/")[0].removesuffix(".py") if location else ""
        return package if package in self.differing_libraries else ""


class Evidence(Record, frozen=True, kw_only=True):
    """Why a statement is believed."""

    kind: words.EvidenceKind
    torch: Annotated[str, note("the release line that it was read from")] = ""
    where: Annotated[str, note("a file in the wheel, an address, a machine")] = ""
    detail: str = ""


class Verdict(Record, frozen=True, kw_only=True):
    """What the target does with one call."""

    status: words.Status
    kind: words.FallbackKind | None = None
    because: str
    named: Annotated[str, note("overload that the Mac's message names, where it is another")] = ""
    prints: Annotated[str, note("what a Mac prints when it raises or warns")] = ""
    confidence: words.Confidence = "registration"
    evidence: tuple[Evidence, ...] = ()
    limitations: Annotated[tuple[str, ...], note("ids; statements has them")] = ()
    advisories: Annotated[tuple[str, ...], note("ids; statements has them")] = ()


class GroupLocation(Record, frozen=True, kw_only=True):
    """A line that makes calls."""

    line: Annotated[str, note("file:line, relative to the working directory or to site-packages; or empty")] = ""
    function: str = ""
    text: Annotated[str, note("the line")] = ""
    statement: Annotated[str, note("the statement that the line is a part of; empty: the line is all of it")] = ""
    module: Annotated[str, note("qualified name; a number that varies is *")] = ""
    #: a call of backward has the location of the forward call that it belongs to.
    phase: words.Phase = "forward"
    count: Annotated[Count, note("calls from there")] = 1

    @classmethod
    def at(cls, location: SourceLocation | None, **where: Any) -> GroupLocation:
        """The calls that a line of code makes, with their module, phase and count; None: no line makes them."""
        if location is None:
            return cls(**where)
        statement = _longer_statement(location)
        return cls(line=str(location), function=location.function, text=location.text, statement=statement, **where)

    @property
    def location(self) -> SourceLocation | None:
        """The line of code; None: there is none."""
        file, _, number = self.line.rpartition(":")
        if not (file and number.isdecimal() and len(number) < 10):
            return None
        own = {"function": self.function, "text": self.text, "statement": self.statement}
        return SourceLocation(file=file, line=int(number), **own)


@functools.lru_cache(maxsize=4096)
def _longer_statement(location: SourceLocation) -> str:
    """The statement, where it states more than its line."""
    if not location.statement:
        return ""
    same = normalised_code(location.statement) == normalised_code(location.text)
    return "" if same else location.statement


class ExampleTensor(Record, frozen=True, kw_only=True):
    """A tensor that a call reads or writes."""

    argument: Annotated[str, note("by the operator's schema; the tensors of a list share one")]
    dtype: str
    shape: tuple[Count, ...]
    stride: Annotated[tuple[int, ...] | None, note("null: contiguous")]
    layout: str
    device: str


class Example(Record, frozen=True, kw_only=True):
    """The smallest call of a group of which more is stated than that it is native."""

    inputs: tuple[ExampleTensor, ...]
    arguments: Annotated[dict[str, Scalar | tuple[Scalar, ...]], note("the other arguments; inf and nan are words")]


class CallGroup(Verdict, frozen=True, kw_only=True):
    """All calls of one overload with one verdict."""

    op: str
    count: Count
    dtypes: tuple[str, ...] = ()
    phases: tuple[words.Phase, ...] = ()
    #: one entry a distinct line, in order of first use: the line, its module, how often.
    locations: tuple[GroupLocation, ...] = ()
    #: None: all that is stated of it is that it is native.
    example: Example | None = None
    route: Annotated[words.RouteKind, note("what computes the calls; either: not all of them the same")] = "unknown"

    @classmethod
    def judged(cls, op: str, verdict: Verdict, **facts: Any) -> CallGroup:
        """The calls of ``op`` that have this verdict, with the other fields of the group."""
        return cls(**msgspec.structs.asdict(verdict), op=op, **facts)

    @property
    def verdict(self) -> Verdict:
        """What the target does with each of the calls."""
        return Verdict(**{name: getattr(self, name) for name in Verdict.__struct_fields__})


class Region(Record, frozen=True, kw_only=True):
    """A maximal set of calls that run on one side, in dataflow order."""

    side: words.Side
    calls: Count
    first: Annotated[Count, note("number of its first call")]
    last: Count
    bytes_in: Count
    bytes_out: Count


class Partition(Record, frozen=True, kw_only=True):
    """Native and CPU regions, and the copies between them."""

    regions: tuple[Region, ...] = ()
    #: copies that the fallback makes for each tensor that crosses.
    transfers_to_cpu: Count = 0
    transfers_to_mps: Count = 0
    bytes_to_cpu: Count = 0
    bytes_to_mps: Count = 0


class SideWork(Record, frozen=True, kw_only=True):
    """What the calls on one side do."""

    side: words.Side
    calls: Count
    flops: Annotated[Count, note("of matrix products, convolutions and attention, as torch.utils.flop_counter counts")]
    nbytes: Annotated[Count, note("that the calls read and write; views do neither")] = msgspec.field(name="bytes")


class RouteWork(Record, frozen=True, kw_only=True):
    """The calls and FLOPs of a single route."""

    route: words.RouteKind
    calls: Count
    flops: Annotated[Count, note("as in work; 0 where the calls were not kept")] = 0


class Synchronization(Record, frozen=True, kw_only=True):
    """Calls of one operator at one line where the CPU waits until the GPU has finished."""

    op: str
    why: Annotated[str, note("what the CPU waits for")]
    place: GroupLocation = msgspec.field(name="location")


class CallWork(Record, frozen=True, kw_only=True, array_like=True):
    """Calls of a run that do the same work, as their time is estimated."""

    #: a family of op_lists/speed.yaml, ``matrix``, or ``memory``
    family: str
    route: words.RouteKind
    #: of the operands
    dtype: str
    flops: int
    nbytes: int
    #: kernels that a single call starts
    launches: int
    count: int


class Workload(Record, frozen=True, kw_only=True):
    """The work of a part of a run that repeats: what an estimate of its time needs."""

    unit: words.TimeUnit
    #: which part it is, in words
    covers: str
    rows: tuple[CallWork, ...]
    #: calls that only make views
    views: int = 0
    #: how often the CPU waits for the GPU, and the line where it waits most
    waits: int = 0
    waits_at: str = ""
    #: copies between the CPU and the GPU, and their bytes
    copies: int = 0
    copied: int = 0
    #: calls that the target refuses
    raising: int = 0


class TimeEstimate(Record, frozen=True, kw_only=True):
    """How long one pass, step or token takes on a Mac: estimated, in seconds, never observed on a Mac."""

    mac: Annotated[str, note("the chip")]
    gpu_cores: Annotated[tuple[Count, ...], note("the GPUs that the interval is about, by their cores")]
    unit: words.TimeUnit
    covers: Annotated[str, note("the part of the run that is one unit")]
    low_seconds: float
    high_seconds: float
    cpu_low_seconds: Annotated[float, note("the same calls on the CPU of the same Mac, in place of its GPU")]
    cpu_high_seconds: float
    bound: Annotated[words.TimeBound, note("the largest of the shares")]
    shares: Annotated[
        dict[words.TimeBound, float], note("of the middle of the interval, together 1; wait: with CPU fallbacks")
    ]
    families: Annotated[dict[str, float], note("the shares of arithmetic and memory by the family of the calls")]
    launches: Annotated[Count, note("kernels that the calls start on the GPU")]
    waits: Count
    waits_at: Annotated[str, note("the line with the most of them, or empty")] = ""
    copies: Annotated[Count, note("between the CPU and the GPU")]
    without_formula: Annotated[Count, note("calls whose work no formula counts: they widen the interval")]
    left_out: Annotated[Count, note("calls that raise on the target")]
    advice: Annotated[tuple[str, ...], note("what would make it faster")] = ()


class GraphCall(Record, frozen=True, kw_only=True, array_like=True):
    """One call as a page draws it: which group it is of, what it reads, what its fallback copies."""

    #: index among the report's groups, and among the locations of that group
    group: int
    place: int
    #: the module itself, where the location has a pattern of several
    module: str
    #: index among the regions
    region: int
    #: the calls, by their place in the graph, that made or last wrote what it reads.
    sources: tuple[int, ...]
    #: tensors, as their specs are written
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    #: of a call on the CPU: copies there and back, and their bytes.
    to_cpu: int = 0
    to_mps: int = 0
    bytes_to_cpu: int = 0
    bytes_to_mps: int = 0


class MemoryPeak(Record, frozen=True, kw_only=True):
    """Most memory on MPS at once during a phase: estimated, in bytes, by its content."""

    phase: words.Phase
    total: Count
    #: Together the total. The optimizer's state is in each phase but the move, as from the second step on; activations
    #: are all other results of calls.
    held: dict[words.MemoryUse, Count]
    op: Annotated[str, note("the call during which it is reached; empty: the move")] = ""
    place: GroupLocation | None = msgspec.field(default=None, name="location")


class MemoryHolder(Record, frozen=True, kw_only=True):
    """What a line contains at the highest peak."""

    kind: words.MemoryUse
    nbytes: Count = msgspec.field(name="bytes")
    tensors: Count
    op: Annotated[str, note("the call that made it; empty: it was moved")]
    place: GroupLocation = msgspec.field(name="location")


class MacFit(Record, frozen=True, kw_only=True):
    """Whether the run fits the GPU of a Mac."""

    memory: Annotated[Count, note("GB, as Apple sells it")]
    chips: Annotated[tuple[str, ...], note("that are sold with it")] = ()
    working_set: Annotated[Count, note("bytes that Metal recommends not to exceed")]
    limit: Annotated[Count, note("bytes above which PyTorch raises")]
    basis: Annotated[words.Basis, note("reported by such a Mac, or an estimate")]
    state: words.FitState
    allocated: Annotated[Count, note("MPS allocated: bytes of heaps at the highest, or where it raises")] = 0
    other: Annotated[Count, note("other allocations then: workspaces of kernels, of one call")] = 0
    prints: str = ""
    #: where it raises; None: while the model is moved, or nowhere.
    place: GroupLocation | None = msgspec.field(default=None, name="location")


class MemoryAllocation(Record, frozen=True, kw_only=True):
    """What the allocator and the kernels add to the tensors of a run on a Mac with enough memory, in bytes."""

    allocated: Annotated[Count, note("all heaps at most, with their cached memory")]
    live: Annotated[Count, note("buffers in use at most, rounded up")]
    workspace: Annotated[Count, note("bound for the workspace of one call, outside of the heaps")]
    workspaces: Annotated[Count, note("the same for all calls between two waits, if none is reused")]
    moved_weight: Annotated[Count, note("the largest weight: on the CPU and on MPS while the model is moved")]
    checkpoint: Annotated[Count, note("CPU memory of a checkpoint that is read whole and kept meanwhile")]


class MemoryGrowth(Record, frozen=True, kw_only=True):
    """Memory that grows at a line with each new shape of the inputs, or with each step."""

    kind: words.GrowthKind
    operators: Annotated[tuple[str, ...], note("overloads, those with most graphs first")]
    line: Annotated[str, note("file:line, or the module where no line is known")]
    graphs: Annotated[Count, note("that each new shape of the inputs adds there")]
    seen: Annotated[Count, note("graphs of the run, or steps; 0: its shapes did not vary")] = 0
    megabytes: Annotated[float, note("for each new shape at least, or for each step; see source")]
    cure: str
    source: Annotated[str, note("of the figure in megabytes")] = ""


class MemoryLimit(Record, frozen=True, kw_only=True):
    """The largest size of a dimension of the inputs that still runs."""

    dimension: str
    range: Annotated[str, note("the sizes that were considered: 1..64")]
    largest: Annotated[Count, note("0: not even the least of the range runs")]
    kind: words.LimitKind
    ends: Annotated[str, note("what ends the next larger size")]
    memory: Annotated[Count, note("GB of the Mac that decides")]
    others: Annotated[dict[str, int], note("sizes of the other varied dimensions")] = {}
    proved: Annotated[bool, note("captures on both sides of the boundary agree; else it is computed")]


class MemoryPlan(Record, frozen=True, kw_only=True):
    """The smallest set of changes that brings a run to a state on a Mac."""

    changes: tuple[str, ...]
    how: Annotated[tuple[str, ...], note("flags of the audit, or lines of the program")]
    memory: Annotated[Count, note("GB of the Mac")]
    state: words.FitState
    peak: Annotated[Count, note("bytes of tensors, at most")]
    allocated: Annotated[Count, note("MPS allocated")]
    other: Annotated[Count, note("other allocations")]
    checked: Annotated[words.PlanCheck, note("by another capture, or by a replay of the same calls")]


class MemoryCache(Record, frozen=True, kw_only=True):
    """Bytes of the key and value cache of one sequence, by the kind of cache of transformers."""

    context: Annotated[Count, note("tokens of the prompt and of the generated text")]
    dynamic: Annotated[Count, note("DynamicCache, with the windows of sliding layers")]
    growing: Annotated[Count, note("DynamicCache while one layer is concatenated")]
    static: Annotated[Count, note("StaticCache of this length, from the first token on")]
    full: Annotated[Count, note("without windows: each layer keeps all tokens")]
    quantized: Annotated[Count, note("QuantizedCache of 4 bits")]


class Memory(Record, frozen=True, kw_only=True):
    """Estimate of the memory that a run takes on MPS: in bytes, but a Mac's memory, which is in GB."""

    asked: Annotated[Count, note("memory of the selected Mac in GB; 0: none")] = 0
    #: empty for a program that ran: only what grew is known
    peaks: tuple[MemoryPeak, ...] = ()
    holders: tuple[MemoryHolder, ...] = ()
    largest: Annotated[Count, note("the largest single piece")] = 0
    macs: tuple[MacFit, ...] = ()
    allocation: MemoryAllocation | None = None
    growth: tuple[MemoryGrowth, ...] = ()
    cache: Annotated[tuple[MemoryCache, ...], note("of a model that generates, by its context")] = ()
    plan: Annotated[tuple[MemoryPlan, ...], note("with --plan: what makes it run, and fit")] = ()
    limits: Annotated[tuple[MemoryLimit, ...], note("with --vary: one or more for each dimension")] = ()
    advice: Annotated[tuple[str, ...], note("what would lower the peak")] = ()
    notes: Annotated[tuple[str, ...], note("what the estimate counts and what not")] = ()

    @property
    def peak(self) -> MemoryPeak:
        """The highest; the peaks of a program that ran are not known."""
        return max(self.peaks, key=lambda peak: peak.total)


#: A relative error, of norms; what JSON has no number for is a word.
RelativeError = float | words.NonFinite


class PrecisionLine(Record, frozen=True, kw_only=True):
    """All calls of one operator at one line, next to the same calls in float64; errors are relative, of norms."""

    op: str
    first: Annotated[Count, note("number of the first of them among the calls")] = 0
    local: Annotated[RelativeError, note("the largest error that such a call makes by itself, given exact inputs")]
    inherited: Annotated[RelativeError, note("the largest error of its inputs")]
    total: Annotated[RelativeError, note("the largest error of its result")]
    place: GroupLocation = msgspec.field(name="location")


class PrecisionEvent(Record, frozen=True, kw_only=True):
    """Something that float64 does not do at a line; ``flips``: a discrete result."""

    kind: words.PrecisionEventKind
    op: str
    first: Annotated[Count, note("number of the first such call")] = 0
    elements: Annotated[Count, note("elements that it happens to")]
    of: Annotated[Count, note("of how many")]
    place: GroupLocation = msgspec.field(name="location")


class PrecisionModule(Record, frozen=True, kw_only=True):
    """How the error grows in one module of the model."""

    name: str
    kind: str
    calls: Count
    inherited: Annotated[RelativeError, note("the largest error of its inputs")]
    total: Annotated[RelativeError, note("the largest error of its results")]
    bytes_in: Annotated[Count, note("that cross in all calls if it alone is kept on the CPU")]
    bytes_out: Annotated[Count, note("the same on the way back")]
    at_fault: Annotated[Count, note("calls in it, and in no module inside it, that lose more than the limit")] = 0


class Precision(Record, frozen=True, kw_only=True):
    """A run on this machine's CPU in one dtype, call by call next to float64."""

    dtype: str
    limit: Annotated[float, note("relative error above which the report names a call")]
    calls: Annotated[Count, note("calls that were compared with float64")]
    divergence: Annotated[PrecisionLine | None, note("the first call that loses more than the limit by itself")]
    crossing: Annotated[PrecisionLine | None, note("the first call whose result is off by more, whatever the cause")]
    events: tuple[PrecisionEvent, ...] = ()
    lines: tuple[PrecisionLine, ...] = ()
    modules: tuple[PrecisionModule, ...] = ()
    outputs: Annotated[dict[str, RelativeError], note("the floating results by their paths")] = {}
    loss: Annotated[str, note("what was minimized; empty: no backward was run")] = ""
    gradients: Annotated[dict[str, RelativeError], note("those of the parameters, the worst first")] = {}
    complete: Annotated[bool, note("the run came to its end")] = True
    notes: tuple[str, ...] = ()


class WrongSample(Record, frozen=True, kw_only=True):
    """One result that a kernel computes wrongly."""

    operands: Annotated[tuple[str, ...], note("of the one result, in the kernel's order")]
    result: Annotated[str, note("the kernel's")]
    expected: Annotated[str, note("of float64, rounded to the dtype")]


class WrongNumbers(Record, frozen=True, kw_only=True):
    """Results of a line that the release's own kernel computes outside of the band of the CPU."""

    op: str
    kernel: str
    dtype: str
    calls: Annotated[Count, note("calls of the line with such results")]
    elements: Annotated[Count, note("such results")]
    compared: Annotated[Count, note("results of these calls that were compared")]
    error: Annotated[RelativeError, note("the largest relative error")]
    smallest: WrongSample
    worst: WrongSample
    statements: Annotated[tuple[str, ...], note("ids of the op lists that state it; empty: none does")] = ()
    mended: Annotated[str, note("the first later release whose kernel is right here; empty: none is known")] = ""
    place: GroupLocation = msgspec.field(name="location")


class UncheckedCalls(Record, frozen=True, kw_only=True):
    """Calls of an operator that no kernel computed a second time."""

    op: str
    route: words.RouteKind
    reason: str
    calls: Count
    elements: Count = 0
    flops: Count = 0


class CheckedShare(Record, frozen=True, kw_only=True):
    """How much of something was computed a second time by the release's kernels."""

    checked: Count
    all: Count


class LayerNumbers(Record, frozen=True, kw_only=True):
    """What a module gives with the kernels' results, next to what it gives with the CPU's."""

    name: str
    kind: str
    error: Annotated[RelativeError, note("the largest relative error, of norms")]
    nonfinite: Annotated[Count, note("results that are infinite or NaN where the CPU's are not")]
    checked: Annotated[Count, note("calls inside that the release's kernels computed")]
    calls: Annotated[Count, note("all calls inside; what MPSGraph computes is the CPU's here")]
    safe: Annotated[bool, note("the error is within the dtype's limit, and all is finite")]


class OutputNumbers(Record, frozen=True, kw_only=True):
    """How far a result of the model is off with the kernels' results."""

    path: str
    error: RelativeError
    flips: Annotated[Count, note("rows whose largest value is at another place")] = 0
    rows: Count = 0


class KernelNumbers(Record, frozen=True, kw_only=True):
    """The run's calls computed a second time by the release's own Metal kernels, on this machine's CPU."""

    dtype: Annotated[str, note("the model was cast to it; empty: as it is")] = ""
    torch: Annotated[str, note("the release of the kernels")]
    mode: Literal["shadow", "replace"]
    seed: Annotated[int, note("draws the sampled threadgroups, inputs and weights")]
    calls: Annotated[CheckedShare, note("views and copies do not count")]
    elements: Annotated[CheckedShare, note("of the calls' results")]
    flops: CheckedShare
    wrong: Annotated[tuple[WrongNumbers, ...], note("the furthest off first")] = ()
    unchecked: Annotated[tuple[UncheckedCalls, ...], note("the most frequent first")] = ()
    limit: Annotated[float, note("relative error above which a layer is not safe")] = 0.0
    layers: Annotated[tuple[LayerNumbers, ...], note("in the order of the run; of replace mode alone")] = ()
    outputs: Annotated[tuple[OutputNumbers, ...], note("of replace mode alone")] = ()
    complete: Annotated[bool, note("the run came to its end")] = True
    notes: tuple[str, ...] = ()

    @property
    def first_off(self) -> LayerNumbers | None:
        """The first layer that is not safe."""
        return next((layer for layer in self.layers if not layer.safe), None)


class Finding(Record, frozen=True, kw_only=True):
    """What one rule has to say; a finding is data, not an error."""

    rule: Annotated[str, note("a code that opcheck explain accepts", pattern=r"^OC\d{3}$")]
    severity: words.Severity
    message: str
    hint: Annotated[str, note("the next thing to do")] = ""
    remedy: Annotated[str, note("the first location's line as it could be written instead")] = ""
    op: Annotated[str, note("overload, if it is about one")] = ""
    prints: Annotated[str, note("what a Mac prints")] = ""
    count: Annotated[Count, note("calls, or what else the rule counts")] = 1
    locations: tuple[GroupLocation, ...] = ()
    fingerprints: Annotated[
        tuple[str, ...], note("per location, or for the whole finding; edits around a line keep it")
    ] = ()
    ignored: Annotated[str, note("reason why the finding does not count; empty: it counts")] = ""


class FindingTable(tuple[Finding, ...]):
    """Findings, shown as a table in a terminal and in a notebook.

    Example:
        >>> print(report.findings)  # doctest: +SKIP
    """

    __slots__ = ()

    def __str__(self) -> str:
        """Return a row for each finding: severity, rule, operator, message and first line."""
        return str(_renderer().findings_as_text(self))

    def _repr_html_(self) -> str:
        return str(_renderer().findings_as_html(self))


def _renderer() -> Any:
    """Return the module that writes reports; it is imported when a report is shown."""
    return import_module("opcheck.render.report")


class ReportTarget(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The Mac that the report is about."""

    torch: str
    macos: str
    cpu_fallback: Annotated[bool, note("PYTORCH_ENABLE_MPS_FALLBACK=1 is set")]
    beyond: Annotated[str, note("what is newer than the op lists, and what it is judged as")] = ""

    def __str__(self) -> str:
        """``torch 2.13, macOS 15.0``, with the variable where it is set, and what is newer than the lists."""
        return target_text(self.torch, self.macos, self.beyond, cpu_fallback=self.cpu_fallback)

    def __post_init__(self) -> None:
        """Refuse what is no version.

        Raises:
            ValueError: torch or macOS is none.
        """
        try:
            Version.parse(self.torch)
            Version.parse(self.macos)
        except UsageError as error:
            raise ValueError(error.message) from error


class CaptureFacts(Record, frozen=True, kw_only=True):
    """How the calls were captured."""

    tracer: str = ""
    mode: words.Mode = "inference"
    optimizer: str = ""
    autocast: str = ""
    loss: str = ""
    inputs: tuple[str, ...] = ()
    inputs_note: str = ""
    called: Annotated[tuple[str, ...], note("what the model was called for, in order")] = ()
    source: Annotated[str, note("what was read of a model on a hub or in a folder")] = ""
    complete: Annotated[bool, note("false: the run broke off")]
    parameters: Count = 0
    parameter_bytes: Count = 0
    installed_torch: str = ""
    flags: Annotated[tuple[str, ...], note("the flags of opcheck audit that ask for it again")] = ()
    differences: tuple[str, ...] = ()
    modules_not_called: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    packages: dict[str, str] = {}


class OpListFacts(Record, frozen=True, kw_only=True):
    """The data that the calls were judged by."""

    digest: str = ""
    torch: str = ""
    wheel: str = ""
    sha256: str = ""
    commit: str = ""
    built: Annotated[str, note("date")] = ""


class StatementFacts(Record, frozen=True, kw_only=True):
    """What a limitation or an advisory states."""

    sort: words.StatementSort
    effect: words.Effect
    summary: str
    condition: Annotated[str, note("what code evaluates")] = ""
    when: Annotated[str, note("what no code evaluates")] = ""
    way_out: str = ""
    links: tuple[str, ...] = ()


class WrongCalls(Record, frozen=True, kw_only=True):
    """Calls of an operator that run on MPS, whose results known faults make wrong, or may make wrong."""

    op: str
    ids: Annotated[tuple[str, ...], note("the faults; statements has them")]
    calls: Count
    frequency: Annotated[
        words.Frequency,
        note("always: these calls meet the fault; sometimes: it depends on condition; rarely: programs hardly meet it"),
    ]
    condition: Annotated[str, note("what it depends on; empty: nothing else")] = ""


class ReportedProblem(Record, frozen=True, kw_only=True):
    """Something that keeps the trace from being the whole truth."""

    kind: str
    message: str
    line: Annotated[str, note("file:line, or empty")] = ""
    module: str = ""


class Report(Record, frozen=True, kw_only=True):
    """What a PyTorch model does on Apple's GPU (MPS): one model, one target; a reader needs no second source.

    ``str(report)`` is the terminal's answer, and a notebook shows a short page.

    Example:
        >>> report = opcheck.audit(model, inputs)  # doctest: +SKIP
        >>> report.headline  # doctest: +SKIP
        'runs natively'
        >>> report.save("report.html")  # doctest: +SKIP
    """

    schema: Literal["opcheck-report/1"] = "opcheck-report/1"
    tool: str
    headline: words.Headline
    model: str
    target: ReportTarget
    newest: Annotated[bool, note("no release was selected: it is the newest of the op lists")] = False
    totals: Annotated[dict[str, Count], note("calls by status, and all calls and operators")]
    findings: Annotated[tuple[Finding, ...], note("the most severe first")]
    groups: Annotated[tuple[CallGroup, ...], note("the worst first")] = msgspec.field(name="calls")
    statements: Annotated[dict[str, StatementFacts], note("by id: the limitations and advisories that calls name")] = {}
    wrong: Annotated[
        tuple[WrongCalls, ...], note("native calls with wrong results, by operator; empty: none known")
    ] = ()
    partition: Partition
    work: Annotated[tuple[SideWork, ...], note("by side; empty: the calls were counted, not kept")] = ()
    routes: Annotated[tuple[RouteWork, ...], note("the calls by the kind of kernel that computes them on MPS")] = ()
    synchronizations: Annotated[
        tuple[Synchronization, ...], note("where the CPU waits for the GPU, by line; CPU fallbacks apart")
    ] = ()
    #: None: the trace does not say how long tensors lived.
    memory: Memory | None = None
    time: Annotated[tuple[TimeEstimate, ...], note("by selected chip and unit; empty: none was selected")] = ()
    precision: Annotated[tuple[Precision, ...], note("a run for each dtype of --precision")] = ()
    numbers: Annotated[tuple[KernelNumbers, ...], note("by dtype; empty: no kernel was run")] = ()
    capture: CaptureFacts
    op_lists: OpListFacts
    not_checked: tuple[str, ...]
    problems: tuple[ReportedProblem, ...] = ()
    #: The calls one by one, in their order, for the page that draws them; empty: they were counted, not kept. It is not
    #: saved: the groups and the partition say the same, but for each call's own shapes.
    graph: tuple[GraphCall, ...] = ()
    #: What an estimate of the time needs; empty: the calls were counted, not kept. It is not saved either.
    workloads: tuple[Workload, ...] = ()

    def __post_init__(self) -> None:
        """Make the findings a table."""
        msgspec.structs.force_setattr(self, "findings", FindingTable(self.findings))

    def __str__(self) -> str:
        """Return the answer of ``opcheck audit`` in a terminal."""
        return str(_renderer().as_answer(self))

    def _repr_html_(self) -> str:
        return str(_renderer().as_fragment(self))

    def to_html(self) -> str:
        """Return the page of ``opcheck audit -f html``: one file with all details, which loads nothing."""
        return str(import_module("opcheck.render").render(self, "html"))

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the report to a file, and return its path.

        Args:
            path: the file; its suffix selects the format: .json, .html, .md, .txt, .yaml, .csv, .sarif, .xml.

        Raises:
            UsageError: no format has that suffix, or the file cannot be written.

        Example:
            >>> report.save("report.json")  # doctest: +SKIP
        """
        file = Path(path)
        _renderer().save(self, file)
        return file


# -- tracked dtypes --------------------------------------------------------------------------------------------------


class Trait(NamedTuple):
    """A property that is tracked: having one of these dtypes.  A complex128 tensor is float64 and complex."""

    name: str
    dtypes: frozenset[str]


def _dtypes_of_kind(kind: str) -> frozenset[str]:
    return frozenset(name for name, dtype in DTYPES.items() if dtype.kind == kind)


TRAITS = (
    Trait("float64", frozenset({"float64", "complex128"})),
    Trait("complex", _dtypes_of_kind("complex")),
    Trait("complex32", frozenset({"complex32"})),
    Trait("unsigned", _dtypes_of_kind("unsigned")),
    Trait("float8", _dtypes_of_kind("float8")),
)

BY_NAME = {trait.name: trait for trait in TRAITS}

#: Every dtype that is tracked.
WATCHED = frozenset[str]().union(*(trait.dtypes for trait in TRAITS))
