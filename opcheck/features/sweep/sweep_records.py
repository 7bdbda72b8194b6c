"""The requests and results of a sweep's workers: plain records, which travel as JSON."""

from typing import Any

from opcheck.capture.request import CaptureRequest
from opcheck.common.versions import Target
from opcheck.common.vocabulary import Headline, Mode, Status
from opcheck.model.records import Record, Scalar

Config = dict[str, Scalar | list[object] | dict[str, object]]

#: Where the audit of a model can end without a verdict.
STAGES = ("load", "inputs", "run", "judge", "worker")


class Model(Record, frozen=True, kw_only=True):
    """A model of a sweep."""

    #: as ``opcheck audit`` takes it
    spec: str
    #: whose model it is: a module of timm, the configuration of a transformers model ...
    family: str = ""
    #: settings for its configuration, its class or function
    config: Config = {}
    inputs: tuple[str, ...] = ()

    @property
    def library(self) -> str:
        """transformers, timm ... or ``user``."""
        return library_of(self.spec)

    def request(self, target: Target, config: Config, mode: Mode, **others: Any) -> CaptureRequest:
        """Return the request for a run of the model in a configuration."""
        settings = {"config": config, "mode": mode, **others}
        return CaptureRequest(model=self.spec, target=target, inputs=self.inputs, **settings)


class SweepTask(Record, frozen=True, kw_only=True):
    """The work of a worker at a time: a model in the modes without a result."""

    model: Model
    #: by mode the name of its result (sweep_folder.py)
    keys: dict[Mode, str]
    targets: tuple[Target, ...]
    #: fewer layers and experts, if the library's configuration has their number
    small: bool = True
    #: seconds for a mode, over all targets that load the model alike
    timeout: float = 120.0
    #: GB that the model may take of the worker's machine, beyond what the libraries take
    memory: float = 4.0
    #: the Python that runs it, of an environment (capture/exact.py); empty: the worker's own
    interpreter: str = ""
    #: of opcheck, torch and the model's library, of the sweep: a worker with others refuses the task
    versions: dict[str, str] = {}

    @property
    def seconds(self) -> float:
        """The seconds that a mode may take in all: each release may need an import of its own."""
        return self.timeout * (1 + len({target.torch for target in self.targets}))


class NotNativeCalls(Record, frozen=True, kw_only=True, array_like=True):
    """An operator's calls with one status that is not native."""

    op: str
    status: Status
    kind: str
    calls: int


class SweepOutcome(Record, frozen=True, kw_only=True):
    """The outcome that several targets share for the model."""

    #: as ``str(torch)/str(macos)``, with a ``+`` behind where the fallback variable is set
    targets: tuple[str, ...]
    headline: Headline
    complete: bool
    #: calls, operators, and calls by status and kind (opcheck.audit)
    totals: dict[str, int]
    not_native: tuple[NotNativeCalls, ...] = ()
    capture: int = 0


class MissingVerdict(Record, frozen=True, kw_only=True):
    """The reason why some targets have no verdict."""

    targets: tuple[str, ...]
    stage: str
    problem: str
    message: str
    where: str = ""
    #: what the same model does without opcheck, on the CPU; empty: not tried
    plain: str = ""


class SweepResult(Record, frozen=True, kw_only=True):
    """The saved result of a model in a mode."""

    key: str
    model: Model
    mode: Mode
    #: the settings that it was run with, those that make it small included
    config: Config = {}
    outcomes: tuple[SweepOutcome, ...] = ()
    #: calls by operator, in the run that makes most of them
    uses: dict[str, int] = {}
    failures: tuple[MissingVerdict, ...] = ()
    captures: int = 0
    seconds: float = 0.0
    packages: dict[str, str] = {}


class Prepare(Record, frozen=True, kw_only=True):
    """A request to import what all models need."""


class Measure(Record, frozen=True, kw_only=True):
    """A request for the result of a task in one mode."""

    task: SweepTask
    mode: Mode

    @property
    def model(self) -> Model:
        """The model of the task."""
        return self.task.model


class Control(Record, frozen=True, kw_only=True):
    """A request to run a model without opcheck."""

    model: Model
    config: Config
    mode: Mode
    stage: str
    #: GB, as in SweepTask
    memory: float


class MeasuredResult(Record, frozen=True, kw_only=True, tag="measured"):
    """The result of a mode."""

    result: SweepResult


class PlainRun(Record, frozen=True, kw_only=True, tag="plain"):
    """The result of a model without opcheck."""

    text: str


class EndedProcess(Record, frozen=True, kw_only=True, tag="ended"):
    """The process that ran the model gave no result."""

    #: ``hung`` or ``died``
    problem: str
    #: what the process did, as ``was ended by SIGKILL``
    how: str


Reply = MeasuredResult | PlainRun | EndedProcess


def library_of(spec: str) -> str:
    """Return the library before the colon if opcheck builds its models; else ``user``."""
    prefix, colon, _ = spec.partition(":")
    return prefix if colon and prefix in LIBRARIES else "user"


#: The libraries that have a catalogue.
LIBRARIES = ("transformers", "timm", "torchvision", "diffusers")


def target_name(target: Target) -> str:
    """Return ``2.13/15.0``, with a ``+`` at the end if the fallback variable is set."""
    return f"{target.torch}/{target.macos}{'+' if target.cpu_fallback else ''}"
