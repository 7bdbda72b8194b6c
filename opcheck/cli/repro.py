"""``opcheck repro``: a finding as the smallest program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opcheck.cli import VERBS, capture_options, flags, output, output_formats
from opcheck.common.errors import UsageError
from opcheck.common.sanitize import for_log

if TYPE_CHECKING:
    from opcheck.model.records import Report
    from opcheck.project.repro.check import Tried
    from opcheck.project.repro.chosen import Chosen

_SUFFIXES = {".json", ".yaml", ".yml"}
EPILOG = (
    "SOURCE is a report that opcheck audit or opcheck run wrote (-o report.json), or a model to audit. WHICH is the number "
    "of a finding, a rule (OC102) or an operator; without it the findings are listed."
)
PARAMETERS = capture_options.borrowed(
    "torch", "macos", "fallback", *capture_options.CAPTURING, *capture_options.SHOWING
)


@click.command("repro", help=VERBS["repro"], params=[*PARAMETERS], epilog=EPILOG)
@click.argument("source")
@click.argument("which", required=False)
@flags.output("Write it there, not to stdout.")
def command(source: str, which: str | None, output_path: str, **captured: Any) -> int:
    """Write the program; 3 where it could not be checked."""
    chosen = chosen_finding(source, which, **captured)
    if chosen is None:
        return 0
    made = tried(chosen)
    output_formats.put(made.text, output_path)
    return told(made)


def chosen_finding(source: str, which: str | None, **captured: Any) -> Chosen | None:
    """The finding that was asked for; None: they were listed.

    Raises:
        UsageError: there is no such finding, or it is about no one call.
    """
    from opcheck.project.repro.chosen import choose

    report = _report(source, **captured)
    if which is None:
        output.emit(for_log(_listing(report)))
        return None
    chosen = choose(report, which)
    if chosen.calls is None:
        raise UsageError(
            f"finding {chosen.number} ({chosen.finding.rule}) is about no one call that the report keeps",
            context=chosen.finding.message,
            hint="opcheck repro SOURCE lists those with a program; a report of an older opcheck has none: "
            "write it again",
        )
    return chosen


def _report(source: str, **captured: Any) -> Report:
    from opcheck.model.sanitized import sanitized
    from opcheck.project.repro.chosen import read

    if Path(source).suffix in _SUFFIXES:
        return read(source)
    from opcheck.cli import parse_options
    from opcheck.data.registrations import load
    from opcheck.judge import pipeline

    lists = load()
    line = parse_options.release_of(captured.pop("torch"), lists)
    system = parse_options.system_of(captured.pop("macos"), line, lists)
    fallback = captured.pop("fallback")
    shown = {name: captured.pop(name) for name in capture_options.SHOWING}
    request = parse_options.request_of(source, line, system, fallback=fallback, **captured)
    with output.progress(**shown) as progress:
        made = pipeline.audit(request, lists, progress=progress, show_output=shown["verbose"])
    return sanitized(made)


def _listing(report: Report) -> str:
    """The findings by their numbers, and which of them a program can be written for."""
    from opcheck.project.repro.chosen import every

    lines = [f"{report.model}: torch {report.target.torch}, macOS {report.target.macos}"]
    for choice in every(report):
        mark = " " if choice.calls else "-"
        message = choice.finding.message
        shown = message if len(message) <= 78 else f"{message[:75]}..."
        lines.append(f"{choice.number:>4}{mark} {choice.finding.rule:<6}  {shown}")
    lines.append("(-: about no one call)" if "-" in "".join(x[4:5] for x in lines[1:]) else "")
    return "\n".join(filter(None, lines))


def tried(chosen: Chosen) -> Tried:
    """The program for a finding, tried."""
    from opcheck.project.repro.check import make

    with output.progress(quiet=False, verbose=False) as progress:
        if progress is not None:
            progress("trying the program on the CPU and on an emulated Mac")
        return make(chosen)


def told(made: Tried) -> int:
    """Say on stderr what came of trying it; the exit code."""
    for note in made.notes:
        output.note(note)
    return 0 if made.checked else output_formats.COULD_NOT_TELL
