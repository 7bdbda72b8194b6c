"""Audits one model on its targets, except where an earlier run's report is cached."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import OpcheckError
from opcheck.common.versions import Target
from opcheck.data.registrations import load
from opcheck.features.gate.records import Failed
from opcheck.model.records import Record, Report
from opcheck.report_cache import Cache, dependencies


class Job(Record, frozen=True, kw_only=True):
    """The work for one model."""

    name: str
    #: its target is not looked at.
    request: CaptureRequest
    targets: tuple[Target, ...]
    #: the folder of the cache; empty: none.
    cache: str = ""
    #: pass on what the model prints, to stderr.
    show_output: bool = False
    #: a folder for temporary files, which the caller removes; empty: the system's.
    scratch: str = ""


class Result(Record, frozen=True, kw_only=True):
    """The result of a job: a report for each target, or the reason why there are none."""

    reports: tuple[Report, ...] = ()
    failed: Failed | None = None
    #: how many of the reports come from the cache
    kept: int = 0
    #: why the new reports could not be cached; empty: they were.
    not_kept: str = ""


def kept(job: Job) -> Result | None:
    """Return the result if all reports of the job are cached."""
    if not job.cache:
        return None
    cache = Cache(Path(job.cache))
    cached = [cache.find(job.request.on(target)) for target in job.targets]
    reports = tuple(report for report in cached if report is not None)
    return Result(reports=reports, kept=len(reports)) if len(reports) == len(cached) else None


def work(job: Job, say: Callable[[str], None]) -> Result:
    """Return the reports of a job; a failure of the model is part of the result."""
    cache = Cache(Path(job.cache)) if job.cache else None
    asked = {target: job.request.on(target) for target in job.targets}
    reports = {target: cache.find(request) for target, request in asked.items()} if cache else {}
    missing = [target for target in job.targets if reports.get(target) is None]
    not_kept = ""
    if missing:
        try:
            audited, not_kept = _audited(job, missing, cache, say)
        except OpcheckError as error:
            return Result(failed=failed(error))
        reports = {**reports, **dict(zip(missing, audited, strict=True))}
    complete = tuple(report for target in job.targets if (report := reports[target]) is not None)
    return Result(reports=complete, kept=len(job.targets) - len(missing), not_kept=not_kept)


def failed(error: OpcheckError) -> Failed:
    """Return the three lines of an error without this machine's folder, so that reports are equal on all machines."""
    here = str(Path.cwd())
    what, where, hint = (
        text.replace(here, ".") for text in (error.message, error.context, error.hint)
    )
    return Failed(message=what, context=where, hint=hint)


def _audited(
    job: Job, targets: list[Target], cache: Cache | None, say: Callable[[str], None]
) -> tuple[list[Report], str]:
    """Audit the model; return the reports, and why they could not be cached.

    Raises:
        OpcheckError: as the audit does.
    """
    from opcheck.orchestrator import audit_targets

    with tempfile.TemporaryDirectory(prefix="opcheck-", dir=job.scratch or None) as folder:
        notes = Path(folder) / "notes.jsonl"
        request = job.request.on(targets[0])
        request = msgspec.structs.replace(request, notes=str(notes) if cache else "")
        audited = audit_targets(request, targets, load(), progress=say, show_output=job.show_output)
        # What was drawn is not shown, and is most of it.
        reports = [msgspec.structs.replace(report, graph=()) for report in audited]
        if cache is None:
            return reports, ""
        read = dependencies(notes, job.request)
    for target, report in zip(targets, reports, strict=True):
        cache.keep(job.request.on(target), report, read)
    return reports, read.unknowable
