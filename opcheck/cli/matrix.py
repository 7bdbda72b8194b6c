"""``opcheck matrix``: the coverage of a torch release, for people and for machines."""

from __future__ import annotations

import click

from opcheck.cli import VERBS, flags, output, output_formats

FORMATS = ("markdown", "csv", "json", "html")


@click.command(
    "matrix",
    help=VERBS["matrix"],
    epilog="The HTML page stands alone, and holds all releases of the lists.",
)
@flags.torch()
@flags.macos()
@flags.form(FORMATS)
@flags.output()
def command(
    *, torch: str | None, macos: str | None, format_name: str | None, output_path: str
) -> int:
    """Write one row an operator overload."""
    from opcheck.render.matrix import render

    name = output_formats.chosen(format_name, output_path, FORMATS)
    with output.progress(quiet=False, verbose=False) as progress:
        text = render(torch, macos, name, progress=progress)
    output_formats.put(text, output_path)
    return 0
