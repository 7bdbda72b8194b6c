"""``opcheck compare MODEL --device mps``: a real device's results, operator by operator, against float64."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from opcheck.capture.request import DEFAULT_OPTIMIZER, DEFAULT_TRACER
from opcheck.cli import VERBS, flags, output, output_formats, parse_options
from opcheck.cli.capture_options import SHOWING, borrowed
from opcheck.common.tool import TOOL
from opcheck.data.registrations import load

#: how often a call is timed
_TIMES = 7

_BORROWED = (
    "inputs",
    "input_files",
    "settings",
    "dtype",
    "grad",
    "mode",
    "fallback",
    "timeout",
    "memory_limit",
    *SHOWING,
)


@click.command(
    "compare",
    help=VERBS["compare"],
    params=borrowed(*_BORROWED),
    epilog="MODEL is named as for opcheck audit; it is run with its weights, forward, and with --mode train backward. "
    "The device is any that this machine's torch has. Exits with 1 where an operator goes wrong, with 3 where the run "
    "broke off or nothing could be compared. It differs from opcheck audit --precision, which needs no device: there "
    "the CPU's float32 is followed through the whole model.",
)
@click.argument("model")
@flags.device
@click.option(
    "--repro",
    default="opcheck-repro",
    show_default=True,
    metavar="FOLDER",
    help="Where the first wrong call is written, with its inputs, if there is one; '' for nowhere.",
)
@click.option(
    "--time", "timed", is_flag=True, help="Also time each operator, there and on the CPU."
)
@output_formats.format_flag
@flags.output()
def command(  # noqa: D103
    *,
    model: str,
    device: str,
    repro: str,
    timed: bool,
    quiet: bool,
    verbose: bool,
    format_name: str | None,
    output_path: str,
    **capturing: Any,
) -> int:
    from opcheck.numerics.compare.parent import compare
    from opcheck.numerics.compare.records import Plan
    from opcheck.render.answers import compared as page

    lists = load()
    line = parse_options.release_of(None, lists)
    request = parse_options.request_of(
        model,
        line,
        parse_options.system_of(None, line, lists),
        tracer=DEFAULT_TRACER,
        optimizer=DEFAULT_OPTIMIZER,
        autocast="",
        **capturing,
    )
    with output.progress(quiet=quiet, verbose=verbose) as progress:
        comparison = compare(
            request,
            Plan(device=device, times=_TIMES if timed else 0, repro=repro),
            progress=progress,
            show_output=verbose,
        )
    comparison = msgspec.structs.replace(comparison, tool=TOOL)
    output_formats.deliver(comparison, page.document, format_name, output_path)
    if comparison.wrong:
        return 1
    compared = comparison.outcomes.get("agrees", 0) + comparison.outcomes.get("loose", 0)
    return 0 if comparison.complete and compared else output_formats.COULD_NOT_TELL
