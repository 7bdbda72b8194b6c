"""``opcheck upgrade MODEL``: which torch or macOS to go to, and what that breaks."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from opcheck.cli import VERBS, capture_options, config, flags, output, output_formats
from opcheck.common.errors import OpcheckError
from opcheck.data.registrations import OpLists

#: Keys of ``[tool.opcheck]`` that are about the report of an audit.
_NOT_OURS = {"format_name", "output_path"}


class _Upgrade(flags.Configured):
    """A command whose flags get their defaults from the configuration of an audit."""

    def defaults(self) -> dict[str, object]:
        """Those of the flags that mean the same here."""
        ours = [param for param in self.params if param.name not in _NOT_OURS]
        return config.read(ours, Path.cwd())


@click.command(
    "upgrade",
    cls=_Upgrade,
    help=VERBS["upgrade"],
    params=capture_options.borrowed(
        *capture_options.CAPTURING, "fallback", *capture_options.SHOWING, "color"
    ),
    epilog="The model is audited on every release and macOS version that there is. The flags of the capture are those "
    "of opcheck audit.",
)
@click.argument("model")
@flags.torch("Where you are.  [default: the installed torch]")
@flags.macos("Where you are.  [default: this Mac's, else the newest known]")
@click.option(
    "--releases",
    metavar="RANGE",
    default="all",
    show_default=True,
    help="Look at these releases: '>=2.9', 'last 3'.",
)
@output_formats.format_flag
@flags.output()
def command(
    *,
    model: str,
    torch: str | None,
    macos: str | None,
    releases: str,
    fallback: bool,
    color: str,
    format_name: str | None,
    output_path: str,
    **captured: Any,
) -> int:
    """Write where to go; 3 where the model's run broke off."""
    from opcheck.cli import parse_options, targets
    from opcheck.common.versions import Target
    from opcheck.data import target_ranges
    from opcheck.data.registrations import load
    from opcheck.project.changes import upgrade
    from opcheck.render import ANSWERS, write
    from opcheck.render.answers import upgrade as page

    lists = load()
    line = parse_options.release_of(torch or _installed(lists), lists)
    system = parse_options.system_of(macos or platform.mac_ver()[0], line, lists)
    here = Target(torch=line, macos=system, cpu_fallback=fallback)
    found, impossible = upgrade.targets(here, target_ranges.releases(releases, lists), lists)
    shown = {name: captured.pop(name) for name in capture_options.SHOWING}
    request = parse_options.request_of(model, line, system, fallback=fallback, **captured)
    if not (torch and macos):
        output.note(f"from torch {line} on macOS {system}; --torch and --macos say another")
    reports = targets.reports(request, found, lists, **shown)
    advice = upgrade.advise(dict(zip(found, reports, strict=True)), impossible, here, lists)
    name = output_formats.chosen(format_name, output_path, ANSWERS)
    on_screen = output_path in {"", "-"} and output.color_wanted(color)
    text = write(advice, page.document(advice), name, color=on_screen)
    output_formats.put(text, output_path)
    return 0 if advice.complete else output_formats.COULD_NOT_TELL


def _installed(lists: OpLists) -> str | None:
    """The installed torch, where there is a list for it; None: the newest list."""
    from opcheck.cli import parse_options

    try:
        return str(parse_options.release_of(metadata.version("torch"), lists))
    except (metadata.PackageNotFoundError, OpcheckError):
        return None
