"""``opcheck weights``: what a file or a repository of weights becomes on a Mac."""

from __future__ import annotations

from typing import Annotated

import click

from opcheck.cli.options import COULD_NOT_TELL, OutputOptions, SectionOptions, only, verb
from opcheck.data.targets import TargetOptions


@verb("weights")
@click.argument("source", metavar="FILE|FOLDER|HUB NAME|WORKFLOW")
def command(
    *,
    source: str,
    target: TargetOptions,
    sections: Annotated[SectionOptions, only("evidence", "verbose")],
    output: OutputOptions,
) -> int:
    """Write what the weights become; 1 where they raise or are wrong, 3 where opcheck could not tell."""
    from opcheck.data.registrations import load
    from opcheck.features.weights import answering, page

    lists = load()
    answer = answering.answer(source, target.target(lists), lists)
    output.deliver(answer, page.document, sections)
    if answer.outcome in {"raises_at_load", "raises_at_run", "wrong"}:
        return 1
    return COULD_NOT_TELL if answer.outcome == "unknown" else 0
