"""``opcheck explain [ID]``: the page of a finding, or of a remedy; the schema of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from opcheck.cli import VERBS, output
from opcheck.errors import UsageError

if TYPE_CHECKING:
    from opcheck.doctor.check import Check
    from opcheck.rules.rule import Rule
    from opcheck.scan.rule import ScanRule


#: Not a finding, and asked for by the same people: what ``-f json`` and ``-f yaml`` hold.
SCHEMA = "schema"


@click.command("explain", help=VERBS["explain"])
@click.argument("rule_id", metavar="[ID|schema]", required=False)
def command(rule_id: str | None) -> int:
    """Print the page of one rule or remedy, or a line for each."""
    from opcheck import remedies  # noqa: PLC0415  (not for --help)
    from opcheck.doctor.examine import CHECKS  # noqa: PLC0415
    from opcheck.rules import RULES  # noqa: PLC0415
    from opcheck.scan.rules import RULES as SCAN_RULES  # noqa: PLC0415

    every: list[Rule | ScanRule | Check] = [*RULES, *SCAN_RULES, *CHECKS]
    by_id = {rule.id: rule for rule in every}
    if rule_id is None:
        lines = [f"{rule.id}  {rule.severity:<8} {rule.title}" for rule in every]
        width = max(map(len, remedies.BY_ID))
        lines += ["", "Remedies"]
        lines += [f"{one.id:<{width}}  {one.title}" for one in remedies.REMEDIES]
        lines += ["", f"{SCHEMA:<{width}}  The JSON schema of a report"]
        output.emit("\n".join(lines))
        return 0
    if rule_id.lower() == SCHEMA:
        from opcheck.report import schema  # noqa: PLC0415

        output.emit(schema.text())
        return 0
    remedy = remedies.BY_ID.get(rule_id.lower().replace("-", "_"))
    if remedy is not None:
        output.emit(f"# {remedy.id}: {remedy.title}\n\n{remedy.page.strip()}\n")
        return 0
    rule = by_id.get(rule_id.upper())
    if rule is None:
        raise UsageError(
            f"unknown finding: {rule_id!r}",
            context="opcheck explain",
            hint=f"known: {', '.join(by_id)}; opcheck explain lists the remedies, too",
        )
    output.emit(f"# {rule.id} {rule.slug}: {rule.title}\n\n{rule.page.strip()}\n")
    return 0
