"""``opcheck doctor``: what is wrong with a machine, its Python, its torch and its variables."""

from __future__ import annotations

from pathlib import Path

import click

from opcheck.cli import VERBS, flags, output_formats
from opcheck.common.errors import UsageError


@click.command("doctor", help=VERBS["doctor"])
@click.option("--gather", is_flag=True, help="Only write the facts, as JSON, for --from elsewhere.")
@click.option(
    "--from",
    "from_path",
    metavar="FILE",
    default="",
    help="Look at the facts that --gather wrote on another machine.",
)
@click.option(
    "--script", metavar="FILE", default="", help="Also read the variables that it sets for itself."
)
@click.option(
    "--requirements",
    multiple=True,
    metavar="FILE",
    help="Also read a requirements.txt or pyproject.toml. Repeatable.",
)
@flags.fail_on(flags.SEVERITIES, "error")
@flags.strict("Exit with 3 where a check could not be made.")
@output_formats.format_flag
@flags.output()
def command(
    *,
    gather: bool,
    from_path: str,
    script: str,
    requirements: tuple[str, ...],
    fail_on: str,
    strict: bool,
    format_name: str | None,
    output_path: str,
) -> int:
    """Write the diagnosis; 1 where something as severe as --fail-on is wrong."""
    from opcheck.data.registrations import load
    from opcheck.device.doctor import environment as facts
    from opcheck.device.doctor.examine import examine
    from opcheck.device.doctor.gather import gather as look
    from opcheck.render.answers import doctor as page

    if gather and (from_path or script or requirements or format_name):
        raise UsageError(
            "--gather only writes the facts",
            context="opcheck doctor --gather",
            hint="opcheck doctor --gather > environment.json, then opcheck doctor --from environment.json",
        )
    environment = facts.read(Path(from_path)) if from_path else look()
    if gather:
        output_formats.put(facts.dump(environment), output_path)
        return 0
    diagnosis = examine(
        environment,
        load(),
        script=Path(script) if script else None,
        requirements=tuple(map(Path, requirements)),
    )
    output_formats.deliver(diagnosis, page.document, format_name, output_path)
    if any(diagnosis.totals[level] for level in flags.counted(fail_on)):
        return 1
    return output_formats.COULD_NOT_TELL if strict and diagnosis.unknown else 0
