"""``opcheck site build``: the op lists, and a sweep's models, as static pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click

from opcheck.cli import VERBS, flags, output
from opcheck.common.sanitize import for_stderr
from opcheck.common.text import plural


@click.group("site", help=VERBS["site"])
def command() -> None:
    """Group of the site's subcommands."""


@command.command(
    "build",
    short_help="Write all pages, with a search that works offline.",
    help="Write a page for every operator, release, rule and model, with a search that works offline.",
    epilog="The pages need no server: open index.html. docs/site.md says what they hold, and how to publish them.",
)
@click.option(
    "--output",
    "-o",
    "folder",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A new or an empty folder, or an earlier site, which is replaced once the new one is whole.",
)
@click.option(
    "--sweep",
    "swept",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Results of opcheck sweep, for the pages of models.",
)
@flags.quiet()
def build(*, folder: Path, swept: Path | None, quiet: bool) -> int:
    """Write the pages."""
    from opcheck.render.site.build import build as written

    with output.progress(quiet=quiet, verbose=False) as progress:
        pages = written(folder, swept, progress=_now_and_then(progress))
    output.emit(for_stderr(f"{folder}: {plural(len(pages), 'page')}; open {folder / 'index.html'}"))
    return 0


def _now_and_then(say: Callable[[str], None] | None) -> Callable[[str], None] | None:
    """Thousands of messages, of which a reader sees some a second."""
    if say is None:
        return None
    told = 0.0

    def throttled(message: str) -> None:
        nonlocal told
        if time.monotonic() - told > 0.1:
            told = time.monotonic()
            say(message)

    return throttled
