"""Lays out the help of verbs: real examples first, then the options in groups.  Imports no room."""

from collections.abc import Callable
from typing import Any

import click

from opcheck.features import feature, texts_of

#: The titles of the groups of options, by the record that declares them, in the order of the help.
TITLES = {
    "TargetOptions": "Target",
    "RunOptions": "Targets and run",
    "CaptureOptions": "Model and how it runs",
    "SweepOptions": "Sweep",
    "": "Options",
    "Policy": "What fails",
    **dict.fromkeys(("OutputOptions", "SectionOptions", "ReportOptions", "ProgressOptions"), "Output"),
}
#: Columns of the help, however wide the terminal is.
WIDTH = 100
#: Columns of a flag with its value; a longer flag gets a line of its own.
_FLAG_COLUMNS = 30


class Help(click.Command):
    """A click command whose help begins with examples and groups its options."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write usage, purpose, examples, groups of options, and the notes."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        shown = feature(ctx.command_path.removeprefix("opcheck ").strip())
        if shown is not None and shown.examples:
            with formatter.section("Examples"):
                for line, purpose in shown.examples.items():
                    formatter.write(f"{'':{formatter.current_indent}}{line}  # {purpose}\n")
        self.format_options(ctx, formatter)
        self.format_epilog(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options below the titles of their groups."""
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in TITLES.values()}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                groups[TITLES.get(getattr(parameter, "group", ""), TITLES[""])].append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records, col_max=_FLAG_COLUMNS, col_spacing=1)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


class HelpGroup(Help, click.Group):
    """A click group with the same help."""


def group(
    name: str, kind: type[HelpGroup] = HelpGroup, **attributes: Any
) -> Callable[[Callable[..., Any]], click.Group]:
    """Return a decorator that makes the group of a verb's subcommands, with the texts of its feature."""
    return click.group(name, kind, **texts_of(name), **attributes)
