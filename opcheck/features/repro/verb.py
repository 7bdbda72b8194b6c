"""``opcheck repro``: a finding as the smallest program."""

from typing import Annotated

import click

from opcheck.capture.request import CaptureOptions
from opcheck.cli.audits import EPILOG, WRITTEN, choose_finding, exit_code, try_program
from opcheck.cli.options import CAPTURE, OutputOptions, ProgressOptions, verb
from opcheck.data.targets import TargetOptions


@verb("repro", epilog=EPILOG)
@click.argument("source")
@click.argument("which", required=False)
def command(
    *,
    source: str,
    which: str | None,
    target: TargetOptions,
    capture: Annotated[CaptureOptions, CAPTURE],
    progress: ProgressOptions,
    output: Annotated[OutputOptions, WRITTEN],
) -> int:
    """Write the program; 3 where it could not be checked."""
    chosen = choose_finding(source, which, target, capture, progress)
    if chosen is None:
        return 0
    tried = try_program(chosen)
    output.put(tried.text)
    return exit_code(tried)
