"""``opcheck explain [ID]``: the page of a finding."""

from __future__ import annotations

import click

from opcheck.cli import VERBS, output
from opcheck.errors import UsageError


@click.command("explain", help=VERBS["explain"])
@click.argument("rule_id", metavar="[ID]", required=False)
def command(rule_id: str | None) -> int:
    """Print the page of one rule, or a line for each."""
    from opcheck.rules import BY_ID, RULES  # noqa: PLC0415  (not for --help)

    if rule_id is None:
        output.emit("\n".join(f"{rule.id}  {rule.severity:<8} {rule.title}" for rule in RULES))
        return 0
    rule = BY_ID.get(rule_id.upper())
    if rule is None:
        raise UsageError(
            f"unknown finding: {rule_id!r}",
            context="opcheck explain",
            hint=f"known: {', '.join(BY_ID)}",
        )
    output.emit(f"# {rule.id} {rule.slug}: {rule.title}\n\n{rule.page.strip()}\n")
    return 0
