"""Runs the variants in the child process.  Imports no torch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import msgspec

from opcheck.capture.parent import ask
from opcheck.capture.request import CaptureRequest
from opcheck.compiler.plan import CompileRequest, Plan
from opcheck.compiler.records import Compiled

#: seconds for importing, loading and reporting, besides the variants
_REST = 120.0


def compile_variants(
    request: CaptureRequest,
    plan: Plan,
    *,
    progress: Callable[[str], None] | None = None,
    show_output: bool = False,
) -> Compiled:
    """Try the plan's variants on the request's model, in a child process.

    Raises:
        ModelLoadError, InputError: as the child says.
        CaptureError: the child died, was killed for its time, or torch cannot be imported.
    """
    # The child ends without its exit handlers, and may be killed.
    with tempfile.TemporaryDirectory(prefix="opcheck-", ignore_cleanup_errors=True) as scratch:
        plan = msgspec.structs.replace(plan, scratch=scratch)
        limit = _REST + len(plan.variants) * plan.seconds
        capture = msgspec.structs.replace(request, time_limit=limit)
        return ask(
            "opcheck.compiler.run:answer",
            Compiled,
            CompileRequest(capture=capture, plan=plan),
            capture,
            device=plan.device,
            progress=progress,
            show_output=show_output,
        )
