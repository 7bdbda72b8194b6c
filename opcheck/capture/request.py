"""The options of a capture that a user sets, and the request that travels to the child process as JSON."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from opcheck.capture.naming import full_name
from opcheck.capture.repository import Repository, fetch, is_repository
from opcheck.capture.word_lists import TABLES
from opcheck.common.documents import DocumentError, brief, from_yaml
from opcheck.common.errors import UsageError
from opcheck.common.names import parse_dtype
from opcheck.common.versions import Target
from opcheck.common.vocabulary import Mode
from opcheck.model.options import Declared, Option, options_of
from opcheck.model.records import Record, Scalar, Trace
from opcheck.worker.protocol import WorkFailure

#: How a model can be followed, and what each way misses.  Whatever the tracer, the calls are those of the simulated
#: Mac's dispatcher.
TRACERS: dict[str, str] = TABLES["tracers"]
DEFAULT_TRACER = "dispatch"

#: Of programs that were fixed before: what is not in them any more.
FIXED: dict[str, str] = TABLES["fixed"]

#: How a trace describes the inputs of a pipeline, which runs some steps of its loop.
AS_PIPELINE = "as its pipeline is called"

#: What the model is run for: one forward pass, or one training step.
MODES: tuple[Mode, ...] = ("inference", "train")

#: What torch.autocast("mps", ...) can cast to.
AUTOCAST = ("float16", "bfloat16")

#: What a run can be compared in with float64.
PRECISIONS = ("float32", "float16", "bfloat16")
DEFAULT_OPTIMIZER = "adamw"

#: GB of memory: more than any machine has
MOST_MEMORY = 1_000_000
#: seconds of a time limit: a year, which the timers of every platform take
MOST_SECONDS = 365 * 86400

Setting = Scalar | list[object] | dict[str, object]


def setting(text: str) -> tuple[str, Setting]:
    """Split ``NAME=VALUE`` into a name and the value as YAML reads it.

    Raises:
        UsageError: no name, or no YAML.
    """
    name, equals, value = text.partition("=")
    try:
        content = from_yaml(value)
    except DocumentError as error:
        raise UsageError(
            f"not a YAML value: {brief(value)}", context=f"--config {text}", hint="quote it: a='[1, 2]'"
        ) from error
    if not (equals and name.strip()):
        raise UsageError(f"not a setting: {text!r}", context="--config", hint="write it as NAME=VALUE")
    # A date is the one scalar of YAML that a request cannot have: it stays text.
    is_plain = isinstance(content, (bool, int, float, str, list, dict)) or content is None
    return name.strip(), content if is_plain else value


def _precisions(dtypes: Sequence[str]) -> tuple[str, ...]:
    """Return the dtypes by their canonical names, each once, in their order."""
    names = [parse_dtype(dtype) for dtype in dtypes]
    for name in names:
        if name not in PRECISIONS:
            raise UsageError(f"no run in {name} is compared with float64", hint=f"it compares {', '.join(PRECISIONS)}")
    return tuple(dict.fromkeys(names))


#: The model is run in the dtypes that it has.
AS_IT_IS = "model"


def _numbers(dtypes: Sequence[str]) -> tuple[str, ...]:
    """Return the dtypes by their canonical names, each once, in their order."""
    return tuple(dict.fromkeys(name if name == AS_IT_IS else _precisions((name,))[0] for name in dtypes))


def _autocast(dtype: str) -> str:
    name = parse_dtype(dtype)
    if name not in AUTOCAST:
        raise UsageError(f"autocast on MPS casts to no {name}", hint=f"it casts to {' or '.join(AUTOCAST)}")
    return name


def _memory(gigabytes: float) -> float:
    if 0 <= gigabytes <= MOST_MEMORY:
        return gigabytes
    wrong = "must not be negative" if gigabytes < 0 else f"must be a number of at most {MOST_MEMORY:,} GB"
    raise UsageError(f"the memory {wrong}", hint="try 8")


class CaptureOption(Option, frozen=True):
    """An option of a capture."""

    #: ``run``: how any model is run. ``model``: what goes with one model, which the gate takes from
    #: the model's table and ``opcheck.audit`` with a model's name alone.  ``audit``: as ``model``,
    #: for one target: ``opcheck audit`` has it.
    scope: Literal["run", "model", "audit"] = "run"
    #: the mode that it belongs to; empty: all of them
    mode: str = ""
    #: whether what is captured depends on it, so that a report names it
    reported: bool = True


def seconds(text: str, default: float) -> CaptureOption:
    """Define ``--timeout SECONDS`` with this help: positive, and at most ``MOST_SECONDS``."""

    def check(value: float) -> float:
        if 0 < value <= MOST_SECONDS:
            return value
        raise UsageError(
            "the timeout must be more than nothing"
            if value <= 0
            else f"the timeout must be a number of at most {MOST_SECONDS:,} seconds",
            hint=f"try {default:g}",
        )

    return CaptureOption(text, "timeout", metavar="SECONDS", check=check, reported=False)


class CaptureOptions(Record, frozen=True, kw_only=True):
    """The settings of running and recording a model, as a user gives them."""

    inputs: Annotated[
        tuple[str, ...],
        CaptureOption("Inputs, in order: 1x3x224x224:float32 or x=1x8:int64.", "input", metavar="SPEC", scope="model"),
    ] = ()
    #: read in the order of the arguments (capture/child/inputs/specs.py).
    input_files: Annotated[
        tuple[str, ...],
        CaptureOption(
            "Files with inputs: .pt, .npy, .npz, .safetensors. Repeatable.",
            "input-file",
            metavar="[NAME=]FILE",
            scope="model",
            action="reads",
        ),
    ] = ()
    #: keyword arguments for a library model's configuration or constructor.
    config: Annotated[
        dict[str, Setting],
        CaptureOption("Setting of the model, in YAML. Repeatable.", metavar="NAME=VALUE", read=setting, scope="model"),
    ] = {}
    #: empty: the forward pass, and what users of the library do with such a model.
    call: Annotated[
        tuple[str, ...],
        CaptureOption(
            "Method to call: forward, or generate:max_new_tokens=4. Repeatable.",
            metavar="METHOD[:ARG=VALUE,...]",
            scope="model",
        ),
    ] = ()
    trust_remote_code: Annotated[
        bool,
        CaptureOption(
            "Run the Python code of a repository on this machine.",
            negative="--no-trust-remote-code",
            scope="model",
            action="trusts",
        ),
    ] = False
    checkpoints: Annotated[
        tuple[str, ...],
        CaptureOption(
            "Check the dtypes of the weights in this file. Repeatable.",
            "checkpoint",
            metavar="FILE",
            scope="model",
            action="reads",
        ),
    ] = ()
    #: of floating parameters and inputs; empty leaves them.
    dtype: Annotated[str, CaptureOption("Cast the model to this dtype.", metavar="DTYPE", check=parse_dtype)] = ""
    precision: Annotated[
        tuple[str, ...],
        CaptureOption(
            "Compare each call with float64 in float32,float16,bfloat16.",
            metavar="[DTYPES]",
            values=PRECISIONS,
            separator=",",
            bare=PRECISIONS[0],
            check=_precisions,
            scope="audit",
        ),
    ] = ()
    numbers: Annotated[
        tuple[str, ...],
        CaptureOption(
            "Compute with the release's Metal kernels, as it is or in DTYPES.",
            metavar="[DTYPES]",
            values=(AS_IT_IS, *PRECISIONS),
            separator=",",
            bare=AS_IT_IS,
            check=_numbers,
            scope="audit",
        ),
    ] = ()
    kernels: Annotated[
        str | None,
        CaptureOption(
            "With --numbers: compare, or continue with the kernels' results.",
            choices=("shadow", "replace"),
            bare="shadow",
            scope="audit",
        ),
    ] = None
    #: as a program without torch.no_grad() runs.
    grad: Annotated[bool, CaptureOption("Run with gradients enabled.", negative="--no-grad")] = False
    mode: Annotated[Mode, CaptureOption("Run a forward pass or a training step.", choices=MODES)] = MODES[0]
    optimizer: Annotated[
        str,
        CaptureOption(
            "Optimizer class of torch.optim and its arguments.", metavar="NAME[:ARG=VALUE,...]", mode="train"
        ),
    ] = DEFAULT_OPTIMIZER
    #: around forward and loss; empty: none.
    autocast: Annotated[
        str,
        CaptureOption(
            f"Run under torch.autocast in {' or '.join(AUTOCAST)}.", metavar="DTYPE", values=AUTOCAST, check=_autocast
        ),
    ] = ""
    tracer: Annotated[str, CaptureOption("Tracer to capture the model with.", choices=tuple(TRACERS))] = DEFAULT_TRACER
    #: the captured torch.fx graph: .py its code, .json the trace.
    save_graph: Annotated[
        str,
        CaptureOption(
            "Write the captured graph to this file.", metavar="FILE", scope="audit", reported=False, action="writes"
        ),
    ] = ""
    #: in an environment of its own (capture/exact.py)
    exact: Annotated[bool, CaptureOption("Run with the target's own torch release, 2.8 or newer.", action="runs")] = (
        False
    )
    #: until the child process is ended.
    time_limit: Annotated[float, seconds("Time limit of each run of the model.", 300.0)] = 300.0
    #: 0: three quarters of the machine's memory.
    memory_limit: Annotated[
        float,
        CaptureOption(
            "Memory limit of the run.", metavar="GB", default_text="three quarters", check=_memory, reported=False
        ),
    ] = 0.0

    def flags(self) -> list[str]:
        """Return the flags of ``opcheck audit`` that ask for the same capture."""
        flags: list[str] = []
        for each in options_of(type(self)):
            option, value = each.option, getattr(self, each.field)
            if not isinstance(option, CaptureOption) or not option.reported:
                continue
            if self.mode == option.mode if option.mode else value != each.default:
                flags += _flags(each, value)
        return flags


def _flags(option: Declared, value: Any) -> list[str]:
    """Return the flags that set an option to a value."""
    flag = f"--{option.name}"
    if isinstance(value, bool):
        return [flag if value else option.option.negative]
    if isinstance(value, dict):
        return [f"{flag}={name}={json.dumps(item)}" for name, item in value.items()]
    if isinstance(value, tuple):
        separator = option.option.separator
        texts = (separator.join(value),) if separator else value
        return [f"{flag}={text}" for text in texts]
    return [f"{flag}={value}"]


class CaptureRequest(CaptureOptions, frozen=True, kw_only=True):
    """One model, how it is run and recorded, and the Mac that it is to be run on."""

    #: ``package.module:attribute``, ``file.py:attribute``, ``file.pt2``, ``transformers:BertModel`` ...
    model: str
    target: Target
    #: what is changed about the loaded model and its inputs: ``vae_tiling``, ``checkpointing``, ``batch=1`` ...
    changes: tuple[str, ...] = ()
    #: what a hub or a folder states of the model; None: its name is of another form.
    repository: Repository | None = None
    #: the packages of the environment that it runs in, each ``name==version``; none: those of this environment
    packages: tuple[str, ...] = ()
    #: file to which the child appends what it reads (worker/dependency_tracking.py); empty: none.
    notes: str = ""


class ModelSource(NamedTuple):
    """A model by its whole name, and the facts about it from a hub, a folder or a recipe."""

    name: str
    #: None: the name is of another form, or that of an object of this process
    repository: Repository | None = None


def find_source(model: str, options: CaptureOptions) -> ModelSource:
    """Return what a model's name means; all that is read of the model before its capture is read here.

    Args:
        model: its name; of a file, a folder or a library's model it may be short.
        options: how it is captured.

    Raises:
        ModelLoadError: a short name that means no model, or several.
        ModelLoadError: a hub or a folder is named that has no such model, or cannot be read.
    """
    name = full_name(model)
    return ModelSource(name, fetch(name, trusted=options.trust_remote_code) if is_repository(name) else None)


def request_of(source: ModelSource, target: Target, options: CaptureOptions) -> CaptureRequest:
    """Return the request for a model on a Mac; nothing is read for it.

    Args:
        source: the model.
        target: the Mac.
        options: how it is captured.

    Raises:
        UsageError: options that do not go together.
    """
    if options.mode == "train" and options.tracer != DEFAULT_TRACER:
        raise UsageError(
            f"the tracer {options.tracer} follows no training step",
            context=f"--mode train --tracer {options.tracer}",
            hint=f"leave --tracer at {DEFAULT_TRACER}",
        )
    values = {each.field: getattr(options, each.field) for each in options_of(CaptureOptions)}
    return CaptureRequest(model=source.name, target=target, repository=source.repository, **values)


class ManyTargets(Record, frozen=True, kw_only=True):
    """One model on several targets; the target of ``capture`` is not looked at."""

    capture: CaptureRequest
    targets: tuple[Target, ...]
    #: of the inputs for each target, by the names of their dimensions (capture/dimensions.py); the targets are the same
    sizes: tuple[dict[str, int], ...] = ()
    #: libraries see the installed torch: loading failed with that of the targets
    as_installed: bool = False


class Shared(Record, frozen=True, kw_only=True):
    """One capture, and the targets that it serves, by their places among the requested ones."""

    targets: tuple[int, ...]
    #: of the first of them; None: there is none.
    trace: Trace | None = None
    #: what ``Trace.differences`` and ``Trace.differing_libraries`` are for each of them
    differences: tuple[tuple[str, ...], ...] = ()
    differing_libraries: tuple[tuple[str, ...], ...] = ()
    #: why there is no trace
    failure: WorkFailure | None = None
    #: the graph as code, where the request has it
    code: str = ""
    #: the run, or the load, raised after a library saw another release than the installed release, which may be why
    doubtful: bool = False


class Captures(Record, frozen=True, kw_only=True, tag="captures"):
    """One capture for each class of targets; ``left`` are those that need another load of the model."""

    shared: tuple[Shared, ...]
    left: tuple[int, ...] = ()
