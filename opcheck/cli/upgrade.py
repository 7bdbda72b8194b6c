"""``opcheck upgrade MODEL``: which torch or macOS to go to, and what that breaks."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from opcheck.cli import VERBS, asking, capturing, config, output
from opcheck.errors import OpcheckError
from opcheck.oplists.registrations import OpLists

#: Keys of ``[tool.opcheck]`` that are about the report of an audit.
_NOT_OURS = {"format_name", "output_path"}


class _Upgrade(click.Command):
    """A command whose flags get their defaults from the configuration of an audit."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Click's, with the configuration file as its default map."""
        flags = [
            flag
            for flag in self.params
            if isinstance(flag, click.Option) and flag.name not in _NOT_OURS
        ]
        extra["default_map"] = config.read(flags, Path.cwd())
        return super().make_context(info_name, args, parent, **extra)


@click.command(
    "upgrade",
    cls=_Upgrade,
    help=VERBS["upgrade"],
    params=capturing.borrowed(*capturing.CAPTURING, "fallback", *capturing.SHOWING, "color"),
    epilog="The model is audited on every release and macOS version that there is. The flags of the capture are those "
    "of opcheck audit.",
)
@click.argument("model")
@click.option(
    "--torch",
    metavar="RELEASE",
    envvar="OPCHECK_TORCH",
    help="Where you are.  [default: the installed torch]",
)
@click.option(
    "--macos",
    metavar="VERSION",
    envvar="OPCHECK_MACOS",
    help="Where you are.  [default: this Mac's, else the newest known]",
)
@click.option(
    "--releases",
    metavar="RANGE",
    default="all",
    show_default=True,
    help="Look at these releases: '>=2.9', 'last 3'.",
)
@asking.format_flag
@asking.output_flag
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
    from opcheck import ranges  # noqa: PLC0415  (not for --help)
    from opcheck.changes import upgrade  # noqa: PLC0415
    from opcheck.cli import audit, targets  # noqa: PLC0415
    from opcheck.oplists.registrations import load  # noqa: PLC0415
    from opcheck.report.asked import FORMATS, write  # noqa: PLC0415
    from opcheck.report.asked import upgrade as page  # noqa: PLC0415
    from opcheck.versions import Target  # noqa: PLC0415

    lists = load()
    line = audit.release_of(torch or _installed(lists), lists)
    system = audit.system_of(macos or platform.mac_ver()[0], line, lists)
    if not (torch and macos):
        output.note(f"from torch {line} on macOS {system}; --torch and --macos say another")
    here = Target(torch=line, macos=system, cpu_fallback=fallback)
    found, impossible = upgrade.targets(here, ranges.releases(releases, lists), lists)
    shown = {name: captured.pop(name) for name in capturing.SHOWING}
    request = audit.request_of(model, line, system, fallback=fallback, **captured)
    reports = targets.reports(request, found, lists, **shown)
    advice = upgrade.advise(dict(zip(found, reports, strict=True)), impossible, here, lists)
    name = asking.chosen(format_name, output_path, FORMATS)
    text = write(advice, page.document(advice), name)
    on_screen = name == "text" and output_path in {"", "-"} and output.color_wanted(color)
    asking.put(page.painted(text) if on_screen else text, output_path)
    return 0 if advice.complete else asking.COULD_NOT_TELL


def _installed(lists: OpLists) -> str | None:
    """The installed torch, where there is a list for it; None: the newest list."""
    from opcheck.cli import audit  # noqa: PLC0415  (not for --help)

    try:
        return str(audit.release_of(metadata.version("torch"), lists))
    except (metadata.PackageNotFoundError, OpcheckError):
        return None
