"""``opcheck issue``: a finding as an issue for PyTorch's tracker."""

from typing import Annotated

import click

from opcheck.capture.request import CaptureOptions
from opcheck.cli import audits, streams
from opcheck.cli.options import CAPTURE, OutputOptions, ProgressOptions, verb
from opcheck.data.targets import TargetOptions


@verb("issue", epilog=audits.EPILOG)
@click.argument("source")
@click.argument("which", required=False)
def command(
    *,
    source: str,
    which: str | None,
    target: TargetOptions,
    capture: Annotated[CaptureOptions, CAPTURE],
    progress: ProgressOptions,
    output: Annotated[OutputOptions, audits.WRITTEN],
) -> int:
    """Write the text; 3 where its program could not be checked."""
    from opcheck.features.issue import page

    chosen = audits.choose_finding(source, which, target, capture, progress)
    if chosen is None:
        return 0
    tried = audits.try_program(chosen)
    issue = page.write(chosen, tried)
    output.put(issue.body)
    streams.note(f"goes to {issue.where}: {issue.reason}")
    return audits.exit_code(tried)
