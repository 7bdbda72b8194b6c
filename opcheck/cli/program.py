"""``opcheck run script.py``: a program as it is, on an emulated Mac."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from opcheck.cli import VERBS, output
from opcheck.cli.audit import _Audit, _flag, _for_terminal, _writable, release_of, system_of
from opcheck.emulator.parent import run
from opcheck.emulator.request import Outcome, RunRequest
from opcheck.errors import UsageError
from opcheck.files import write_text
from opcheck.gate import FAIL_ON, exit_code
from opcheck.model import Report
from opcheck.oplists.registrations import load
from opcheck.report import FORMATS, format_of, render

_ON_A_MAC = (
    "this is a Mac, but the run is emulated: its GPU is not used, and nothing is observed on it"
)


@click.command(
    "run",
    cls=_Audit,
    help=VERBS["run"],
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="The flags of opcheck come before the program; what follows it are its own arguments. "
    "The program's stdout is its own: the report goes to stderr, or to --output (- is stdout). "
    "Each flag has a variable (--fail-on: OPCHECK_FAIL_ON).",
)
@_flag("--torch", metavar="RELEASE", help="Emulate this release.  [default: the newest list]")
@_flag("--macos", metavar="VERSION", help="The Mac's macOS.  [default: the newest known]")
@_flag("--fallback/--no-fallback", default=False, help="PYTORCH_ENABLE_MPS_FALLBACK=1 is set.")
@click.option("-m", "module", metavar="MODULE", default="", help="Run a module, as python -m does.")
@_flag(
    "--format",
    "-f",
    "format_name",
    type=click.Choice(tuple(FORMATS)),
    help="Format of the report.  [default: by the suffix of --output, else text]",
)
@_flag(
    "--output",
    "-o",
    "output_path",
    default="",
    show_default=False,
    metavar="FILE",
    help="Write the report there, not to stderr; - is stdout.",
)
@_flag(
    "--fail-on",
    type=click.Choice(tuple(FAIL_ON)),
    default="unsupported",
    help="Exit with 1 for this and worse; unsupported: whatever raises on the target.",
)
@_flag("--strict", is_flag=True, help="Exit with 3 if any call is unknown.")
@_flag("--quiet", "-q", is_flag=True, help="No report on stderr, where the run found nothing.")
@_flag("--verbose", "-v", is_flag=True, help="Nothing cut in the text.")
@_flag(
    "--color",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    help="Colour the text; auto: on a terminal, unless NO_COLOR is set.",
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT [ARGUMENTS]...")
def command(
    *,
    torch: str | None,
    macos: str | None,
    fallback: bool,
    module: str,
    format_name: str | None,
    output_path: str,
    fail_on: str,
    strict: bool,
    quiet: bool,
    verbose: bool,
    color: str,
    program: Sequence[str],
) -> int:
    """Run the program, write the report, return the exit code."""
    lists = load()
    line = release_of(torch, lists)
    system = system_of(macos, line, lists)
    name, arguments = _program(module, program)
    path = _writable(output_path) if output_path not in {"", "-"} else None
    request = RunRequest(
        program=name,
        is_module=bool(module),
        arguments=tuple(arguments),
        torch=str(line),
        macos=str(system),
        cpu_fallback=fallback,
    )
    if sys.platform == "darwin":
        output.note(_ON_A_MAC)
    outcome = run(request)
    report = outcome.report
    code = exit_code(report, fail_on=fail_on, strict=strict)
    format_name = format_name or (format_of(output_path) if path else None) or "text"
    if path:
        write_text(path, render(report, format_name))
        output.note(f"{report.headline}; the report is in {output_path}")
    elif output_path == "-":
        output.emit(render(report, format_name))
    elif not quiet or code:
        click.echo(_text(report, format_name, color=color, full=verbose), err=True)
    output.step_summary(report, format_name)
    if outcome.exit_code:
        output.note(_ended(outcome))
    return code


def _program(module: str, program: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The script or module, and its own arguments.

    Raises:
        UsageError: no program, or no such file.
    """
    if module:
        return module, program
    if not program:
        raise UsageError(
            "no program to run", context="opcheck run", hint="opcheck run train.py, or -m package"
        )
    if not Path(program[0]).is_file():
        raise UsageError(
            f"no such file: {program[0]}",
            context="opcheck run",
            hint="name a Python file, or a module with -m; opcheck's own flags come before it",
        )
    return program[0], program[1:]


def _text(report: Report, format_name: str, *, color: str, full: bool) -> str:
    if format_name != "text":
        return render(report, format_name)
    wanted = color == "always" or (color == "auto" and output.color_wanted(color))
    return _for_terminal(report, color=wanted, full=full)


def _ended(outcome: Outcome) -> str:
    return f"the program itself ended with exit code {outcome.exit_code}"
