"""What the capture is asked for; it travels to the child process as JSON."""

from __future__ import annotations

from opcheck.common.vocabulary import Mode
from opcheck.model.records import Record, Scalar

#: How a model can be followed, and what each way misses.  Whatever the tracer, the calls are those of the simulated
#: Mac's dispatcher.
TRACERS = {
    "dispatch": "branches on values, shapes or settings that this run did not take",
    "fx": "what torch.fx.symbolic_trace fixed: control flow, and branches on the device, taken as on the CPU",
    "export": "what torch.export fixed on the CPU: branches on the device, on grad mode and on autocast",
}
DEFAULT_TRACER = "dispatch"

#: Of programs that were fixed before: what is not in them any more.
FIXED = {
    "exported program": (
        "what torch.export fixed in the program: branches on values, on the device and on grad mode, training or "
        "evaluation; its device constants are read as torch.export.passes.move_to_device_pass(program, 'mps') "
        "writes them, without which they stay what they were"
    ),
    "TorchScript": (
        "what TorchScript fixed in the program: of a traced one branches, and devices as constants; the lines of its "
        "calls; and what its optimizer makes of them after some runs"
    ),
}

#: What the model is run for: one forward pass, or one training step.
MODES: tuple[Mode, ...] = ("inference", "train")

#: What torch.autocast("mps", ...) can cast to.
AUTOCAST = ("float16", "bfloat16")

#: What a run can be compared in with float64.
PRECISIONS = ("float32", "float16", "bfloat16")
DEFAULT_OPTIMIZER = "adamw"


class CaptureRequest(Record, frozen=True, kw_only=True):
    """One model, its inputs, and the Mac that it is to be run on."""

    #: ``package.module:attribute``, ``file.py:attribute``, ``file.pt2``, ``transformers:BertModel`` ...
    model: str
    #: release line and macOS version, as their ``str``.
    torch: str
    macos: str
    cpu_fallback: bool = False
    #: ``1x3x224x224:float32`` or ``name=1x128:int64``, in the order of the arguments.
    inputs: tuple[str, ...] = ()
    #: keyword arguments for a library model's configuration or constructor.
    config: dict[str, Scalar | list[object] | dict[str, object]] = {}
    #: dtype that the model's floating parameters and inputs are cast to; empty leaves them.
    dtype: str = ""
    #: files whose tensors' dtypes are looked at: torch.save's, or .safetensors.
    checkpoints: tuple[str, ...] = ()
    tracer: str = DEFAULT_TRACER
    #: record with grad mode on, as a program without torch.no_grad() would run.
    grad: bool = False
    #: one of MODES.
    mode: Mode = "inference"
    #: of a training step: a class of torch.optim and its arguments, as ``sgd:momentum=0.9``.
    optimizer: str = DEFAULT_OPTIMIZER
    #: dtype of torch.autocast around forward and loss; empty: none.
    autocast: str = ""
    #: file that the captured torch.fx graph is written to (.py its code, .json the trace).
    save_graph: str = ""
    #: files that inputs are read from, in the order of the arguments: PATH or NAME=PATH (capture/input_files.py).
    input_files: tuple[str, ...] = ()
    #: dtypes in which the model is also run on the CPU, beside float64.
    precision: tuple[str, ...] = ()
    #: file to which the child appends what it reads (worker/dependency_tracking.py); empty: nobody asks.
    notes: str = ""
    #: seconds until the child process is ended.
    time_limit: float = 300.0
    #: GB of memory that the child may take on this machine; 0: three quarters of what it has.
    memory_limit: float = 0.0
