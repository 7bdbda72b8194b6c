"""Targets as ``--from`` and ``--to`` name them, and the reports of a model on several targets."""

from __future__ import annotations

from collections.abc import Sequence

from opcheck.capture.request import CaptureRequest
from opcheck.cli import output, parse_options
from opcheck.common.errors import UsageError
from opcheck.common.versions import Target
from opcheck.data.registrations import OpLists
from opcheck.model.records import Report

_KEYS = ("torch", "macos", "fallback")
_WORDS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def parse(text: str, flag: str, lists: OpLists) -> Target:
    """``torch=2.9,macos=14``, with ``fallback=1`` where the variable is set; what is left out is the newest.

    Raises:
        UsageError: no such form.
        UnknownTargetError, NewerThanListsError: no such release or macOS.
    """
    values: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key not in _KEYS or not equals or not value or key in values:
            raise UsageError(
                f"not a target: {text!r}",
                context=f"{flag}, at {part.strip()!r}",
                hint="write it as torch=2.9,macos=14 (and fallback=1 for the variable)",
            )
        values[key] = value
    fallback = values.get("fallback", "0").lower()
    if fallback not in _WORDS:
        raise UsageError(
            f"not a yes or no: {fallback!r}", context=f"{flag} {text}", hint="write fallback=1"
        )
    try:
        line = parse_options.release_of(values.get("torch"), lists)
        system = parse_options.system_of(values.get("macos"), line, lists)
    except UsageError as error:
        error.context = f"{flag} {text}"
        raise
    return Target(torch=line, macos=system, cpu_fallback=_WORDS[fallback])


def reports(
    request: CaptureRequest,
    targets: Sequence[Target],
    lists: OpLists,
    *,
    quiet: bool,
    verbose: bool,
) -> tuple[Report, ...]:
    """The model audited on each target, in their order, with progress on stderr.

    Raises:
        OpcheckError: as an audit does.
    """
    from opcheck.judge.audit_targets import audit_many

    with output.progress(quiet=quiet, verbose=verbose) as progress:
        return audit_many(request, targets, lists, progress=progress, show_output=verbose)
