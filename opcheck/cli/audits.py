"""Audits a model for a verb, with progress on stderr, and selects a finding of it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from opcheck.capture.request import CaptureOptions, CaptureRequest, find_source, request_of
from opcheck.cli import streams
from opcheck.cli.options import COULD_NOT_TELL, ProgressOptions, only
from opcheck.common.errors import UsageError
from opcheck.common.sanitize import for_log
from opcheck.common.versions import Target
from opcheck.data.registrations import OpLists, load
from opcheck.data.targets import TargetOptions

if TYPE_CHECKING:
    from opcheck.model.records import Report
    from opcheck.reproducer.chosen import ChosenFinding
    from opcheck.reproducer.program_check import TriedProgram


_SUFFIXES = {".json", ".yaml", ".yml"}
EPILOG = (
    "SOURCE is a report that opcheck audit or opcheck run wrote (-o report.json), or a model to "
    "audit. WHICH is the number "
    "of a finding, a rule (OC102) or an operator; without it the findings are listed."
)
WRITTEN = only(path="Output file.  [default: stdout]")


def audit_with_progress(
    model: str, target: TargetOptions, capture: CaptureOptions, progress: ProgressOptions
) -> Report:
    """Audit a model with progress on stderr.

    Raises:
        OpcheckError: as an audit does.
    """
    lists = load()
    request = request_of(find_source(model, capture), target.target(lists), capture)

    from opcheck.orchestrator import audit
    from opcheck.worker.protocol import ProcessDisplay

    with progress.shown() as say:
        report = audit(request, lists, display=ProcessDisplay(say, progress.verbose))
    return replace(report, newest=not target.torch)


def audit_on_targets(
    targets: Sequence[Target], request: CaptureRequest, lists: OpLists, progress: ProgressOptions
) -> tuple[Report, ...]:
    """Audit a model on each target, in their order, with progress on stderr.

    Raises:
        OpcheckError: as an audit does.
    """
    from opcheck.orchestrator import audit_targets
    from opcheck.worker.protocol import ProcessDisplay

    with progress.shown() as say:
        return audit_targets(request, targets, lists, display=ProcessDisplay(say, progress.verbose))


def choose_finding(
    source: str, which: str | None, target: TargetOptions, capture: CaptureOptions, progress: ProgressOptions
) -> ChosenFinding | None:
    """Return the selected finding, or None after listing all findings.

    Raises:
        UsageError: there is no such finding, or it is about no one call.
    """
    from opcheck.model.saved import sanitize_report
    from opcheck.reproducer.chosen import choose, read

    saved = Path(source).suffix in _SUFFIXES
    report = read(source) if saved else sanitize_report(audit_with_progress(source, target, capture, progress))
    if which is None:
        words = [source] if saved else [source, *report.capture.flags]
        if target.torch or target.macos:
            words += ["--torch", report.target.torch, "--macos", report.target.macos]
        streams.emit(for_log(_listing(report, words)))
        return None
    chosen = choose(report, which)
    if chosen.calls is None:
        problem = f"finding {chosen.number} ({chosen.finding.rule}) is not about a single call of the report"
        hint = "opcheck repro SOURCE lists those with a program; a report of an older opcheck has none: write it again"
        raise UsageError(problem, context=chosen.finding.message, hint=hint)
    return chosen


def _listing(report: Report, words: Sequence[str]) -> str:
    """List the findings by number, mark those that a program can show, and end with the command for the first.

    Args:
        report: The report.
        words: The source of the report, and the flags that select it again.
    """
    from opcheck.render.summary import next_command
    from opcheck.reproducer.chosen import every

    choices = every(report)
    lines = [f"{report.model}: torch {report.target.torch}, macOS {report.target.macos}"]
    for choice in choices:
        mark = " " if choice.calls else "-"
        message = choice.finding.message
        shown = message if len(message) <= 78 else f"{message[:75]}..."
        lines.append(f"{choice.number:>4}{mark} {choice.finding.rule:<6}  {shown}")
    lines += ["(-: not about a single call)"] if not all(choice.calls for choice in choices) else []
    first = next((str(choice.number) for choice in choices if choice.calls), "")
    verb = click.get_current_context().info_name or ""
    command = shlex.join(["opcheck", verb, *words, first]) if first else next_command(report)
    return "\n".join((*lines, f"next  {command}"))


def try_program(chosen: ChosenFinding) -> TriedProgram:
    """Write the program for a finding and try it."""
    from opcheck.reproducer.program_check import make

    with ProgressOptions().shown() as progress:
        if progress is not None:
            progress("trying the program on the CPU and on an emulated Mac")
        return make(chosen)


def exit_code(made: TriedProgram) -> int:
    """Return the exit code of a program that was tried, and print the result of the try to stderr."""
    for note in made.notes:
        streams.note(note)
    return 0 if made.checked else COULD_NOT_TELL
