"""``opcheck upgrade MODEL``: which torch or macOS to go to, and what that breaks."""

import contextlib
import platform
from typing import Annotated

import click
from msgspec.structs import replace

from opcheck.capture.request import CaptureOptions, find_source, request_of
from opcheck.cli import streams
from opcheck.cli.audits import audit_on_targets
from opcheck.cli.options import CAPTURE, COLOR, COULD_NOT_TELL, OutputOptions, ProgressOptions, but, flag, verb
from opcheck.common.errors import OpcheckError
from opcheck.data.registrations import OpLists
from opcheck.data.targets import TargetOptions
from opcheck.model.options import RUNNER


@verb(
    "upgrade",
    table="",
    takes=RUNNER,
    foreign=("format", "path"),  # they are about the report of an audit
)
@click.argument("model")
def command(
    *,
    model: str,
    target: Annotated[
        TargetOptions,
        but(
            torch="Current release.  [default: the installed torch]",
            macos="Current macOS.  [default: this Mac's, else the newest known]",
        ),
    ],
    capture: Annotated[CaptureOptions, CAPTURE],
    releases: Annotated[str, flag("Releases to consider: '>=2.9', 'last 3'.", metavar="RANGE")] = "all",
    progress: ProgressOptions,
    color: Annotated[str, COLOR] = "auto",
    output: OutputOptions,
) -> int:
    """Write where to go; 3 where the model's run broke off."""
    from opcheck.data import targets
    from opcheck.data.registrations import load
    from opcheck.features.upgrade import page, upgrade_advice
    from opcheck.render import ANSWERS, write

    lists = load()
    torch, macos = target.torch or _installed_release(lists), target.macos or platform.mac_ver()[0]
    here = replace(target, torch=torch, macos=macos).target(lists)
    possible, impossible = upgrade_advice.targets(here, targets.releases(releases, lists), lists)
    request = request_of(find_source(model, capture), here, capture)
    if not (target.torch and target.macos):
        now = f"from torch {here.torch} on macOS {here.macos}"
        streams.note(f"{now}; --torch and --macos select others")
    reports = audit_on_targets(possible, request, lists, progress)
    judged = dict(zip(possible, reports, strict=True))
    advised = upgrade_advice.advise(judged, impossible, here, lists)
    on_screen = output.to_stdout and streams.color_wanted(color)
    chosen = output.chosen(ANSWERS)
    document = page.document(advised, full=progress.verbose or chosen != "text")
    output.put(write(advised, document, chosen, color=on_screen))
    return 0 if advised.complete else COULD_NOT_TELL


def _installed_release(lists: OpLists) -> str | None:
    """Return the installed torch if there is a list for it; None selects the newest list."""
    from opcheck.data.targets import INSTALLED, release_of

    with contextlib.suppress(OpcheckError):
        return release_of(INSTALLED, lists).line
    return None
