"""``opcheck repro``: a finding as the smallest program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click

from opcheck.capture.request import CaptureOptions
from opcheck.cli.finding_choice import EPILOG, WRITTEN, chosen_finding, exit_code, tried
from opcheck.cli.options import (
    CAPTURE,
    OutputOptions,
    ProgressOptions,
    verb,
)
from opcheck.data.targets import TargetOptions

if TYPE_CHECKING:
    pass


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
    chosen = chosen_finding(source, which, target, capture, progress)
    if chosen is None:
        return 0
    made = tried(chosen)
    output.put(made.text)
    return exit_code(made)
