"""``opcheck issue``: a finding as the text that PyTorch's tracker asks for."""

from __future__ import annotations

from typing import Annotated

import click

from opcheck.capture.request import CaptureOptions
from opcheck.cli import finding_choice, streams
from opcheck.cli.options import CAPTURE, OutputOptions, ProgressOptions, verb
from opcheck.data.targets import TargetOptions


@verb("issue", epilog=finding_choice.EPILOG)
@click.argument("source")
@click.argument("which", required=False)
def command(
    *,
    source: str,
    which: str | None,
    target: TargetOptions,
    capture: Annotated[CaptureOptions, CAPTURE],
    progress: ProgressOptions,
    output: Annotated[OutputOptions, finding_choice.WRITTEN],
) -> int:
    """Write the text; 3 where its program could not be checked."""
    from opcheck.features.issue import page

    chosen = finding_choice.chosen_finding(source, which, target, capture, progress)
    if chosen is None:
        return 0
    made = finding_choice.tried(chosen)
    written = page.write(chosen, made)
    output.put(written.body)
    streams.note(f"goes to {written.where}: {written.reason}")
    return finding_choice.exit_code(made)
