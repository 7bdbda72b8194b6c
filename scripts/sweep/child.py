"""One audit, in a process of its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from opcheck import pipeline
from opcheck.capture import watchdog
from opcheck.capture.request import CaptureRequest
from opcheck.capture.run import run
from opcheck.errors import CaptureError, InputError, ModelLoadError, OpcheckError
from opcheck.oplists.registrations import OpLists
from opcheck.versions import Target
from scripts.sweep.plain import plain
from scripts.sweep.records import STAGES, Config, Job, Result
from scripts.sweep.shrink import small

if TYPE_CHECKING:
    from types import ModuleType

    from opcheck.model import Report

_STAGES: dict[type[OpcheckError], str] = {ModelLoadError: "load", InputError: "inputs"}


def answer(job: Job, library: ModuleType, target: Target, lists: OpLists, limit: float) -> Result:
    """Audit the model in a small configuration, in its default one where that does not end in a verdict."""
    try:
        config = small(job, library)
    except Exception as error:  # noqa: BLE001 - whatever a configuration raises
        return _failed(job, job.config, ModelLoadError(f"{type(error).__name__}: {error}"))
    result = _audit(job, config, target, lists, limit)
    if not result.audited and config != job.config:
        other = _audit(job, job.config, target, lists, limit)
        if other.audited or STAGES.index(other.stage) > STAGES.index(result.stage):
            return other
    return result


def control(result: Result) -> str:
    """What the same model does without opcheck."""
    return plain(result.spec, result.config, result.stage)


def _audit(job: Job, config: Config, target: Target, lists: OpLists, limit: float) -> Result:
    start = time.monotonic()
    request = CaptureRequest(
        model=job.spec,
        torch=str(target.torch),
        macos=str(target.macos),
        config=config,
        time_limit=limit,
    )
    watchdog.limit_time(limit)
    try:
        trace = run(request, _silent).trace
        report = pipeline.report(trace, target, lists)
    except OpcheckError as error:
        return _failed(job, config, error, time.monotonic() - start)
    except watchdog.TimeLimitReached:
        late = CaptureError(f"not loaded after {limit:g} s", context="", hint="")
        return _failed(job, config, late, time.monotonic() - start)
    finally:
        watchdog.rest()
    return _told(job, config, report, time.monotonic() - start)


def _silent(text: str, *, seconds: float = 0.0) -> None:
    """Nobody waits for the stages."""


def _told(job: Job, config: Config, report: Report, seconds: float) -> Result:
    overloads: dict[str, set[str]] = {}
    for group in report.groups:
        verdict = group.verdict
        outcome = f"{verdict.status}_{verdict.kind}" if verdict.kind else verdict.status
        if outcome != "native":
            overloads.setdefault(outcome, set()).add(group.op)
    complete = report.capture["complete"] is True
    last = report.problems[-1] if report.problems and not complete else None
    return Result(
        spec=job.spec,
        family=job.family,
        config=config,
        headline=report.headline,
        complete=complete,
        calls=report.totals["calls"],
        operators=report.totals["operators"],
        overloads={name: sorted(ops) for name, ops in sorted(overloads.items())},
        problem=last.kind if last else "",
        message=last.message if last else "",
        where=str(last.location) if last and last.location else "",
        stage="" if complete else "run",
        seconds=round(seconds, 1),
    )


def _failed(job: Job, config: Config, error: Exception, seconds: float = 0.0) -> Result:
    return Result(
        spec=job.spec,
        family=job.family,
        config=config,
        problem=type(error).__name__,
        message=getattr(error, "message", str(error)),
        where=getattr(error, "context", ""),
        stage=_STAGES.get(type(error), "run") if isinstance(error, OpcheckError) else "judge",
        seconds=round(seconds, 1),
    )
