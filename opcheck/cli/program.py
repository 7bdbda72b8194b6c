"""``opcheck run script.py``: a program as it is, observed on a Mac's GPU, or on an emulated Mac."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from opcheck.cli import VERBS, output
from opcheck.cli.audit import _Audit, _flag, _for_terminal, _writable, release_of, system_of
from opcheck.errors import UsageError
from opcheck.files import write_text
from opcheck.gate import FAIL_ON, exit_code
from opcheck.model import Report
from opcheck.oplists.registrations import load
from opcheck.report import FORMATS, format_of, render

_REAL = "on a Mac the run is observed, with the torch and the macOS that are there"


@click.command(
    "run",
    cls=_Audit,
    help=VERBS["run"],
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="The flags of opcheck come before the program; what follows it are its own arguments. "
    "The program's stdout is its own: the report goes to stderr, or to --output (- is stdout). "
    "Each flag has a variable (--fail-on: OPCHECK_FAIL_ON).",
)
@_flag(
    "--emulate",
    is_flag=True,
    help="On a Mac too, run on an emulated one; elsewhere every run is emulated.",
)
@_flag("--torch", metavar="RELEASE", help="Emulate this release.  [default: the newest list]")
@_flag("--macos", metavar="VERSION", help="The emulated Mac's macOS.  [default: the newest known]")
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
@_flag(
    "--strict",
    is_flag=True,
    help="The first CPU fallback ends the program and exits with 1; exit with 3 if any call is unknown.",
)
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
    emulate: bool,
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
    path = _writable(output_path) if output_path not in {"", "-"} else None
    name, arguments = _program(module, program)
    if sys.platform == "darwin" and not emulate:
        ended = _observed(name, arguments, module, (torch, macos), fallback=fallback, strict=strict)
    else:
        ended = _emulated(name, arguments, module, (torch, macos), fallback=fallback, strict=strict)
    report, ended_with = ended
    fail_on = "fallback" if strict and fail_on != "never" else fail_on
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
    if ended_with:
        output.note(f"the program itself ended with exit code {ended_with}")
    return code


def _emulated(
    name: str,
    arguments: Sequence[str],
    module: str,
    asked: tuple[str | None, str | None],
    *,
    fallback: bool,
    strict: bool,
) -> tuple[Report, int]:
    """The report of the emulated run, and the program's own exit code."""
    from opcheck.emulator.parent import run  # noqa: PLC0415  (one of two)
    from opcheck.emulator.request import RunRequest  # noqa: PLC0415

    lists = load()
    line = release_of(asked[0], lists)
    request = RunRequest(
        program=name,
        is_module=bool(module),
        arguments=tuple(arguments),
        torch=str(line),
        macos=str(system_of(asked[1], line, lists)),
        cpu_fallback=fallback,
        strict=strict,
    )
    outcome = run(request)
    return outcome.report, outcome.exit_code


def _observed(
    name: str,
    arguments: Sequence[str],
    module: str,
    asked: tuple[str | None, str | None],
    *,
    fallback: bool,
    strict: bool,
) -> tuple[Report, int]:
    """The report of the run on this Mac's GPU, and the program's own exit code.

    Raises:
        UsageError: another release or macOS was asked for than the Mac has.
    """
    from opcheck.observe.parent import run  # noqa: PLC0415  (one of two)
    from opcheck.observe.request import ObserveRequest  # noqa: PLC0415

    if any(asked):
        raise UsageError(
            _REAL, context="opcheck run --torch, --macos", hint="leave them out, or add --emulate"
        )
    request = ObserveRequest(
        program=name,
        is_module=bool(module),
        arguments=tuple(arguments),
        cpu_fallback=fallback,
        strict=strict,
    )
    return run(request, load())


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
