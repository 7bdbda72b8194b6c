"""``opcheck history QUERY``: how an operator's status changed, and what changed it."""

from __future__ import annotations

import click

from opcheck.cli import VERBS, asking, flags


@click.command("history", help=VERBS["history"], epilog="QUERY is as for opcheck op.")
@click.argument("query")
@flags.macos("On this macOS only.")
@flags.dtype
@asking.format_flag
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
    from opcheck.ask.history import history as ask
    from opcheck.report.asked import history

    asking.deliver(ask(query, macos, dtype), history.document, format_name, output_path)
    return 0
