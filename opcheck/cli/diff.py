"""``opcheck diff BEFORE AFTER``: what another torch release takes away and brings."""

from __future__ import annotations

import click

from opcheck.cli import VERBS, asking


@click.command("diff", help=VERBS["diff"], epilog="BEFORE and AFTER are torch releases: 2.9 2.15.")
@click.argument("before")
@click.argument("after")
@asking.macos_flag
@asking.dtype_flag
@click.option(
    "--fail-on",
    type=click.Choice(("regressions", "never")),
    default="never",
    show_default=True,
    envvar="OPCHECK_FAIL_ON",
    help="Exit with 1 where something is worse than before.",
)
@asking.format_flag
@asking.output_flag
def command(
    *,
    before: str,
    after: str,
    macos: str | None,
    dtype: str | None,
    fail_on: str,
    format_name: str | None,
    output_path: str,
) -> int:
    """Write the changes, regressions first."""
    from opcheck.ask.diff import REGRESSIONS  # noqa: PLC0415  (not for --help)
    from opcheck.ask.diff import diff as ask  # noqa: PLC0415
    from opcheck.report.asked import diff  # noqa: PLC0415

    found = ask(before, after, macos, dtype)
    asking.deliver(found, diff.document, format_name, output_path)
    worse = any(found.counts[name] for name in REGRESSIONS)
    return 1 if worse and fail_on == "regressions" else 0
