"""The fixed words of the records: the values of status, kind, severity, phase and effect.

Each is a ``Literal`` with a tuple of its values alongside it, in the order that reports sort by. JSON
writes them unchanged.
"""

from typing import Literal, get_args

#: What a target does with a call, from best to worst. Never a boolean.
Status = Literal["native", "fallback", "unknown", "unsupported"]
STATUSES: tuple[Status, ...] = get_args(Status)

#: Why a call runs on the CPU: inside its kernel, because it is registered so, or only with the variable.
FallbackKind = Literal["internal", "always", "env"]

#: How sure a verdict is, strongest first.
Confidence = Literal["observed", "test list", "source check", "registration", "inferred"]
CONFIDENCES: tuple[Confidence, ...] = get_args(Confidence)

#: Where a call runs; ``raises``: nowhere.
Side = Literal["mps", "cpu", "unknown", "raises"]

#: What computes a call on MPS: Apple's MPSGraph, a Metal kernel of PyTorch, an MPS kernel (MPSMatrix, MPSNDArray), a
#: copy by blit, nothing (a view), the CPU; ``either``: several of them, and the choice is not known.
RouteKind = Literal["graph", "metal", "mps", "copy", "view", "cpu", "either", "unknown"]
ROUTES: tuple[RouteKind, ...] = get_args(RouteKind)
ROUTE_WORDS: dict[RouteKind, str] = {
    "graph": "MPSGraph",
    "metal": "Metal kernel",
    "mps": "MPS kernel",
    "copy": "copy",
    "view": "no kernel (a view)",
    "cpu": "CPU",
    "either": "several ways",
    "unknown": "unknown",
}

#: What a time is about: a forward pass, a step of training or of a pipeline, a generated token.
TimeUnit = Literal["pass", "step", "token"]

#: What the time of a run goes to: arithmetic, reading and writing memory, starting kernels, the CPU waiting for the GPU
#: (or the GPU for the CPU), copies between the two.
TimeBound = Literal["compute", "memory", "launch", "wait", "copy"]
TIME_BOUNDS: tuple[TimeBound, ...] = get_args(TimeBound)

#: The severities of findings, the most severe first.
Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

#: Where in a program a call happens.
Phase = Literal["move", "forward", "backward", "optimizer"]
PHASES: tuple[Phase, ...] = get_args(Phase)

#: What is captured of a model; ``run``: a whole program.
Mode = Literal["inference", "train", "run"]

#: What the verdicts of a model come to, the first that applies.
Headline = Literal[
    "fails",
    "could not tell",
    "runs only with PYTORCH_ENABLE_MPS_FALLBACK=1",
    "runs, partly on the CPU",
    "runs natively",
]
HEADLINES: tuple[Headline, ...] = get_args(Headline)

#: The two sorts of curated statements.
StatementSort = Literal["limitation", "advisory"]

#: What a kernel does where a statement applies, the worst first.
Effect = Literal["aborts", "raises", "falls_back", "wrong_result", "narrows", "warns"]
EFFECTS: tuple[Effect, ...] = get_args(Effect)

#: How many of an operator's calls a statement affects; ``rarely``: programs hardly meet its case.
Frequency = Literal["always", "sometimes", "rarely"]

#: Whether a run fits the memory of a Mac.
FitState = Literal["fits", "pressure", "raises"]

#: What is special about the memory of a tensor from its first moment on.
MemoryOrigin = Literal["parameter", "buffer", "input", "result"]

#: What a call does in one dtype that it does not do in float64.
PrecisionEventKind = Literal["overflow", "nan", "underflow", "flips"]

#: What memory on MPS is for at a moment of the run: the columns of a peak.
MemoryUse = Literal["parameters", "buffers", "inputs", "gradients", "optimizer", "activations"]
#: What grows: graphs for each new shape, tensors that the program keeps, or freed buffers of each size.
GrowthKind = Literal["graphs", "tensors", "buffers"]
#: How a plan was checked.
PlanCheck = Literal["captured", "replayed"]
#: What ends a dimension: memory, the limit of a shape, wrong results, an error of the model, or the range.
LimitKind = Literal["memory", "shape", "wrong", "raises", "range"]
MEMORY_USES: tuple[MemoryUse, ...] = get_args(MemoryUse)

#: A number that JSON cannot write is written as a word.
NonFinite = Literal["inf", "nan"]

#: How a statement of the op lists is known.
StatementEvidenceKind = Literal["source", "binary", "issue", "pr", "opinfo", "measured", "kernel-run", "inferred"]

#: How it is known which release fixed the fault of an advisory.
FixedBasis = Literal["", "binary", "pr", "issue", "date"]

#: Why a verdict is believed: what the lists contain, what the capture saw, or how a statement is known.
EvidenceKind = Literal["registration", "limitation", "advisory", "capture"] | StatementEvidenceKind

#: How the working set of a Mac is known.
Basis = Literal["reported", "estimate"]

#: What a name of an environment variable is to a release.
VariableStatus = Literal["read", "later", "earlier", "invented", "unknown"]

#: Among the registrations of a call: its kernel for the CPU is Python code, which a Mac has, too.
OF_PROGRAM = "Python"
