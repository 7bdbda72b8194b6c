"""``opcheck scan PATH...``: the lines of a program that were written for CUDA."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from opcheck.cli import VERBS, config, flags, output, output_formats
from opcheck.common.errors import UsageError
from opcheck.common.files import write_text
from opcheck.common.text import plural
from opcheck.render import WITHOUT_PAGE, render

if TYPE_CHECKING:
    from opcheck.model.ignores import Entry
    from opcheck.source.records import ScanReport


class _Scan(flags.Configured):
    """A command whose flags, and paths, get their defaults from ``[tool.opcheck.scan]``."""

    def defaults(self) -> dict[str, object]:
        """What that table says."""
        return config.of_verb("scan", self.params, Path.cwd())


@click.command(
    "scan",
    cls=_Scan,
    help=VERBS["scan"],
    epilog="Reads .py, .ipynb, requirements*.txt and pyproject.toml. [tool.opcheck.scan] of pyproject.toml has the "
    'flags as keys, and paths = ["src"]; [[tool.opcheck.ignore]] and comments (# opcheck: ignore[OC201] reason) '
    "ignore findings.",
)
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@flags.torch()
@flags.macos()
@flags.flag(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Leave out these files or folders: 'tests/*'. Repeatable.",
)
@flags.flag(
    "--select",
    multiple=True,
    metavar="CODE",
    help="Only this rule, or those that begin so: OC21. Repeatable.",
)
@flags.flag(
    "--baseline",
    default="",
    metavar="FILE",
    help="Leave out the findings that this file knows.",
)
@click.option("--update-baseline", is_flag=True, help="Write all findings to that file.")
@flags.fail_on(flags.SEVERITIES, "error")
@flags.form(WITHOUT_PAGE)
@flags.output()
def command(
    *,
    paths: tuple[str, ...],
    torch: str | None,
    macos: str | None,
    exclude: tuple[str, ...],
    select: tuple[str, ...],
    baseline: str,
    update_baseline: bool,
    fail_on: str,
    format_name: str | None,
    output_path: str,
) -> int:
    """Write the findings, file by file; 3 where a file could not be read and nothing else fails."""
    from opcheck.common.versions import Target, Version
    from opcheck.data.registrations import load
    from opcheck.lookup.targets import macos_of, release_of
    from opcheck.source import baseline as known
    from opcheck.source.engine import scan

    if not paths:
        raise UsageError(
            "no path to read",
            context="opcheck scan",
            hint='give files or directories, or paths = ["src"] in [tool.opcheck.scan]',
        )
    if update_baseline and not baseline:
        raise UsageError(
            "there is no baseline to update",
            context="--update-baseline",
            hint="name its file: --baseline FILE",
        )
    lists = load()
    release = release_of(torch or lists.releases[-1].line, lists).release
    report = scan(
        list(paths),
        Target(torch=Version.parse(release.line), macos=Version.parse(macos_of(macos, release))),
        exclude=exclude,
        select=select,
        ignores=_ignores(),
    )
    if update_baseline:
        write_text(Path(baseline), known.text(report))
        output.note(f"{plural(len(report.findings), 'finding')} in {baseline}")
    if baseline:
        report = known.without(report, known.read(Path(baseline)))
    _deliver(report, format_name, output_path)
    for note in report.notes:
        output.note(note)
    if fail_on == "never":
        return 0
    if any(report.totals[level] for level in flags.counted(fail_on)):
        return 1
    return output_formats.COULD_NOT_TELL if report.problems else 0


def _ignores() -> tuple[Entry, ...]:
    """The entries of ``[[tool.opcheck.ignore]]``."""
    tables, where = config.table(Path.cwd())
    if "ignore" not in tables:
        return ()
    from opcheck.project.gate.settings import ignored

    return ignored(tables["ignore"], where)


def _deliver(found: ScanReport, format_name: str | None, output_path: str) -> None:
    name = output_formats.chosen(format_name, output_path, WITHOUT_PAGE)
    output_formats.put(render(found, name), output_path)
