"""``opcheck issue``: a finding as the text that PyTorch's tracker asks for."""

from __future__ import annotations

from typing import Annotated

import click

from opcheck.capture.request import CaptureOptions
from opcheck.cli import repro, streams
from opcheck.cli.options import CAPTURE, OutputOptions, ProgressOptions, verb
from opcheck.data.targets import TargetOptions


@verb("issue", epilog=repro.EPILOG)
@click.argument("source")
@click.argument("which", required=False)
def command(
    *,
    source: str,
    which: str | None,
    target: TargetOptions,
    capture: Annotated[CaptureOptions, CAPTURE],
    progress: ProgressOptions,
    output: Annotated[OutputOptions, repro.WRITTEN],
) -> int:
    """Write the text; 3 where its program could not be checked."""
    from opcheck.project.repro import issue

    chosen = repro.chosen_finding(source, which, target, capture, progress)
    if chosen is None:
        return 0
    made = repro.tried(chosen)
    written = issue.write(chosen, made)
    output.put(written.body)
    streams.note(f"goes to {written.where}: {written.reason}")
    return repro.exit_code(made)
