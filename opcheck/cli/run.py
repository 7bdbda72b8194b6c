"""``opcheck run script.py``: a program as it is, observed on a Mac's GPU, or on an emulated Mac."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from opcheck.cli import VERBS, flags, output, output_formats, parse_options
from opcheck.common.errors import UsageError
from opcheck.common.files import is_file
from opcheck.data.registrations import load
from opcheck.judge.policy import FAIL_ON, exit_code
from opcheck.model.records import Report
from opcheck.render import FORMATS, summary

_REAL = "on a Mac the run is observed, with the torch and the macOS that are there"


@click.command(
    "run",
    cls=flags.Configured,
    help=VERBS["run"],
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="The flags of opcheck come before the program; what follows it are its own arguments. "
    "The program's stdout is its own: the report goes to stderr, or to --output (- is stdout). "
    "Each flag has a variable (--fail-on: OPCHECK_FAIL_ON).",
)
@flags.flag(
    "--emulate",
    is_flag=True,
    help="On a Mac too, run on an emulated one; elsewhere every run is emulated.",
)
@flags.torch("Emulate this release.  [default: the newest list]")
@flags.macos("The emulated Mac's macOS.  [default: the newest known]")
@flags.fallback
@click.option("-m", "module", metavar="MODULE", default="", help="Run a module, as python -m does.")
@flags.form(FORMATS)
@flags.output("Write the report there, not to stderr; - is stdout.")
@flags.fail_on(FAIL_ON, "unsupported", "; unsupported: whatever raises on the target.")
@flags.strict(
    "The first CPU fallback ends the program and exits with 1; exit with 3 if any call is unknown."
)
@flags.quiet("In place of a report as text, write its headline alone.")
@flags.verbose()
@flags.color
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
    name, arguments = _program(module, program)
    if sys.platform == "darwin" and not emulate:
        ended = _observed(name, arguments, module, (torch, macos), fallback=fallback, strict=strict)
    else:
        ended = _emulated(name, arguments, module, (torch, macos), fallback=fallback, strict=strict)
    report, ended_with = ended
    fail_on = "fallback" if strict and fail_on != "never" else fail_on
    code = exit_code(report, fail_on=fail_on, strict=strict)
    name = output_formats.chosen(format_name, output_path, FORMATS)
    if output_path:
        output_formats.deliver_report(report, name, output_path, color=color, full=verbose)
    else:
        if quiet and name == "text":
            output.note(summary.headline(report))
        else:
            output.note_report(output_formats.shown(report, name, color=color, full=verbose))
        output.step_summary(report, name)
    if ended_with and not quiet:
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
    from opcheck.device.emulator.parent import run
    from opcheck.device.emulator.request import RunRequest

    lists = load()
    line = parse_options.release_of(asked[0], lists)
    request = RunRequest(
        program=name,
        is_module=bool(module),
        arguments=tuple(arguments),
        torch=str(line),
        macos=str(parse_options.system_of(asked[1], line, lists)),
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
    from opcheck.device.observe.parent import run
    from opcheck.device.observe.request import ObserveRequest

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
    if not is_file(program[0]):
        raise UsageError(
            f"no such file: {program[0]}",
            context="opcheck run",
            hint="name a Python file, or a module with -m; opcheck's own flags come before it",
        )
    return program[0], program[1:]
