"""``opcheck scan PATH...``: the lines of a program that were written for CUDA."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from opcheck.cli import config, streams
from opcheck.cli.options import (
    COULD_NOT_TELL,
    SEVERITIES,
    OutputOptions,
    but,
    counted,
    flag,
    formats,
    only,
    verb,
)
from opcheck.common.errors import UsageError
from opcheck.common.files import write_text
from opcheck.common.text import plural
from opcheck.data.targets import TargetOptions
from opcheck.model.options import Option, failing_on
from opcheck.render import WITHOUT_PAGE, render


@verb(
    "scan",
    table="scan",
    epilog="Reads .py, .ipynb, requirements*.txt and pyproject.toml. [tool.opcheck.scan] of pyproject.toml has the "
    'flags as keys, and paths = ["src"]; [[tool.opcheck.ignore]] and comments (# opcheck: ignore[OC201] reason) '
    "ignore findings.",
)
@click.argument("paths", nargs=-1, metavar="[PATH...]")
def command(
    *,
    paths: tuple[str, ...],
    target: Annotated[TargetOptions, only("torch", "macos")],
    exclude: Annotated[
        tuple[str, ...],
        Option("Leave out these files or folders: 'tests/*'. Repeatable.", metavar="PATTERN"),
    ] = (),
    select: Annotated[
        tuple[str, ...],
        Option("Only this rule, or those that begin so: OC21. Repeatable.", metavar="CODE"),
    ] = (),
    baseline: Annotated[
        str, Option("Leave out the findings that this file knows.", metavar="FILE")
    ] = "",
    update_baseline: Annotated[bool, flag("Write all findings to that file.")] = False,
    fail_on: Annotated[str, failing_on(SEVERITIES)] = "error",
    output: Annotated[OutputOptions, but(format=formats(WITHOUT_PAGE))],
) -> int:
    """Write the findings, file by file; 3 where a file could not be read and nothing else fails."""
    from opcheck.data.registrations import load
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
    report = scan(
        list(paths),
        target.target(load()),
        exclude=exclude,
        select=select,
        ignores=config.ignore_entries(Path.cwd()),
    )
    if update_baseline:
        write_text(Path(baseline), known.text(report))
        streams.note(f"{plural(len(report.findings), 'finding')} in {baseline}")
    if baseline:
        report = known.without(report, known.read(Path(baseline)))
    output.put(render(report, output.chosen(WITHOUT_PAGE)))
    for note in report.notes:
        streams.note(note)
    if fail_on == "never":
        return 0
    if any(report.totals[level] for level in counted(fail_on)):
        return 1
    return COULD_NOT_TELL if report.problems else 0
