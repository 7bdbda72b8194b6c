"""``opcheck scan PATH...``: the lines of a program that were written for CUDA."""

from __future__ import annotations

import click

from opcheck.cli import VERBS, asking

_LEVELS = ("error", "warning", "note", "never")


@click.command(
    "scan", help=VERBS["scan"], epilog="Reads .py, .ipynb, requirements*.txt and pyproject.toml."
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@asking.torch_flag
@asking.macos_flag
@click.option(
    "--fail-on",
    type=click.Choice(_LEVELS),
    default="error",
    show_default=True,
    envvar="OPCHECK_FAIL_ON",
    help="Exit with 1 where a finding is as severe.",
)
@asking.format_flag
@asking.output_flag
def command(
    *,
    paths: tuple[str, ...],
    torch: str | None,
    macos: str | None,
    fail_on: str,
    format_name: str | None,
    output_path: str,
) -> int:
    """Write the findings, file by file; 3 where a file could not be read and nothing else fails."""
    from opcheck.ask.targets import macos_of, release_of  # noqa: PLC0415  (not for --help)
    from opcheck.oplists.registrations import load  # noqa: PLC0415
    from opcheck.report.asked import scan as page  # noqa: PLC0415
    from opcheck.scan.engine import scan  # noqa: PLC0415
    from opcheck.versions import Target, Version  # noqa: PLC0415

    lists = load()
    release = release_of(torch or lists.releases[-1].line, lists).release
    target = Target(
        torch=Version.parse(release.line), macos=Version.parse(macos_of(macos, release))
    )
    report = scan(list(paths), target)
    asking.deliver(report, page.document, format_name, output_path)
    if fail_on == "never":
        return 0
    counted = _LEVELS[: _LEVELS.index(fail_on) + 1]
    if any(report.totals[level] for level in counted):
        return 1
    return asking.COULD_NOT_TELL if report.problems else 0
