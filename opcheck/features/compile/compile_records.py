"""Records of compiling a program, from the child process to the report for a target.  Imports no torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from opcheck.capture.request import CaptureRequest
from opcheck.common.vocabulary import RouteKind
from opcheck.model.records import Record, SourceLocation


class CompileFailure(Record, frozen=True, kw_only=True):
    """A reason why something did not compile, run or agree."""

    #: dtype, operator, shader, graph_break, recompile, model, timeout, harness ...
    kind: str
    message: str
    #: operator or FX node of the failure
    op: str = ""
    location: SourceLocation | None = None
    #: path of the module that called it: layers of a library have no line of the user's
    module: str = ""
    #: what stopped it is opcheck's own way of doing it, not PyTorch's and not the program's
    ours: bool = False


class FusedNode(Record, frozen=True, kw_only=True):
    """One operator of the graph that a kernel computes."""

    name: str
    op: str
    location: SourceLocation | None = None
    module: str = ""
    #: as ``Extern.call``
    call: str = ""


class MetalKernel(Record, frozen=True, kw_only=True):
    """One Metal kernel as Inductor writes it."""

    name: str
    source: str
    #: files of c10/metal that it includes
    headers: tuple[str, ...] = ()
    nodes: tuple[FusedNode, ...] = ()
    #: buffers that it is bound to: Metal takes 31
    buffers: int = 0
    #: bytes of threadgroup memory that it declares: Metal gives 32 KiB
    threadgroup_bytes: int = 0
    #: what went wrong while Inductor wrote it, and its text does not show (child/inductor_metal.py)
    notes: tuple[str, ...] = ()


class Extern(Record, frozen=True, kw_only=True):
    """An operator that Inductor does not generate: it calls the eager operator."""

    op: str
    dtypes: tuple[str, ...] = ()
    location: SourceLocation | None = None
    module: str = ""
    #: how it is called, with the dtypes and shapes of its tensors: ``aten.mm.default(float32[2, 3], float32[3, 4])``;
    #: strides follow a ``;`` where a tensor is not contiguous, with ``permuted`` where its dimensions are in another
    #: order, and ``channels_last`` where Inductor passes a tensor in that order
    call: str = ""
    count: int = 1


class SideGraph(Record, frozen=True, kw_only=True):
    """One graph that reached Inductor, compiled a second time for mps."""

    #: inference, forward, backward
    phase: str
    nodes: int
    #: ATen's operators in it, and those that were decomposed into them, without overloads: ``gelu``
    operators: tuple[str, ...] = ()
    kernels: tuple[MetalKernel, ...] = ()
    externs: tuple[Extern, ...] = ()
    failures: tuple[CompileFailure, ...] = ()
    #: how a setting differs from its documentation, or from a Mac
    notes: tuple[str, ...] = ()
    #: seconds that the second compilation took
    seconds: float = 0.0


class Variant(Record, frozen=True, kw_only=True):
    """One way to call torch.compile."""

    backend: str
    fullgraph: bool = False
    #: None: torch decides after the first recompile
    dynamic: bool | None = None
    #: of Inductor: reduce-overhead, max-autotune ...; empty is the default
    mode: str = ""
    dtype: str = "float32"
    training: bool = False
    #: Inductor's graphs are compiled for mps besides
    metal: bool = False
    #: and their kernels are what runs, on the CPU (experimental)
    run_metal: bool = False

    @property
    def run(self) -> str:
        """``training`` or ``inference``."""
        return "training" if self.training else "inference"

    def __str__(self) -> str:
        """Return ``inductor fullgraph dynamic mode=reduce-overhead``, without dtype and mode of running."""
        inductor = f"inductor for {'Metal' if self.metal else 'this machine'}"
        parts = (
            {"inductor": inductor, "aotinductor": "AOTInductor for Metal"}.get(self.backend, self.backend),
            "fullgraph" if self.fullgraph else "",
            {None: "", True: "dynamic", False: "static"}[self.dynamic],
            f"mode={self.mode}" if self.mode else "",
            "(its kernels run here)" if self.run_metal else "",
        )
        return " ".join(filter(None, parts))


class GraphBreak(Record, frozen=True, kw_only=True):
    """A place where the program left the graph."""

    reason: str
    #: PyTorch's own number for the kind of break: ``GB0124``
    id: str = ""
    hints: tuple[str, ...] = ()
    location: SourceLocation | None = None
    count: int = 1


class Recompile(Record, frozen=True, kw_only=True):
    """A guard that no longer held, so that a frame was compiled again."""

    guard: str
    count: int = 1


class ResultDifference(Record, frozen=True, kw_only=True):
    """The distance of the compiled program from the eager program, and the allowed distance."""

    #: root mean square over that of the reference: compiled against float64, eager against float64; compiled against
    #: eager and 0, where the program draws random numbers
    compiled: float
    eager: float
    allowed: float

    @property
    def share(self) -> float:
        """The distance as a share of the allowed distance; NaN where the result is NaN."""
        return self.compiled / self.allowed

    @property
    def agrees(self) -> bool:
        """True if the distance is at most the allowed distance; False for NaN."""
        return self.compiled <= self.allowed


class TriedVariant(Record, frozen=True, kw_only=True):
    """The outcome of one variant."""

    variant: Variant
    #: ``works``, ``one shape only``, ``differs``, ``nothing compiled``, ``fails``, ``too long``, ``died``,
    #: ``could not tell`` or ``no such backend``
    outcome: str
    #: of the first two calls, which are alike; a later call with a larger batch may compile more
    graphs: int = 0
    breaks: tuple[GraphBreak, ...] = ()
    recompiles: tuple[Recompile, ...] = ()
    #: frames that Dynamo looked at and did not compile
    skipped: int = 0
    #: of the first call, over a later one
    seconds: float = 0.0
    outputs: ResultDifference | None = None
    gradients: ResultDifference | None = None
    failure: CompileFailure | None = None
    side: tuple[SideGraph, ...] = ()
    #: what a larger batch compiled again
    side_again: tuple[SideGraph, ...] = ()

    def with_graphs(self, change: Callable[[SideGraph], SideGraph]) -> TriedVariant:
        """Return the variant with each of its graphs changed."""
        side, again = (tuple(map(change, graphs)) for graphs in (self.side, self.side_again))
        return replace(self, side=side, side_again=again)


class CompiledVariants(Record, frozen=True, kw_only=True):
    """All variants of one model."""

    model: str
    installed_torch: str
    #: the release whose codegen/mps.py wrote the kernels; empty: the installed one
    metal_backend: str = ""
    device: str
    inputs: tuple[str, ...] = ()
    inputs_note: str = ""
    #: that this torch has
    backends: tuple[str, ...] = ()
    tried: tuple[TriedVariant, ...] = ()
    #: what looking closer does not prove
    not_checked: tuple[str, ...] = ()
    #: what ended the run before its last variant; empty where nothing did
    ended: str = ""
    #: variants that were not tried
    lacking: int = 0


class JudgedExtern(Record, frozen=True, kw_only=True):
    """An operator that compiled code calls eagerly, and its status on the target."""

    op: str
    dtypes: tuple[str, ...]
    #: the status, with its kind behind it
    status: str
    because: str
    #: what computes it; Inductor's own kernels are Metal kernels
    route: RouteKind = "unknown"
    line: str = ""
    module: str = ""
    count: int = 1


class VariantRow(Record, frozen=True, kw_only=True):
    """One variant in one way of running, over the dtypes."""

    variant: str
    run: str
    #: dtype -> outcome
    outcomes: dict[str, str]
    #: in the first of the dtypes
    graphs: int = 0


class FailureGroup(Record, frozen=True, kw_only=True):
    """One cause of failures, in however many variants."""

    kind: str
    message: str
    op: str
    line: str
    text: str
    module: str
    #: the variants that have it; none where all of them do
    variants: tuple[str, ...]
    #: what opcheck's own way of compiling could not do
    ours: bool = False
    #: affected kernels, calls or lines; the message is that of the first
    places: int = 1
    #: the id of the known defect that explains it
    defect: str = ""
    #: where PyTorch's own report of it is
    links: tuple[str, ...] = ()
    #: the release that mended it, where the target has that already
    mended: str = ""


class Advisory(Record, frozen=True, kw_only=True):
    """A known defect of the target's release that this program meets."""

    id: str
    effect: str
    summary: str
    #: the release that mended it; empty where none has
    mended: str
    #: kernels that are of the kind, of all variants; 0 where it is not of kernels
    kernels: int
    #: the variants that have them; none where all of them do
    variants: tuple[str, ...] = ()
    line: str
    links: tuple[str, ...]


class CompileReport(Record, frozen=True, kw_only=True):
    """All that is known of compiling one model for one target."""

    schema: str = "opcheck-compile/1"
    tool: str
    model: str
    target: dict[str, str]
    #: what to use, in a sentence
    advice: str
    #: the command that tries what this one did not, where inference or training does not work; else empty
    next: str = ""
    #: which of its operators the target decomposes or lowers otherwise than the torch that did it
    differs: str = ""
    rows: tuple[VariantRow, ...]
    failures: tuple[FailureGroup, ...]
    advisories: tuple[Advisory, ...]
    externs: tuple[JudgedExtern, ...]
    kernels: int
    not_checked: tuple[str, ...]
    compiled: CompiledVariants


#: What torch ships that runs everywhere; others can be named.
BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
#: Those that generate no code: they do on mps what they do here.  The one to take first comes first.
PORTABLE = ("aot_eager", "aot_eager_decomp_partition", "eager")
#: of Inductor (torch/_inductor/__init__.py, list_mode_options)
MODES = ("", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
DTYPES = ("float32", "float16", "bfloat16")
RUNS = ("inference", "train")

METAL = Variant(backend="inductor", metal=True)
#: The command line's name of AOTInductor; torch.compile has no such backend.
AOTINDUCTOR = "aotinductor"
#: Every backend with every setting; for Metal one setting at a time.
_EVERY = (
    *(
        Variant(backend=backend, fullgraph=fullgraph, dynamic=dynamic, mode=mode)
        for backend in BACKENDS
        for fullgraph, dynamic in itertools.product((False, True), (None, True))
        for mode in (MODES if backend == "inductor" else ("",))
    ),
    *(METAL, replace(METAL, dynamic=True), replace(METAL, fullgraph=True)),
    *(replace(METAL, mode=mode) for mode in MODES if mode),
    Variant(backend=AOTINDUCTOR, metal=True),
)


#: The file in ``Plan.scratch`` with the outcomes so far.
TRIED = "tried.json"


class CompilePlan(Record, frozen=True, kw_only=True):
    """The variants that the child process tries, and the limits of each."""

    variants: tuple[Variant, ...]
    #: where the program runs: cpu, or cuda where there is one
    device: str = "cpu"
    #: seconds for each variant
    seconds: float = 120.0
    #: a folder for the compiled kernels; the caller removes it.  Empty: the child makes one.
    scratch: str = ""
    #: the folder of the target's Metal backend (data/wheels/inductor.py), and its release; empty: the installed one
    backend: str = ""
    backend_release: str = ""


class CompileRequest(Record, frozen=True, kw_only=True):
    """A model, and the variants to try on it; the target of ``capture`` is not looked at."""

    capture: CaptureRequest
    plan: CompilePlan


def choose(
    runs: Sequence[str],
    dtypes: Sequence[str],
    *,
    backends: Sequence[str] = (),
    every_setting: bool = False,
    metal: bool = True,
    run_metal: bool = False,
) -> tuple[Variant, ...]:
    """Return the variants that the user requests; Metal's come first, since a run may be ended.

    Args:
        runs: of ``RUNS``.
        dtypes: the dtypes to try.
        backends: the names of backends; empty: the usual variants.
        every_setting: try every setting of the backends.
        metal: Inductor generates Metal; else code for the device of this machine.
        run_metal: the kernels of the Metal variants run on the CPU; AOTInductor's C++ needs a Mac.
    """
    if every_setting:
        variants = tuple(v for v in _in_each(_EVERY, runs, dtypes) if not backends or v.backend in backends)
        tried = {variant.backend for variant in variants}
        variants += variants_of_backends([name for name in backends if name not in tried], runs, dtypes)
    elif backends:
        variants = variants_of_backends(backends, runs, dtypes, metal=metal)
    else:
        variants = default(runs, dtypes, metal=metal)
    usable = sorted((v for v in variants if metal or not v.metal), key=lambda variant: not variant.metal)
    return tuple(replace(v, run_metal=run_metal and v.metal and v.backend != AOTINDUCTOR) for v in usable)


def default(runs: Sequence[str], dtypes: Sequence[str], *, metal: bool = True) -> tuple[Variant, ...]:
    """Return the usual variants, which answer what torch.compile(model) does there: Inductor in every dtype and run.

    Args:
        runs: of ``RUNS``.
        dtypes: the dtypes to try.
        metal: Inductor generates Metal; else code for the device of this machine.
    """
    return _in_each([METAL if metal else Variant(backend="inductor")], runs, dtypes)


def variants_of_backends(
    backends: Sequence[str], runs: Sequence[str], dtypes: Sequence[str], *, metal: bool = True
) -> tuple[Variant, ...]:
    """Return variants of the backends that the user names, without further settings.

    Args:
        backends: the names.
        runs: of ``RUNS``.
        dtypes: the dtypes to try.
        metal: Inductor generates Metal; else code for the device of this machine.
    """
    for_metal = {AOTINDUCTOR, METAL.backend} if metal else {AOTINDUCTOR}
    return _in_each([Variant(backend=name, metal=name in for_metal) for name in backends], runs, dtypes)


def _in_each(variants: Sequence[Variant], runs: Sequence[str], dtypes: Sequence[str]) -> tuple[Variant, ...]:
    """Return the variants in each run and dtype; AOTInductor compiles no training step."""
    return tuple(
        replace(variant, dtype=dtype, training=run == "train")
        for run, dtype, variant in itertools.product(runs, dtypes, variants)
        if variant.backend != AOTINDUCTOR or run == "inference"
    )
