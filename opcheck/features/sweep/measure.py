"""Measures a model in one mode on all targets, in a process of its own: captures, judges, summarises."""

from __future__ import annotations

import importlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

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
from opcheck.features.sweep.records import (
    STAGES,
    Config,
    MissingVerdict,
    NotNativeCalls,
    SweepOutcome,
    SweepResult,
    SweepTask,
    target_name,
)
from opcheck.features.sweep.shrink import small
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
            self.fail(task.targets, _late(task))
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
        without = [
            name for outcome in made if outcome.headline != _FAILS for name in outcome.targets
        ]
        if not trace.complete and without:
            last = trace.problems[-1]
            self.failures.append(
                MissingVerdict(
                    targets=tuple(without),
                    stage="run",
                    problem=last.kind,
                    message=last.message,
                    where=str(last.location or ""),
                )
            )

    def fail(self, targets: Sequence[Target], error: OpcheckError) -> None:
        """Record that these targets have no verdict."""
        self.failures.append(
            MissingVerdict(
                targets=tuple(map(target_name, targets)),
                stage=_STAGES.get(type(error), "run"),
                problem=type(error).__name__,
                message=error.message,
                where=error.context,
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


def _late(task: SweepTask) -> CaptureError:
    return CaptureError(f"not done after {task.timeout:g} s", context=task.model.spec)


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
