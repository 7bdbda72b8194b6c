"""``opcheck compare MODEL --device mps``: a real device's results, operator by operator, against float64."""

from typing import Annotated

import click
from msgspec.structs import replace

from opcheck.capture.request import CaptureOptions, find_source, request_of
from opcheck.cli.options import COULD_NOT_TELL, DEVICE, OutputOptions, ProgressOptions, flag, only, verb
from opcheck.common.tool import TOOL
from opcheck.data.registrations import load
from opcheck.data.targets import TargetOptions

#: how often a call is timed
_TIMES = 7


@verb("compare")
@click.argument("model")
def command(
    *,
    model: str,
    device: Annotated[str, DEVICE],
    target: Annotated[TargetOptions, only("fallback")],
    capture: Annotated[
        CaptureOptions,
        only(*("inputs", "input_files", "config", "dtype", "grad", "mode"), *("time_limit", "memory_limit")),
    ],
    repro: Annotated[
        str, flag("Folder for the first wrong call and its inputs; '' for none.", metavar="FOLDER")
    ] = "opcheck-repro",
    time: Annotated[bool, flag("Also time each operator on the device and on the CPU.")] = False,
    progress: ProgressOptions,
    output: OutputOptions,
) -> int:
    """Compare each call, write the results; 1 where a call is wrong, 3 where nothing could be compared."""
    from opcheck.features.compare import page
    from opcheck.numerics.compare.comparison_records import ComparePlan
    from opcheck.numerics.compare.device_comparison import compare
    from opcheck.worker.protocol import ProcessDisplay

    with progress.shown() as say:
        comparison = compare(
            request_of(find_source(model, capture), target.target(load()), capture),
            ComparePlan(device=device, times=_TIMES if time else 0, repro=repro),
            display=ProcessDisplay(say, progress.verbose),
        )
    comparison = replace(comparison, tool=TOOL)
    output.deliver(comparison, page.document)
    if comparison.wrong:
        return 1
    compared = comparison.outcomes.get("agrees", 0) + comparison.outcomes.get("loose", 0)
    return 0 if comparison.complete and compared else COULD_NOT_TELL
