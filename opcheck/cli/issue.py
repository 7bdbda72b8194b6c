"""``opcheck issue``: a finding as the text that PyTorch's tracker asks for."""

from __future__ import annotations

from typing import Any

import click

from opcheck.cli import VERBS, flags, output, output_formats, repro


@click.command("issue", help=VERBS["issue"], params=[*repro.PARAMETERS], epilog=repro.EPILOG)
@click.argument("source")
@click.argument("which", required=False)
@flags.output("Write it there, not to stdout.")
def command(source: str, which: str | None, output_path: str, **captured: Any) -> int:
    """Write the text; 3 where its program could not be checked."""
    from opcheck.project.repro import issue

    chosen = repro.chosen_finding(source, which, **captured)
    if chosen is None:
        return 0
    made = repro.tried(chosen)
    written = issue.write(chosen, made)
    output_formats.put(written.body, output_path)
    output.note(f"goes to {written.where}: {written.reason}")
    return repro.told(made)
