"""The flags that say how a model is captured, for every verb that audits one."""

from __future__ import annotations

import click

from opcheck.cli import audit

#: The parameters of ``audit`` that ``request_of`` takes, by name, in the order of the help.
CAPTURING = (
    "inputs",
    "input_files",
    "settings",
    "dtype",
    "grad",
    "mode",
    "optimizer",
    "autocast",
    "tracer",
    "timeout",
    "memory_limit",
)
#: Those that say what is shown beside the report.
SHOWING = ("quiet", "verbose")


def borrowed(*names: str) -> list[click.Parameter]:
    """The flags of ``opcheck audit`` by their parameters' names, for ``click.command(params=...)``."""
    by_name = {flag.name: flag for flag in audit.command.params}
    return [by_name[name] for name in names]
