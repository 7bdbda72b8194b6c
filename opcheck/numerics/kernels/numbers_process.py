"""Runs a model in a child process whose calls the release's kernels compute, too.  Imports no torch."""

from collections.abc import Callable

from opcheck.capture.parent import ask
from opcheck.capture.request import CaptureRequest
from opcheck.model.records import KernelNumbers, Trace
from opcheck.numerics.precision.precision_process import require_memory

#: What the process calls: the emulated Mac is above this room.
_ENTRY = "opcheck.device.emulator.child.model_numbers:check"


def compute(
    request: CaptureRequest, trace: Trace, *, progress: Callable[[str], None] | None = None, show_output: bool = False
) -> tuple[KernelNumbers, ...]:
    """Return the numbers of the model of ``request`` by the release's kernels, in each dtype of its ``numbers``.

    Args:
        request: the model, its inputs and the target.
        trace: the same without values; it has the size of the model.
        progress: receives the stages.
        show_output: pass the child's output on to stderr.

    Raises:
        UsageError: the model is larger than this machine has memory for.
        OpcheckError: the child raises it, or it died.
    """
    require_memory(request, trace, "--numbers")
    return ask(_ENTRY, tuple[KernelNumbers, ...], request, request, progress=progress, show_output=show_output)
