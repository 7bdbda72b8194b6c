"""``opcheck audit MODEL``: what each operator call of a model does on the target Mac."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import click
import msgspec

from opcheck.capture.request import CaptureOptions, CaptureRequest, request_of
from opcheck.cli import config, streams
from opcheck.cli.options import ProgressOptions, ReportOptions, verb
from opcheck.common.errors import CaptureError
from opcheck.common.text import plural
from opcheck.common.versions import Target
from opcheck.data.registrations import OpLists, load
from opcheck.data.targets import TargetOptions
from opcheck.judge.memory.macs import MEMORY
from opcheck.judge.policy import FINDINGS, PASSED, Policy, judged
from opcheck.model.records import Report


@verb(
    "audit",
    table="",
    epilog="MODEL is package.module:attribute, file.py:attribute, file.pt2, transformers:BertModel, "
    "timm:resnet50, torchvision:..., diffusers:..., a model of a hub (org/name, hf:name@revision) "
    "or a folder with its config.json. "
    "Each flag has a variable (--fail-on: OPCHECK_FAIL_ON) and a key in [tool.opcheck] of "
    "pyproject.toml (fail-on). A flag wins over its variable, the variable over the key.",
)
@click.argument("model")
def command(
    *,
    model: str,
    target: TargetOptions,
    capture: CaptureOptions,
    memory: Annotated[int | None, MEMORY] = None,
    policy: Policy,
    output: ReportOptions,
    progress: ProgressOptions,
) -> int:
    """Audit the model, write the report, return the exit code."""
    ignores = config.ignores(Path.cwd())
    report = audited(model, target, capture, progress, memory=memory or 0)
    report = msgspec.structs.replace(report, findings=ignores.marked(report.findings, model=model))
    output.deliver_report(report, full=progress.verbose)
    if not report.capture.complete:
        streams.note(_broke_off(report))
    for expired in ignores.expired():
        streams.note(expired)
    judgement = judged(report, policy)
    if policy.limits and judgement.code == FINDINGS:
        streams.note(f"fails: {'; '.join(judgement.reasons)}")
    unknown = report.totals["unknown"]
    if judgement.code == PASSED and unknown:
        streams.note(
            f"this result does not vouch for {plural(unknown, 'call')}: nothing is known about "
            f"{'it' if unknown == 1 else 'them'} (--strict makes that exit with 3)"
        )
    return judgement.code


def audited(
    model: str,
    target: TargetOptions,
    capture: CaptureOptions,
    progress: ProgressOptions,
    *,
    memory: int = 0,
) -> Report:
    """Audit a model with progress on stderr; ``memory`` is the Mac's memory in GB.

    Raises:
        OpcheckError: as an audit does.
    """
    lists = load()
    request = request_of(model, target.target(lists), capture)

    from opcheck.judge.pipeline import audit

    with progress.shown() as say:
        return audit(request, lists, progress=say, show_output=progress.verbose, mac=memory)


def audited_on(
    targets: Sequence[Target], request: CaptureRequest, lists: OpLists, progress: ProgressOptions
) -> tuple[Report, ...]:
    """Audit a model on each target, in their order, with progress on stderr.

    Raises:
        OpcheckError: as an audit does.
    """
    from opcheck.judge.audit_targets import audit_targets

    with progress.shown() as say:
        return audit_targets(request, targets, lists, progress=say, show_output=progress.verbose)


def _broke_off(report: Report) -> str:
    """Return the error for a report that must not pass for a complete one."""
    problem = report.problems[-1]
    where = " ".join(part for part in (report.model, problem.line) if part)
    return str(
        CaptureError(
            problem.message,
            context=where,
            hint="the report holds only what ran before this; what follows was not judged",
        )
    )
