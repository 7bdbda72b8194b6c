"""Measures a model in one mode on all targets, in a process of its own: captures, judges, summarises."""

import importlib
import inspect
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from opcheck.capture.child.recipes.recipe_engine import recipes
from opcheck.capture.child.shared import captures
from opcheck.capture.parent import capture_many, of_each
from opcheck.capture.request import CaptureRequest, Shared
from opcheck.common.errors import (
    CaptureError,
    InputError,
    LibraryLoadError,
    ModelLoadError,
    OpcheckError,
)
from opcheck.common.text import error_text
from opcheck.common.versions import Target
from opcheck.common.vocabulary import HEADLINES, Mode
from opcheck.data.registrations import OpLists
from opcheck.features.sweep.sweep_records import (
    STAGES,
    Config,
    MissingVerdict,
    Model,
    NotNativeCalls,
    SweepOutcome,
    SweepResult,
    SweepTask,
    target_name,
)
from opcheck.judge.target_summary import TargetSummary, summaries
from opcheck.model.records import Trace
from opcheck.simulator import target_reads
from opcheck.worker import platform
from opcheck.worker.protocol import silent

_Entry = TypeVar("_Entry", SweepOutcome, MissingVerdict)

_FAILS = HEADLINES[0]
_STAGES: dict[type[OpcheckError], str] = {
    ModelLoadError: "load",
    LibraryLoadError: "load",
    InputError: "inputs",
}


def result(task: SweepTask, mode: Mode, lists: OpLists) -> SweepResult:
    """Return the result of one mode of the task.

    The model is run in a small configuration, and in its default one where that does not end in a verdict.
    """
    key = task.keys[mode]
    start = time.monotonic()
    work = _Work(task, mode, lists)
    try:
        config = _config(task)
    except Exception as error:  # noqa: BLE001 - whatever a configuration raises
        text = f"{type(error).__name__}: {error_text(error)}"
        work.fail(task.targets, ModelLoadError(text))
        return work.result(key, task.model.config, start)
    work.measure(config)
    if work.failures and config != task.model.config:
        retry = _Work(task, mode, lists)
        retry.measure(task.model.config)
        if retry.progress > work.progress:
            work, config = retry, task.model.config
    return work.result(key, config, start)


def _config(task: SweepTask) -> Config:
    if not task.small or task.model.library == "user":
        return task.model.config
    return small(task.model, importlib.import_module(task.model.library))


class _Work:
    """The outcomes of one configuration in one mode for each target."""

    def __init__(self, task: SweepTask, mode: Mode, lists: OpLists) -> None:
        self.task = task
        self.mode = mode
        self.lists = lists
        self.outcomes: list[SweepOutcome] = []
        self.failures: list[MissingVerdict] = []
        self.uses: Counter[str] = Counter()
        self.captures = 0
        self.packages: dict[str, str] = {}

    def measure(self, config: Config) -> None:
        """Run the model for each class of targets, and judge it for each target."""
        task = self.task
        request = CaptureRequest(
            model=task.model.spec,
            torch="",
            macos="",
            inputs=task.model.inputs,
            config=config,
            mode=self.mode,
            call=("forward",),
            time_limit=task.timeout,
        )
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
        for op, calls in Counter(call.op for call in trace.calls if call.phase != "move").items():
            self.uses[op] = max(calls, self.uses[op])
        made = [
            _outcome(summary, trace, self.captures)
            for summary in summaries(trace, targets, self.lists)
        ]
        self.outcomes += made
        self.captures += 1
        without = [name for each in made if each.headline != _FAILS for name in each.targets]
        if not trace.complete and without:
            last = trace.problems[-1]
            where = str(last.location or "")
            self._miss(without, "run", last.kind, last.message, where)

    def fail(self, targets: Sequence[Target], error: OpcheckError) -> None:
        """Record that these targets have no verdict."""
        stage, kind = _STAGES.get(type(error), "run"), type(error).__name__
        self._miss(map(target_name, targets), stage, kind, error.message, error.context)

    def _miss(
        self, targets: Iterable[str], stage: str, problem: str, message: str, where: str
    ) -> None:
        self.failures.append(
            MissingVerdict(
                targets=tuple(targets), stage=stage, problem=problem, message=message, where=where
            )
        )

    @property
    def progress(self) -> tuple[int, int]:
        """Return how far the work came: targets with a verdict, then the stage of the first failure."""
        failed = sum(len(failure.targets) for failure in self.failures)
        stages = [STAGES.index(failure.stage) for failure in self.failures]
        return -failed, min(stages, default=len(STAGES))

    def result(self, key: str, config: Config, start: float) -> SweepResult:
        """Return the result that the sweep keeps."""
        return SweepResult(
            key=key,
            model=self.task.model,
            mode=self.mode,
            config=config,
            outcomes=_merge_targets(self.outcomes),
            uses=dict(sorted(self.uses.items())),
            failures=_merge_targets(self.failures),
            captures=self.captures,
            seconds=round(time.monotonic() - start, 3),
            packages=self.packages,
        )


def _outcome(judged: TargetSummary, trace: Trace, capture: int) -> SweepOutcome:
    return SweepOutcome(
        targets=(target_name(judged.target),),
        headline=judged.headline,
        complete=trace.complete,
        totals=judged.totals,
        not_native=tuple(
            NotNativeCalls(op=op, status=status, kind=kind or "", calls=calls)
            for op, status, kind, calls in judged.operators
        ),
        capture=capture,
    )


def _merge_targets(entries: Iterable[_Entry]) -> tuple[_Entry, ...]:
    """Merge the entries that differ only in their targets."""
    same: dict[bytes, list[_Entry]] = {}
    for entry in entries:
        same.setdefault(msgspec.json.encode(replace(entry, targets=())), []).append(entry)
    return tuple(
        replace(alike[0], targets=tuple(name for entry in alike for name in entry.targets))
        for alike in same.values()
    )


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


def small(model: Model, library: ModuleType) -> Config:
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


def _smaller(config: Any) -> Config:
    reduced: Config = _fewer(vars(config))
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is None or not hasattr(part, "to_diff_dict"):
            continue
        smaller = _smaller(part)
        if smaller:
            reduced[name] = {**part.to_diff_dict(), **smaller}
    return reduced


def _fewer(settings: Mapping[str, Any]) -> Config:
    reduced: Config = {}
    for name, value in settings.items():
        if not isinstance(value, int) or isinstance(value, bool) or _KEPT.search(name):
            continue
        if _EXPERTS.match(name) and value > EXPERTS:
            reduced[name] = EXPERTS
        elif _DEPTH.match(name) and value > LAYERS:
            wanted = max([LAYERS, *map(_covering, _kinds(settings, value))])
            if wanted < value:
                reduced[name] = wanted
                reduced.update(_cut(settings, value, wanted))
    return reduced


def _kinds(settings: Mapping[str, Any], count: int) -> Iterator[list[str]]:
    """Yield the lists that name the kind of each layer: ``layer_types``, ``layers_block_type`` of Zamba ..."""
    for name, value in settings.items():
        if "_type" in name and isinstance(value, list) and len(value) == count:
            yield value


def _covering(kinds: list[str]) -> int:
    """Return how many of the first layers include every kind, and a second layer of kinds that share weights."""
    count = max(kinds.index(kind) + 1 for kind in set(kinds))
    shared = [place for place, kind in enumerate(kinds, 1) if kind in _SHARING]
    return min(max([count, *shared[:2]]), MOST_LAYERS)


def _cut(settings: Mapping[str, Any], before: int, after: int) -> Config:
    """Cut the lists that have an entry for each layer."""
    return {
        name: value[:after]
        for name, value in settings.items()
        if isinstance(value, list) and len(value) == before and not name.startswith("_")
    }
