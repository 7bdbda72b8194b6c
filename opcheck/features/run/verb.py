"""``opcheck run``: a script or a notebook as it is, observed on a Mac's GPU, or on an emulated Mac."""

import contextlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import click
from msgspec.structs import replace

from opcheck.capture.request import CaptureOptions
from opcheck.cli import streams
from opcheck.cli.options import VERBOSE, ProgressOptions, ReportOptions, but, flag, only, verb
from opcheck.common import documents, notebooks
from opcheck.common.errors import UsageError
from opcheck.common.files import describe_missing, is_file
from opcheck.data.registrations import load
from opcheck.data.targets import TargetOptions
from opcheck.judge.policy import Policy, exit_code
from opcheck.model.options import RUNNER, Option
from opcheck.model.records import Report
from opcheck.render import FORMATS, summary


@verb(
    "run", table="", takes=RUNNER, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT|NOTEBOOK [ARGUMENTS]...")
def command(
    *,
    program: Sequence[str],
    emulate: Annotated[bool, Option("Emulate a Mac on a Mac, too; other systems always emulate.")] = False,
    target: Annotated[
        TargetOptions,
        but(
            torch="Emulate this release.  [default: the newest list]",
            macos="The emulated Mac's macOS.  [default: the newest known]",
        ),
    ],
    capture: Annotated[CaptureOptions, only("exact")],
    kernels: Annotated[
        Literal["shadow", "replace"] | None,
        flag(
            "Also compute the calls with the release's own Metal kernels, and compare; =replace continues with their "
            "results.",
            metavar="[=replace]",
            choices=("shadow", "replace"),
            bare="shadow",
        ),
    ] = None,
    module: Annotated[str, flag("Run a module, as python -m does.", "-m", metavar="MODULE")] = "",
    output: Annotated[ReportOptions, but(path="Output file; - is stdout.  [default: stderr]")],
    policy: Annotated[
        Policy,
        only(
            "fail_on",
            strict="The first CPU fallback ends the program and exits with 1; exit with 3 if any call is unknown.",
        ),
    ],
    progress: Annotated[ProgressOptions, but(quiet="Write only the headline of a text report.", verbose=VERBOSE)],
) -> int:
    """Run the program, write the report, return the exit code."""
    name, arguments = _program(module, program)
    strict = policy.strict
    asked: dict[str, Any] = {"program": name, "is_module": bool(module)}
    asked |= {"arguments": tuple(arguments), "cpu_fallback": target.fallback, "strict": strict}
    asked |= ({"kernels": kernels} if kernels else {}) | ({"exact": True} if capture.exact else {})
    if behind := _flags_behind(name if not module else "", arguments):
        streams.note(behind)
    report, ended_with = (_observe if (sys.platform == "darwin" and not emulate) else _emulate)(target, asked)
    if behind:
        report = replace(report, not_checked=(*report.not_checked, behind))
    fail_on = "fallback" if strict and policy.fail_on != "never" else policy.fail_on
    if output.path:
        output.deliver_report(report, full=progress.verbose)
    else:
        kind = output.chosen(FORMATS)
        if progress.quiet and kind == "text":
            streams.note(summary.headline(report))
        else:
            streams.note_report(output.shown(report, full=progress.verbose))
        streams.step_summary(report, kind)
    if ended_with and not progress.quiet:
        streams.note(f"the program itself ended with exit code {ended_with}")
    if ended_with < 0:  # this process was asked to end, and the report has what was seen so far
        return 128 - ended_with
    return exit_code(report, fail_on=fail_on, strict=strict)


def _emulate(target: TargetOptions, asked: dict[str, Any]) -> tuple[Report, int]:
    """Run the program emulated; return its report and the program's own exit code."""
    from opcheck.device.emulator.emulated_run import run
    from opcheck.device.emulator.emulation_request import RunRequest

    mac = target.target(load())
    outcome = run(RunRequest(torch=str(mac.torch), macos=str(mac.macos), **asked))
    return outcome.report, outcome.exit_code


def _observe(target: TargetOptions, asked: dict[str, Any]) -> tuple[Report, int]:
    """Run the program on this Mac's GPU; return its report and the program's own exit code.

    Raises:
        UsageError: the flags name another release or macOS than the Mac's.
    """
    from opcheck.device.observe.observed_run import run
    from opcheck.device.observe.recording import ObserveRequest

    if target.torch or target.macos or asked.pop("exact", False):
        text, hint = "on a Mac the run uses this Mac's torch and macOS", "leave out both flags, or add --emulate"
        raise UsageError(text, context="opcheck run --torch, --macos", hint=hint)
    return run(ObserveRequest(**asked), load())


def _flags_behind(script: str, arguments: Sequence[str]) -> str:
    """Describe the arguments of the program that are flags of opcheck, unless the script's text has them; or empty."""
    own = {name for each in click.get_current_context().command.params for name in each.opts}
    flags = {word.partition("=")[0] for word in arguments if word.startswith("--")} & own
    text = ""
    if flags and script:
        with contextlib.suppress(documents.DocumentError):
            text = documents.read_text(script)
    if not (flags := {flag for flag in flags if not re.search(rf"{flag}\b", text)}):
        return ""
    names = ", ".join(sorted(flags))
    return (
        f"{names} behind the program went to the program, not to opcheck: "
        f"write opcheck run {names} ... before it, if they are meant for opcheck"
    )


def _program(module: str, program: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the script or module, and its own arguments.

    Raises:
        UsageError: no program, or no such file.
    """
    if module:
        return module, program
    if not program:
        raise UsageError("no program to run", context="opcheck run", hint="opcheck run train.py, or -m package")
    if not is_file(program[0]):
        hint = "name a Python file or a notebook, or a module with -m; opcheck's own flags come before it"
        raise UsageError(describe_missing(program[0]), context="opcheck run", hint=hint)
    if program[0].endswith(notebooks.SUFFIX):
        notebooks.read_cells(Path(program[0]))  # it raises before a process starts
    return program[0], program[1:]
