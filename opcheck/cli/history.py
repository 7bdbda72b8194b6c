"""``opcheck history QUERY``: how an operator's status changed, and what changed it."""

from __future__ import annotations

import click

from opcheck.cli import VERBS, flags, output_formats


@click.command("history", help=VERBS["history"], epilog="QUERY is as for opcheck op.")
@click.argument("query")
@flags.macos("On this macOS only.")
@flags.dtype
@output_formats.format_flag
@flags.output()
def command(
    *,
    query: str,
    macos: str | None,
    dtype: str | None,
    format_name: str | None,
    output_path: str,
) -> int:
    """Write the steps of every overload that is meant."""
    from opcheck.lookup.history import history as ask
    from opcheck.render.answers import history

    output_formats.deliver(ask(query, macos, dtype), history.document, format_name, output_path)
    return 0
