"""``opcheck weights``: what a file or a repository of weights becomes on a Mac."""

from typing import Annotated

import click

from opcheck.cli.options import COULD_NOT_TELL, OutputOptions, SectionOptions, flag, only, verb
from opcheck.common.errors import UsageError
from opcheck.data.targets import TargetOptions


@verb("weights")
@click.argument("source", metavar="FILE|FOLDER|HUB NAME|WORKFLOW", required=False)
def command(
    *,
    source: str | None,
    methods: Annotated[bool, flag("List what each method of quantization becomes.")] = False,
    target: TargetOptions,
    sections: Annotated[SectionOptions, only("evidence", "verbose")],
    output: OutputOptions,
) -> int:
    """Write what the weights become; 1 where they raise or are wrong, 3 where opcheck could not tell."""
    from opcheck.data.registrations import load
    from opcheck.features.weights import answering, page, part_outcomes

    lists = load()
    if methods:
        output.deliver(part_outcomes.every_method(target.target(lists), lists), page.methods_document)
        return 0
    if not source:
        hint = "name a file, a folder, a workflow or a repository, or list the methods: --methods"
        raise UsageError("nothing is named", context="opcheck weights", hint=hint)
    answer = answering.answer(source, target.target(lists), lists)
    output.deliver(answer, page.document, sections)
    if answer.outcome in {"raises_at_load", "raises_at_run", "wrong"}:
        return 1
    return COULD_NOT_TELL if answer.outcome == "unknown" else 0
