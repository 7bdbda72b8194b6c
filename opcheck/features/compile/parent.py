"""Runs the variants in the child process.  Imports no torch."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from opcheck.capture.parent import ask
from opcheck.capture.request import CaptureRequest
from opcheck.common import documents
from opcheck.common.errors import CaptureError
from opcheck.features.compile.plan import TRIED, CompileRequest, Plan
from opcheck.features.compile.records import Compiled, Failure, Tried, Variant
from opcheck.worker.platform import CAN_FORK, SignalledError, ended_by

#: seconds for importing, loading and reporting, besides the variants
_REST = 120.0


def compile_variants(
    request: CaptureRequest,
    plan: Plan,
    *,
    progress: Callable[[str], None] | None = None,
    show_output: bool = False,
) -> Compiled:
    """Try the plan's variants on the request's model, in a child process; of one that is ended, return what it has.

    Raises:
        ModelLoadError, InputError: as the child says.
        CaptureError: the child died, was killed for its time, or torch cannot be imported.
    """
    # The child ends without its exit handlers, and may be killed.
    with tempfile.TemporaryDirectory(prefix="opcheck-", ignore_cleanup_errors=True) as scratch:
        plan = msgspec.structs.replace(plan, scratch=scratch)

        def tried(variants: tuple[Variant, ...]) -> Compiled:
            part = msgspec.structs.replace(plan, variants=variants)
            limit = _REST + len(variants) * plan.seconds
            capture = msgspec.structs.replace(request, time_limit=limit)
            return ask(
                "opcheck.features.compile.child.run:answer",
                Compiled,
                CompileRequest(capture=capture, plan=part),
                capture,
                device=plan.device,
                progress=progress,
                show_output=show_output,
            )

        if not CAN_FORK and len(plan.variants) > 1:
            return _joined([_alone(tried, variant) for variant in plan.variants])
        try:
            return tried(plan.variants)
        except (KeyboardInterrupt, SignalledError, CaptureError) as error:
            compiled = _tried_so_far(Path(scratch) / TRIED)
            if compiled is None:
                raise
            ended = error.message if isinstance(error, CaptureError) else ended_by(error)
            lacking = len(plan.variants) - len(compiled.tried)
            return msgspec.structs.replace(compiled, ended=ended, lacking=lacking)


def _tried_so_far(path: Path) -> Compiled | None:
    """Return what a process that was ended had tried; None where it had not come so far."""
    try:
        return msgspec.json.decode(documents.read(path), type=Compiled)
    except (documents.DocumentError, msgspec.MsgspecError):
        return None


def _alone(tried: Callable[[tuple[Variant, ...]], Compiled], variant: Variant) -> Compiled | Tried:
    """Try a variant in a process that it may end; the model is loaded there anew."""
    try:
        return tried((variant,))
    except CaptureError as error:
        failure = Failure(kind="died", message=error.message)
        return Tried(variant=variant, outcome="died", failure=failure)


def _joined(parts: Sequence[Compiled | Tried]) -> Compiled:
    """Join the outcomes of single variants.

    Raises:
        CaptureError: every variant's process ended.
    """
    whole = next((part for part in parts if isinstance(part, Compiled)), None)
    if whole is None:
        raise CaptureError(
            "the process of every variant ended before it was done",
            context="opcheck compile",
            hint="run again with -v to see what the processes printed",
        )
    each = [part.tried if isinstance(part, Compiled) else (part,) for part in parts]
    return msgspec.structs.replace(whole, tried=tuple(itertools.chain(*each)))
