"""The flags that several verbs have: one name, one ``OPCHECK_*`` variable and one help each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from opcheck.common.errors import UsageError

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Flag = Callable[[Callable[..., Any]], Callable[..., Any]]

#: What ``--output`` says for stdout.
STDOUT = ("", "-")

#: How severe a finding is, the worst first, as ``--fail-on`` of the verbs that judge by it.
SEVERITIES = ("error", "warning", "note", "never")


class Configured(click.Command):
    """A command whose flags get their defaults from the configuration file too."""

    def defaults(self) -> dict[str, object]:
        """What the file of the working directory says of them, by the parameters' names."""
        from opcheck.cli import config

        return config.read(self.params, Path.cwd())

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Click's, with those as its default map."""
        extra["default_map"] = self.defaults()
        return super().make_context(info_name, args, parent, **extra)


def flag(*names: str, **attributes: Any) -> Callable[[_Function], _Function]:
    """A flag with its OPCHECK_* variable, named after the long spelling; its default is shown if it has one."""
    long = next(name for name in names if name.startswith("--")).partition("/")[0]
    variable = "OPCHECK_" + long.removeprefix("--").replace("-", "_").upper()
    attributes.setdefault("show_default", attributes.get("default") not in {None, ""})
    return click.option(*names, envvar=variable, **attributes)


def torch(text: str = "Judge by this release.  [default: the newest list]") -> _Flag:
    """``--torch RELEASE``."""
    return flag("--torch", metavar="RELEASE", help=text)


def macos(text: str = "The Mac's macOS.  [default: the newest known]") -> _Flag:
    """``--macos VERSION``."""
    return flag("--macos", metavar="VERSION", help=text)


def form(names: Iterable[str]) -> _Flag:
    """``--format`` with these names, the first of which is the default."""
    names = tuple(names)
    return flag(
        "--format",
        "-f",
        "format_name",
        type=click.Choice(names),
        help=f"Format of the report.  [default: by the suffix of --output, else {names[0]}]",
    )


def output(text: str = "Write the report there, not to stdout.") -> _Flag:
    """``--output FILE``; one that cannot be a file is said before the work is done."""
    return flag(
        "--output",
        "-o",
        "output_path",
        default="",
        metavar="FILE",
        callback=_possible_file,
        help=text,
    )


def _possible_file(_ctx: click.Context, _flag: click.Parameter, value: str) -> str:
    # Not Path.is_dir: it raises for names that the system refuses.
    is_folder = os.path.isdir(value)  # noqa: PTH112
    if value in STDOUT or (os.path.isdir(Path(value).parent) and not is_folder):  # noqa: PTH112
        return value
    wrong = "it is a directory" if is_folder else "no such directory"
    raise UsageError(
        f"cannot write the report: {wrong}",
        context=value,
        hint="name a file in a directory that exists",
    )


def fail_on(levels: Iterable[str], default: str | None, more: str = ".") -> _Flag:
    """``--fail-on`` with these levels, and what else is to be said of them."""
    return flag(
        "--fail-on",
        type=click.Choice(tuple(levels)),
        default=default,
        help=f"Exit with 1 for this and worse{more}",
    )


def strict(text: str = "Exit with 3 if any call is unknown.") -> _Flag:
    """``--strict``."""
    return flag("--strict", is_flag=True, help=text)


def quiet(text: str = "Show no progress.") -> _Flag:
    """``--quiet``."""
    return flag("--quiet", "-q", is_flag=True, help=text)


def verbose(text: str = "Nothing cut in the text.") -> _Flag:
    """``--verbose``."""
    return flag("--verbose", "-v", is_flag=True, help=text)


#: processes at once
MOST_JOBS = 1024


def jobs(default: int | None, text: str) -> _Flag:
    """``--jobs N``."""
    return flag(
        "--jobs", "-j", type=click.IntRange(1, MOST_JOBS), default=default, metavar="N", help=text
    )


#: seconds of a --timeout: a year
LONGEST = 365 * 86400


def timeout(default: float, text: str) -> _Flag:
    """``--timeout SECONDS``: more than none, and no more than the timers of every platform take."""

    def positive(_ctx: click.Context, _flag: click.Parameter, value: float) -> float:
        if 0 < value <= LONGEST:
            return value
        raise UsageError(
            "the timeout must be more than nothing"
            if value <= 0
            else f"the timeout must be a number of at most {LONGEST:,} seconds",
            context="--timeout",
            hint=f"try {default:g}",
        )

    return flag(
        "--timeout",
        type=click.FLOAT,
        default=default,
        metavar="SECONDS",
        callback=positive,
        help=text,
    )


fallback = flag(
    "--fallback/--no-fallback", default=False, help="PYTORCH_ENABLE_MPS_FALLBACK=1 is set."
)
dtype = flag("--dtype", metavar="DTYPE", help="With tensors of this dtype.")
color = flag(
    "--color",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    help="Colour the text; auto: on a terminal, unless NO_COLOR is set.",
)
device = flag("--device", required=True, metavar="DEVICE", help="mps, cuda, cuda:1, xpu, cpu ...")


def counted(level: str) -> tuple[str, ...]:
    """The severities that ``--fail-on`` of this level counts."""
    return () if level == "never" else SEVERITIES[: SEVERITIES.index(level) + 1]
