"""Runs the variants in the child process.  Imports no torch."""

import itertools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from opcheck.capture.parent import ask
from opcheck.capture.request import CaptureRequest
from opcheck.common import documents
from opcheck.common.errors import CaptureError
from opcheck.features.compile.compile_records import (
    CompiledVariants,
    CompileFailure,
    TriedVariant,
    Variant,
)
from opcheck.features.compile.plan import TRIED, CompilePlan, CompileRequest
from opcheck.worker.platform import CAN_FORK, SignalledError, ended_by

#: seconds for importing, loading and reporting, besides the variants
_REST = 120.0


def compile_variants(
    request: CaptureRequest,
    plan: CompilePlan,
    *,
    progress: Callable[[str], None] | None = None,
    show_output: bool = False,
) -> CompiledVariants:
    """Try the plan's variants on the request's model in a child process; if it is ended, return the results so far.

    Raises:
        ModelLoadError, InputError: the child raises it.
        CaptureError: the child died, was killed for its time, or torch cannot be imported.
    """
    # The child ends without its exit handlers, and may be killed.
    with tempfile.TemporaryDirectory(prefix="opcheck-", ignore_cleanup_errors=True) as scratch:
        plan = replace(plan, scratch=scratch)

        def try_variants(variants: tuple[Variant, ...]) -> CompiledVariants:
            part = replace(plan, variants=variants)
            limit = _REST + len(variants) * plan.seconds
            capture = replace(request, time_limit=limit)
            return ask(
                "opcheck.features.compile.child.try_plan:answer",
                CompiledVariants,
                CompileRequest(capture=capture, plan=part),
                capture,
                device=plan.device,
                progress=progress,
                show_output=show_output,
            )

        if not CAN_FORK and len(plan.variants) > 1:
            return _join([_alone(try_variants, variant) for variant in plan.variants])
        try:
            return try_variants(plan.variants)
        except (KeyboardInterrupt, SignalledError, CaptureError) as error:
            compiled = _tried_so_far(Path(scratch) / TRIED)
            if compiled is None:
                raise
            ended = error.message if isinstance(error, CaptureError) else ended_by(error)
            lacking = len(plan.variants) - len(compiled.tried)
            return replace(compiled, ended=ended, lacking=lacking)


def _tried_so_far(path: Path) -> CompiledVariants | None:
    """Return what a process that was ended had tried; None where it had not come so far."""
    try:
        return msgspec.json.decode(documents.read(path), type=CompiledVariants)
    except (documents.DocumentError, msgspec.MsgspecError):
        return None


def _alone(
    try_variants: Callable[[tuple[Variant, ...]], CompiledVariants], variant: Variant
) -> CompiledVariants | TriedVariant:
    """Try a variant in a process that it may end; that process loads the model again."""
    try:
        return try_variants((variant,))
    except CaptureError as error:
        failure = CompileFailure(kind="died", message=error.message)
        return TriedVariant(variant=variant, outcome="died", failure=failure)


def _join(parts: Sequence[CompiledVariants | TriedVariant]) -> CompiledVariants:
    """Join the outcomes of single variants.

    Raises:
        CaptureError: every variant's process ended.
    """
    whole = next((part for part in parts if isinstance(part, CompiledVariants)), None)
    if whole is None:
        raise CaptureError(
            "the process of every variant ended early",
            context="opcheck compile",
            hint="run again with -v to see what the processes printed",
        )
    each = [part.tried if isinstance(part, CompiledVariants) else (part,) for part in parts]
    return replace(whole, tried=tuple(itertools.chain(*each)))
