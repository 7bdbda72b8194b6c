"""The server process of a worker, which imports the libraries once and forks for each model and mode.

A fork takes some 50 ms where an import takes 20 s.  A model that hangs, takes all memory or ends
its process ends a fork; a model that ends the process that forked it ends this process, and its
worker starts it again.  Where a process cannot be copied, each model and mode has a server of its own.
"""

import gc
import importlib
import inspect
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from opcheck.capture.child.extensions import prepare_torchvision
from opcheck.capture.child.loading.libraries import find
from opcheck.capture.child.recipes.recipe_engine import recipes
from opcheck.capture.child.run import plain, run
from opcheck.capture.child.shared import captures
from opcheck.capture.parent import capture_many, of_each
from opcheck.capture.request import MODES, CaptureRequest, Shared
from opcheck.common.errors import CaptureError, InputError, LibraryLoadError, ModelLoadError, OpcheckError
from opcheck.common.globs import fits
from opcheck.common.grouping import group_values
from opcheck.common.picking import pick
from opcheck.common.text import type_and_text
from opcheck.common.versions import MACOS_MAJORS, Target, Version
from opcheck.common.vocabulary import HEADLINES, Mode
from opcheck.common.yaml_text import load_shipped
from opcheck.data.registrations import OpLists, load
from opcheck.features.sweep import sweep_records as records
from opcheck.judge.target_summary import summaries
from opcheck.model.records import Trace
from opcheck.simulator import target_reads
from opcheck.simulator.real_device import out_of_reach
from opcheck.simulator.visible.public_names import names_of_the_target
from opcheck.simulator.visible.surface import mps_backend
from opcheck.worker import environments, platform
from opcheck.worker.protocol import Say, silent
from opcheck.worker.worker import WorkerError, run_forked

#: Seconds that a fork gets beyond the limit that it keeps itself.
_GRACE = 15.0
#: Seconds that a model may take without opcheck.
_CONTROL = 60.0


def answer(request: records.Prepare | records.Measure | records.Control, say: Say) -> records.Reply:
    """Import what all models need, or run a model in a fork: its result, or how the fork ended."""
    if isinstance(request, records.Prepare):
        platform.adopt_orphans()
        prepare()
        warm()
        settle()
        return records.PlainRun(text="")
    if isinstance(request, records.Control):
        model, seconds, newest = request.model, _CONTROL, None
    else:
        model, seconds = request.task.model, request.task.seconds
        newest = max(request.task.targets, key=lambda target: (target.torch, target.macos))
    _import_for(model.library, model.spec.partition(":")[2], newest)
    # The worker ends this process when this time is over: a model may have stopped it, and the fork's limit with it.
    say("running the model", seconds=seconds + _GRACE)
    if not platform.CAN_FORK:
        return _reply(request)
    others = {*platform.children_of_this_process()}
    try:
        return run_forked(lambda: _reply(request), records.Reply, seconds + _GRACE, quiet=True)
    except WorkerError as error:
        if error.kind == "late":
            return records.EndedProcess(problem="hung", how=f"was ended after {seconds:g} s without a sign")
        last = f"; it printed last: {error.printed}" if error.printed else ""
        return records.EndedProcess(problem="died", how=f"{error}{last}")
    finally:
        platform.end_orphans(others)


def _import_for(library: str, name: str, target: Target | None) -> None:
    try:
        preload(library, name, target)
    except BaseException:  # noqa: BLE001 - the fork meets it again, and reports it
        traceback.print_exc()
    if library not in _COLLECTED:
        # Its import leaves garbage.
        _COLLECTED.add(library)
        gc.collect()
    gc.freeze()


_COLLECTED: set[str] = set()


def _reply(request: records.Measure | records.Control) -> records.Reply:
    """Run the model in the fork, within the requested limits."""
    if platform.CAN_FORK:
        platform.confine_signals()
    if isinstance(request, records.Measure):
        platform.limit_memory(int(request.task.memory * 1e9))
        return records.MeasuredResult(result=result(request.task, request.mode, load()))
    platform.limit_memory(int(request.memory * 1e9))
    capture = request.model.request(_newest(), request.config, request.mode)
    return records.PlainRun(text=plain(capture, build_only=request.stage == "load"))


def _newest() -> Target:
    return Target(torch=Version.parse(load().releases[-1].line), macos=Version(MACOS_MAJORS[-1]))


def prepare() -> None:
    """Import torch, read the op lists, declare torchvision's operators.

    Raises:
        CaptureError: torch is not installed, or too old.
    """
    environments.require()
    load()
    prepare_torchvision()
    # No model needs it, and a torchaudio for another torch stops the import of transformers.
    sys.modules.setdefault("torchaudio", None)  # type: ignore[arg-type]


def preload(library: str, name: str = "", target: Target | None = None) -> None:
    """Import a library and what it needs for the class of this name, so that forked children have it.

    Args:
        library: the library; any other package is left to the children.
        name: the class.
        target: the Mac that the library sees; children for targets that give its questions other answers need a
            process of their own.  None: the newest release.

    Raises:
        ModelLoadError: it is not installed, or cannot be imported.
    """
    if library not in records.LIBRARIES:
        return
    # transformers checks once, at import, whether there is an MPS device.
    with out_of_reach(), mps_backend(target or _newest()), names_of_the_target():
        getattr(find(library, f"{library}:{name}"), name, None)


def warm() -> None:
    """Run some layers in both modes, so that torch imports and initialises what it loads on first use."""
    importlib.import_module("torch._dynamo")  # else each child would import it for itself
    for mode in MODES:
        run(
            CaptureRequest(
                model="torch.nn:TransformerEncoderLayer",
                target=_newest(),
                config={"d_model": 8, "nhead": 2},
                inputs=("2x4x8:float32",),
                mode=mode,
            ),
            silent,
        )


def settle() -> None:
    """Exclude present objects from garbage collection, so that children neither scan nor copy them."""
    gc.collect()
    gc.freeze()


_Entry = TypeVar("_Entry", records.SweepOutcome, records.MissingVerdict)

_FAILS = HEADLINES[0]
_STAGES: dict[type[OpcheckError], str] = {ModelLoadError: "load", LibraryLoadError: "load", InputError: "inputs"}


def result(task: records.SweepTask, mode: Mode, lists: OpLists) -> records.SweepResult:
    """Return the result of one mode of the task.

    The model is run in a small configuration, and in its default one where that does not end in a verdict.
    """
    key = task.keys[mode]
    start = time.monotonic()
    work = _Work(task, mode, lists)
    try:
        own = task.model
        is_user = not task.small or own.library == "user"
        config = own.config if is_user else small(own, importlib.import_module(own.library))
    except Exception as error:  # noqa: BLE001 - whatever a configuration raises
        work.fail(task.targets, ModelLoadError(type_and_text(error)))
        return work.result(key, task.model.config, start)
    work.measure(config)
    if work.failures and config != task.model.config:
        retry = _Work(task, mode, lists)
        retry.measure(task.model.config)
        if retry.progress > work.progress:
            work, config = retry, task.model.config
    return work.result(key, config, start)


class _Work:
    """The outcomes of one configuration in one mode for each target."""

    def __init__(self, task: records.SweepTask, mode: Mode, lists: OpLists) -> None:
        self.task = task
        self.mode = mode
        self.lists = lists
        self.outcomes: list[records.SweepOutcome] = []
        self.failures: list[records.MissingVerdict] = []
        self.uses: Counter[str] = Counter()
        self.captures = 0
        self.packages: dict[str, str] = {}

    def measure(self, config: records.Config) -> None:
        """Run the model for each class of targets, and judge it for each target."""
        task = self.task
        request = task.model.request(task.targets[0], config, self.mode, call=("forward",), time_limit=task.timeout)
        if not any(map(target_reads.READS.fits, task.targets)):
            self._elsewhere(request, task.targets)
            return
        platform.limit_time(task.timeout)
        try:
            captured = captures(request, task.targets, silent)
        except platform.TimeLimitReached:
            late = f"not done after {task.timeout:g} s"
            self.fail(task.targets, CaptureError(late, context=task.model.spec))
        except LibraryLoadError:
            self._elsewhere(request, task.targets)
        except OpcheckError as error:
            self.fail(task.targets, error)
        else:
            left = [task.targets[n] for n in captured.left]
            for shared in captured.shared:
                targets = [task.targets[n] for n in shared.targets]
                if shared.doubtful:
                    left += targets
                else:
                    self._take(shared, task.targets)
            if left:
                self._elsewhere(request, left)
        finally:
            platform.stop_time_limit()

    def _elsewhere(self, request: CaptureRequest, targets: Sequence[Target]) -> None:
        """Capture in a process of its own, because a library's import depends on the target."""
        try:
            traces = capture_many(request, targets)
        except OpcheckError as error:
            self.fail(targets, error)
            return
        for trace, target in zip(traces, targets, strict=True):
            if isinstance(trace, OpcheckError):
                self.fail([target], trace)
            else:
                self._judge(trace, [target])

    def _take(self, shared: Shared, targets: Sequence[Target]) -> None:
        by_libraries: dict[tuple[str, ...], list[tuple[Trace, Target]]] = {}
        for n, trace in of_each(shared, targets):
            if isinstance(trace, OpcheckError):
                self.fail([targets[n]], trace)
            else:
                alike = by_libraries.setdefault(trace.differing_libraries, [])
                alike.append((trace, targets[n]))
        for alike in by_libraries.values():
            self._judge(alike[0][0], [target for _, target in alike])

    def _judge(self, trace: Trace, targets: Sequence[Target]) -> None:
        self.packages = trace.packages
        # The most calls of a run count.
        self.uses |= Counter(call.op for call in trace.calls if call.phase != "move")
        without: list[str] = []
        for judged in summaries(trace, targets, self.lists):
            outcome = records.SweepOutcome(
                targets=(records.target_name(judged.target),),
                **pick(judged, "headline", "totals"),
                complete=trace.complete,
                not_native=tuple(
                    records.NotNativeCalls(op=op, status=status, kind=kind or "", calls=calls)
                    for op, status, kind, calls in judged.operators
                ),
                capture=self.captures,
            )
            self.outcomes.append(outcome)
            without += outcome.targets if outcome.headline != _FAILS else ()
        self.captures += 1
        if not trace.complete and without:
            last = trace.problems[-1]
            self._miss(without, "run", last.kind, last.message, str(last.location or ""))

    def fail(self, targets: Sequence[Target], error: OpcheckError) -> None:
        """Record that these targets have no verdict."""
        stage, kind = _STAGES.get(type(error), "run"), type(error).__name__
        self._miss(map(records.target_name, targets), stage, kind, error.message, error.context)

    def _miss(self, targets: Iterable[str], stage: str, problem: str, message: str, where: str) -> None:
        self.failures.append(
            records.MissingVerdict(targets=tuple(targets), stage=stage, problem=problem, message=message, where=where)
        )

    @property
    def progress(self) -> tuple[int, int]:
        """Return how far the work came: targets with a verdict, then the stage of the first failure."""
        failed = sum(len(failure.targets) for failure in self.failures)
        stages = [records.STAGES.index(failure.stage) for failure in self.failures]
        return -failed, min(stages, default=len(records.STAGES))

    def result(self, key: str, config: records.Config, start: float) -> records.SweepResult:
        """Return the result that the sweep keeps."""
        return records.SweepResult(
            key=key,
            model=self.task.model,
            **pick(self, "mode", "captures", "packages"),
            config=config,
            outcomes=_merge_targets(self.outcomes),
            uses=dict(sorted(self.uses.items())),
            failures=_merge_targets(self.failures),
            seconds=round(time.monotonic() - start, 3),
        )


def _merge_targets(entries: Iterable[_Entry]) -> tuple[_Entry, ...]:
    """Merge the entries that differ only in their targets."""
    same = group_values((msgspec.json.encode(replace(entry, targets=())), entry) for entry in entries)
    return tuple(replace(alike[0], targets=tuple(name for e in alike for name in e.targets)) for alike in same.values())


#: Layers that are kept, and more where that takes in each kind of layer that the configuration lists.
LAYERS = 2
#: ... but no more than so many.
MOST_LAYERS = 9
#: Experts that are kept: what the largest common number of groups can be drawn from.
EXPERTS = 16

_DEPTH = re.compile(r"^(num_|n_)?(\w+_)?(layers?|blocks|depth)$")
_EXPERTS = re.compile(r"^(num_|n_)?(\w+_)?experts$")
#: Kinds of layers that all share the weights of the first (Zamba); two are needed to share anything.
_SHARING = ("hybrid",)
#: Not a depth, or a depth that other settings depend on.
_KEPT = re.compile(r"feat_extract|conv|adapter|skip|dense|_per_|start|freq|window|offset|shared")


def small(model: records.Model, library: ModuleType) -> records.Config:
    """Return the model's configuration with smaller values; its own if nothing can be made smaller.

    Raises:
        Exception: whatever the library's configuration class raises.
    """
    name = model.spec.partition(":")[2]
    if model.library == "transformers":
        kind = getattr(library, name)
        needed = recipes("transformers").open_settings(kind.config_class.__name__, name)
        return {**_smaller(kind.config_class(**needed)), **model.config}
    if model.library == "diffusers":
        parameters = inspect.signature(getattr(library, name).__init__).parameters.values()
        settings = {parameter.name: parameter.default for parameter in parameters}
        return {**_fewer(settings), **model.config}
    return model.config


def _smaller(config: Any) -> records.Config:
    reduced: records.Config = _fewer(vars(config))
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is None or not hasattr(part, "to_diff_dict"):
            continue
        smaller = _smaller(part)
        if smaller:
            reduced[name] = {**part.to_diff_dict(), **smaller}
    return reduced


def _fewer(settings: Mapping[str, Any]) -> records.Config:
    reduced: records.Config = {}
    for name, value in settings.items():
        if not isinstance(value, int) or isinstance(value, bool) or _KEPT.search(name):
            continue
        if _EXPERTS.match(name) and value > EXPERTS:
            reduced[name] = EXPERTS
        elif _DEPTH.match(name) and value > LAYERS:
            # layer_types, layers_block_type of Zamba ...: the kind of each layer
            lists = [n for n, v in settings.items() if isinstance(v, list) and len(v) == value]
            wanted = max([LAYERS, *(_covering(settings[n]) for n in lists if "_type" in n)])
            if wanted < value:
                cut = {n: settings[n][:wanted] for n in lists if not n.startswith("_")}
                reduced |= {name: wanted, **cut}
    return reduced


def _covering(kinds: list[str]) -> int:
    """Return how many of the first layers include every kind, and a second layer of kinds that share weights."""
    count = max(kinds.index(kind) + 1 for kind in set(kinds))
    shared = [place for place, kind in enumerate(kinds, 1) if kind in _SHARING]
    return min(max([count, *shared[:2]]), MOST_LAYERS)


#: Words for small models in names of a timm family; the first that a name of the family has decides.
_SMALL = ("atto", "femto", "pico", "nano", "tiny", "micro", "xxs", "_xs", "xx_small", "mini", "_s")

#: The models of diffusers that are swept unless a pattern names others.
DIFFUSERS: list[str] = load_shipped(__file__, "diffusers_models.yaml")

#: A pattern that matches every name: a library then lists one model a family, or its main ones.
ALL = "*"


def transformers_models(library: ModuleType, pattern: str) -> Iterator[records.Model]:
    """List every public model class that has a configuration of its own and a forward."""
    names = [
        name
        for name, module in library._class_to_module.items()  # noqa: SLF001 - it lists them unimported
        if ".modeling_" in f".{module}" and not name.endswith("PreTrainedModel") and fits(name, pattern)
    ]
    for name in sorted(names):
        kind: Any = getattr(library, name, None)
        if not (isinstance(kind, type) and issubclass(kind, library.PreTrainedModel)):
            continue
        model: Any = kind
        # nn.Module's own forward has another name.
        has_forward = model.forward.__name__ != "_forward_unimplemented"
        if has_forward and model.config_class is not None:
            yield records.Model(spec=f"transformers:{name}", family=model.config_class.__name__)


def timm_models(library: ModuleType, pattern: str) -> Iterator[records.Model]:
    """Yield the smallest model of each module of timm, judging by the names; of a pattern all matches."""
    for module in sorted(library.list_modules()):
        names = library.list_models(module=module)
        chosen = [min(names, key=_smallness)] if names and pattern == ALL else names
        fitting = (name for name in chosen if fits(name, pattern))
        yield from (records.Model(spec=f"timm:{name}", family=module) for name in fitting)


def torchvision_models(library: ModuleType, pattern: str) -> Iterator[records.Model]:
    """One classifier a family, and every model of the other tasks; of a pattern all that it fits."""
    seen: set[str] = set()
    for name in (each for each in library.models.list_models() if fits(each, pattern)):
        home = library.models.get_model_builder(name).__module__.removeprefix("torchvision.models.")
        tasks = ("detection", "segmentation", "video", "optical")
        if pattern != ALL or home not in seen or home.startswith(tasks):
            yield records.Model(spec=f"torchvision:{name}", family=home)
        seen.add(home)


def diffusers_models(library: ModuleType, pattern: str) -> Iterator[records.Model]:
    """The main models: U-nets, transformers, autoencoders, ControlNets; of a pattern all that it fits."""
    names = DIFFUSERS if pattern == ALL else sorted(dir(library))
    for name in (each for each in names if fits(each, pattern)):
        kind: Any = getattr(library, name, None)
        if isinstance(kind, type) and issubclass(kind, library.ModelMixin):
            yield records.Model(spec=f"diffusers:{name}", family=name)


def _smallness(name: str) -> tuple[int, int, str]:
    words = (position for position, word in enumerate(_SMALL) if word in name)
    return next(words, len(_SMALL)), len(name), name


CATALOGUES: dict[str, Callable[[ModuleType, str], Iterator[records.Model]]] = {
    "transformers": transformers_models,
    "timm": timm_models,
    "torchvision": torchvision_models,
    "diffusers": diffusers_models,
}


def list_models(pattern: str) -> list[records.Model]:
    """List the models of a pattern such as ``transformers:Bert*``, in a prepared process.

    Raises:
        ModelLoadError: the library is not installed or cannot be imported, or nothing fits.
    """
    library, _, names = pattern.partition(":")
    preload(library)
    models = list(CATALOGUES[library](importlib.import_module(library), names))
    if not models:
        problem = f"no model of {library} fits the pattern {names!r}"
        hint = f"{library}:* takes all of the library"
        raise ModelLoadError(problem, context=f"{pattern}; * and ? match letters, as in a shell", hint=hint)
    return models


def answer_patterns(patterns: list[str], _say: Say) -> dict[str, list[records.Model]]:
    """Answer a request with the models of each pattern.

    Raises:
        CaptureError: torch is not installed, or too old.
        ModelLoadError: as ``list_models``.
    """
    prepare()
    return {pattern: list_models(pattern) for pattern in patterns}
