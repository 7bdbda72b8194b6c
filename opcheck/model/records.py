"""The records that travel from the capture to the report.  No torch object is inside any of them."""

from __future__ import annotations

import math

import msgspec

from opcheck.common.names import DTYPES

#: The statuses of a call, from best to worst.  Never a boolean.
STATUSES = ("native", "fallback", "unknown", "unsupported")

#: Where in a program a call happens.
PHASES = ("move", "forward", "backward", "optimizer")

#: How sure a verdict is, strongest first.
CONFIDENCES = ("observed", "test list", "source check", "registration", "inferred")

Scalar = bool | int | float | str | None

#: What JSON, as which calls travel, has no numbers for: these words stand for them in a call's arguments.
ENDLESS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class Record(msgspec.Struct, frozen=True):
    """Base of all records: frozen and picklable (keyword-only is not inherited: each says so)."""


class TensorSpec(Record, frozen=True, kw_only=True):
    """One tensor that a call reads or writes."""

    #: identity of the tensor and of the memory behind it, within one trace.
    tensor: int
    storage: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...] = ()
    layout: str = "strided"
    device: str = "mps"
    #: of an input: its name in the operator's schema; the tensors of a list share one.
    argument: str = ""
    #: of an input: the operator's schema says that the call writes to it.
    written: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes that its elements take."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def __str__(self) -> str:
        """``float32[1, 3, 224, 224]``, with the device where it is not mps."""
        device = "" if self.device == "mps" else f"@{self.device}"
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]{device}"


class SourceLocation(Record, frozen=True, kw_only=True):
    """A line of code; ``file`` is relative to the working directory or to site-packages."""

    file: str
    line: int
    function: str = ""
    text: str = ""
    #: the whole statement, written in one way (capture/statements.py); empty: nobody knows it.  Part of no report: it is
    #: what a fingerprint is made of.
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
    phase: str = "forward"
    #: overloads that the body of a composite kernel dispatches to; None: it was not followed.
    inner: tuple[str, ...] | None = None
    #: the Mac refuses the call whatever is registered: (limitation id, the text that it prints).
    refusal: tuple[str, str] | None = None
    #: what the call's own registrations say, for a namespace that the lists do not describe.
    registrations: tuple[str, ...] = ()


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
    """The memory behind tensors on MPS, from the call that took it to the one after which it was given back."""

    #: as in TensorSpec
    storage: int
    nbytes: int
    #: index of the first call of the trace that has it; 0 for what was there before.
    first: int
    #: how many calls of the trace had been made when it was given back; None: not while the run lasted.
    freed: int | None
    #: parameter, buffer, input, result
    kind: str
    #: of a parameter, buffer or input
    name: str = ""


#: Kinds of problems that end the program on a Mac, too: it asks for CUDA, for a package that no Mac has, for a name of a
#: later torch, or for what PyTorch refuses on mps before it calls an operator.
RAISED_ON_A_MAC = frozenset({"needs_cuda", "needs_newer_torch", "needs_package", "refused_on_mps"})
#: ... and of those that end it where opcheck cannot follow it.
OWN_LIMITS = frozenset({"not_simulated", "opcheck_limit"})


class Problem(Record, frozen=True, kw_only=True):
    """Something that keeps a trace from being the whole truth."""

    #: model_raised, timeout, process_died, guess, value_check, gradient_lost, module_not_called, one of RAISED_ON_A_MAC,
    #: OWN_LIMITS ...
    kind: str
    message: str
    location: SourceLocation | None = None
    module: str = ""
    #: the operator that raised or lost a gradient; of a guess: the one that asked, what it was answered, and how often.
    op: str = ""
    answered: str = ""
    count: int = 1


class Trace(Record, frozen=True, kw_only=True):
    """The operator calls of one run of a model on the simulated Mac, in their order."""

    model: str
    calls: tuple[OpCall, ...] = ()
    tracer: str = "dispatch"
    mode: str = "inference"
    #: of a training step: its optimizer, and which number was minimized.
    optimizer: str = ""
    loss: str = ""
    #: dtype of torch.autocast; empty: none.
    autocast: str = ""
    inputs: tuple[str, ...] = ()
    #: where the inputs come from, if the user did not give them
    inputs_note: str = ""
    parameters: int = 0
    parameter_bytes: int = 0
    installed_torch: str = ""
    #: release line whose registrations the dispatcher followed.
    target_torch: str = ""
    target_macos: str = ""
    #: what differs between the two: operators that one of them lacks, branches on the version.
    differences: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    #: of tensors that were made on the CPU in a dtype that MPS may refuse.
    births: tuple[Birth, ...] = ()
    #: of all memory on MPS; a line of a few numbers each.
    lifetimes: tuple[Lifetime, ...] = ()
    #: modules that the run never called, by their qualified names.
    uncalled: tuple[str, ...] = ()
    #: whether the run came to its end.
    complete: bool = True
    environment: dict[str, str] = {}
    packages: dict[str, str] = {}


class Evidence(Record, frozen=True, kw_only=True):
    """Why a statement is believed."""

    #: registration, source, opinfo, issue, measured
    kind: str
    #: torch release line that it was read from
    torch: str = ""
    #: file in the wheel, address of an issue, machine ...
    where: str = ""
    detail: str = ""


class Verdict(Record, frozen=True, kw_only=True):
    """What the target does with one call."""

    status: str
    kind: str | None = None
    because: str
    evidence: tuple[Evidence, ...] = ()
    confidence: str = "registration"
    #: overload that the Mac's message names, where it differs from the one called.
    named: str = ""
    #: what the Mac prints when it raises or warns.
    prints: str = ""
    limitations: tuple[str, ...] = ()
    advisories: tuple[str, ...] = ()


class CallGroup(Record, frozen=True, kw_only=True):
    """All calls of one overload with one verdict."""

    op: str
    verdict: Verdict
    count: int
    #: one entry a distinct line, in order of first use: the line, its module, how often.
    locations: tuple[GroupLocation, ...] = ()
    dtypes: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    #: the smallest of them, without its place; None: all that is said of it is that it is native.
    example: OpCall | None = None


class GroupLocation(Record, frozen=True, kw_only=True):
    """A line that makes calls of a group."""

    location: SourceLocation | None
    module: str
    count: int
    #: one of PHASES; a call of backward has the location of the forward call that it belongs to.
    phase: str = "forward"


class Region(Record, frozen=True, kw_only=True):
    """A maximal set of calls that run on one side, in dataflow order."""

    side: str
    calls: int
    first: int
    last: int
    bytes_in: int
    bytes_out: int


class Partition(Record, frozen=True, kw_only=True):
    """Native and CPU regions, and the copies between them."""

    regions: tuple[Region, ...]
    #: copies that the fallback makes, one for each tensor that crosses.
    transfers_to_cpu: int
    transfers_to_mps: int
    bytes_to_cpu: int
    bytes_to_mps: int


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
    """Most memory on MPS at once during a phase: estimated, in bytes, by what it holds."""

    phase: str
    total: int
    #: parameters, buffers, inputs, gradients, optimizer, activations: together the total.  The optimizer's state
    #: is in each phase but the move, as from the second step on; activations are all other results of calls.
    held: dict[str, int]
    #: the call during which it is reached; empty for the move.
    op: str = ""
    place: GroupLocation | None = None


class MemoryHolder(Record, frozen=True, kw_only=True):
    """What a line holds at the highest peak."""

    nbytes: int
    tensors: int
    #: parameters, gradients, activations ...
    kind: str
    #: the call that made it; empty for what was moved.
    op: str
    place: GroupLocation


class MacFit(Record, frozen=True, kw_only=True):
    """Whether the run fits the GPU of a Mac."""

    #: GB, as Apple sells it
    memory: int
    #: bytes that Metal recommends not to exceed, and bytes above which PyTorch raises.
    working_set: int
    limit: int
    #: reported by such a Mac, or an estimate
    basis: str
    #: fits, pressure, raises
    state: str
    prints: str = ""
    #: where it raises; None: while the model is moved, or nowhere.
    place: GroupLocation | None = None


class Memory(Record, frozen=True, kw_only=True):
    """Estimate of the memory that a run takes on MPS."""

    peaks: tuple[MemoryPeak, ...]
    holders: tuple[MemoryHolder, ...]
    macs: tuple[MacFit, ...]
    #: bytes of the largest single piece of memory
    largest: int
    #: what would lower the peak
    advice: tuple[str, ...] = ()
    #: what the estimate counts and what not
    notes: tuple[str, ...] = ()
    #: the Mac that was asked about, in GB; 0: none.
    asked: int = 0

    @property
    def peak(self) -> MemoryPeak:
        """The highest."""
        return max(self.peaks, key=lambda peak: peak.total)


class PrecisionLine(Record, frozen=True, kw_only=True):
    """All calls of one operator at one line, beside the same calls in float64."""

    op: str
    place: GroupLocation
    #: index of the first of them among the calls of the run
    first: int
    #: largest relative error that such a call makes itself: given what float64 gives, rounded to its dtype.
    local: float
    #: largest relative error of what it read, and of its result
    inherited: float
    total: float


class PrecisionEvent(Record, frozen=True, kw_only=True):
    """Something that float64 does not do at a line: overflow, nan, underflow; or flips, a discrete result."""

    kind: str
    op: str
    place: GroupLocation
    #: elements that it happens to, of how many
    elements: int
    of: int
    first: int


class PrecisionModule(Record, frozen=True, kw_only=True):
    """How the error grows in one module of the model."""

    name: str
    kind: str
    calls: int
    #: largest relative error of what goes in, and of what comes out
    inherited: float
    total: float
    #: bytes that cross, there and back, if it alone is kept on the CPU: its tensor arguments and results, all calls
    bytes_in: int
    bytes_out: int
    #: calls in it, and not in a module inside it, that lose more than the limit
    at_fault: int = 0


class Precision(Record, frozen=True, kw_only=True):
    """A run on this machine's CPU in one dtype, call by call beside float64."""

    dtype: str
    #: relative error from which on a call is named
    limit: float
    #: calls that were held against float64
    calls: int
    #: the first call that loses more than the limit by itself; None: there is none.
    divergence: PrecisionLine | None
    #: the first call whose result is off by more than the limit, whatever the cause.
    crossing: PrecisionLine | None
    lines: tuple[PrecisionLine, ...] = ()
    modules: tuple[PrecisionModule, ...] = ()
    events: tuple[PrecisionEvent, ...] = ()
    #: the floating results of the run, by their paths, and their relative errors
    outputs: tuple[tuple[str, float], ...] = ()
    #: the same of the parameters' gradients, the worst first
    gradients: tuple[tuple[str, float], ...] = ()
    #: what was minimized; empty: no backward was run.
    loss: str = ""
    #: whether the run came to its end
    complete: bool = True
    #: what keeps this from being the whole truth
    notes: tuple[str, ...] = ()


class Finding(Record, frozen=True, kw_only=True):
    """What one rule has to say; a finding is data, not an error."""

    rule: str
    #: error, warning, note
    severity: str
    message: str
    #: the next thing to do
    hint: str = ""
    op: str = ""
    prints: str = ""
    locations: tuple[GroupLocation, ...] = ()
    count: int = 1
    #: the first location's line as it could be written instead.
    remedy: str = ""
    #: why nobody needs to look at it (ignores.py); empty: it counts.
    ignored: str = ""


class Report(Record, frozen=True, kw_only=True):
    """The whole result, complete enough that a reader needs no second source."""

    schema: str = "opcheck-report/1"
    tool: str
    model: str
    target: dict[str, str | bool]
    headline: str
    totals: dict[str, int]
    groups: tuple[CallGroup, ...]
    findings: tuple[Finding, ...]
    partition: Partition
    capture: dict[str, object]
    op_lists: dict[str, object]
    not_checked: tuple[str, ...]
    problems: tuple[Problem, ...] = ()
    #: None: the trace does not say how long tensors lived.
    memory: Memory | None = None
    #: one for each dtype that --precision asked for.
    precision: tuple[Precision, ...] = ()
    #: the limitations and advisories that the groups name, by id: what each says.
    statements: dict[str, dict[str, object]] = {}
    #: the calls one by one, in their order, for the page that draws them; empty: they were counted, not kept.
    #: No part of the schema: what it says is said by the groups and the partition, but for each call's own shapes.
    graph: tuple[GraphCall, ...] = ()
