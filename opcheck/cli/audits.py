"""Audits a model for a verb, with progress on stderr."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from opcheck.capture.request import CaptureOptions, CaptureRequest, request_of
from opcheck.cli.options import ProgressOptions
from opcheck.common.versions import Target
from opcheck.data.registrations import OpLists, load
from opcheck.data.targets import TargetOptions
from opcheck.model.records import Report


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

    from opcheck.orchestrator import audit

    with progress.shown() as say:
        report = audit(request, lists, progress=say, show_output=progress.verbose, mac=memory)
    return msgspec.structs.replace(report, newest=not target.torch)


def audited_on(
    targets: Sequence[Target], request: CaptureRequest, lists: OpLists, progress: ProgressOptions
) -> tuple[Report, ...]:
    """Audit a model on each target, in their order, with progress on stderr.

    Raises:
        OpcheckError: as an audit does.
    """
    from opcheck.orchestrator import audit_targets

    with progress.shown() as say:
        return audit_targets(request, targets, lists, progress=say, show_output=progress.verbose)
