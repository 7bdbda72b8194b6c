"""``opcheck matrix``: the coverage of a torch release, for people and for machines."""

from typing import Annotated

from opcheck.cli.options import OutputOptions, ProgressOptions, but, formats, only, verb
from opcheck.data.targets import TargetOptions

FORMATS = ("markdown", "csv", "json", "html")


@verb("matrix")
def command(
    *,
    target: Annotated[TargetOptions, only("torch", "macos")],
    output: Annotated[OutputOptions, but(format=formats(FORMATS))],
) -> int:
    """Write one row an operator overload."""
    from opcheck.features.matrix.page import render

    name = output.chosen(FORMATS) if output.format or not output.to_stdout else "summary"
    with ProgressOptions().shown(redirected=True) as progress:
        text = render(target.torch, target.macos, name, progress=progress)
    output.put(text)
    return 0
