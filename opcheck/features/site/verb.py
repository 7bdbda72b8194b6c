"""``opcheck site build``: the op lists, and a sweep's models, as static pages."""

from pathlib import Path
from typing import Annotated

from opcheck.cli import streams
from opcheck.cli.helps import group
from opcheck.cli.options import ProgressOptions, flag, only, verb
from opcheck.common.sanitize import for_stderr
from opcheck.common.text import plural


@group("site")
def command() -> None:
    """Group of the site's subcommands."""


@verb("build", parent=command)
def build(
    *,
    folder: Annotated[
        Path,
        flag(
            "A new or empty folder, or an earlier site, which is replaced when the new site is complete.",
            "output",
            short="-o",
            metavar="FOLDER",
        ),
    ],
    sweep: Annotated[Path | None, flag("Folder of opcheck sweep, for the pages of models.", metavar="FOLDER")] = None,
    progress: Annotated[ProgressOptions, only("quiet")],
) -> int:
    """Write the pages."""
    from opcheck.features.site.pages import build as write

    with progress.shown(redirected=True) as say:
        # A terminal shows a few of thousands of messages.
        pages = write(folder, sweep, progress=say and streams.throttle(say, 0.1))
    count = plural(len(pages), "page")
    streams.emit(for_stderr(f"{folder}: {count}; open {folder / 'index.html'}"))
    return 0
