"""``opcheck history QUERY``: how an operator's status changed, and what changed it."""

from typing import Annotated

import click

from opcheck.cli.options import DTYPE, OutputOptions, SectionOptions, only, verb
from opcheck.data.targets import TargetOptions


@verb("history")
@click.argument("query")
def command(
    *,
    query: str,
    target: Annotated[TargetOptions, only(macos="Only this macOS version.")],
    dtype: Annotated[str | None, DTYPE] = None,
    output: OutputOptions,
    sections: Annotated[SectionOptions, only("releases", "calls", "verbose")],
) -> int:
    """Write the steps of every overload that is meant."""
    from opcheck.features.history import page
    from opcheck.lookup.operator_history import history as ask

    output.deliver(ask(query, target.macos, dtype), page.document, sections)
    return 0
