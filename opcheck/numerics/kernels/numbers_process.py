"""Runs a model in a child process whose calls the release's kernels compute, too.  Imports no torch."""

from opcheck.capture.parent import ask
from opcheck.capture.request import CaptureRequest
from opcheck.model.records import KernelNumbers, Trace
from opcheck.numerics.precision.precision_process import require_memory
from opcheck.worker.protocol import NO_DISPLAY, ProcessDisplay

#: What the process calls: the emulated Mac is above this room.
_ENTRY = "opcheck.device.emulator.child.model_numbers:check"


def compute(
    request: CaptureRequest, trace: Trace, *, display: ProcessDisplay = NO_DISPLAY
) -> tuple[KernelNumbers, ...]:
    """Return the numbers of the model of ``request`` by the release's kernels, in each dtype of its ``numbers``.

    Args:
        request: the model, its inputs and the target.
        trace: the same without values; it has the size of the model.
        display: what is shown of the child.

    Raises:
        UsageError: the model is larger than this machine has memory for.
        OpcheckError: the child raises it, or it died.
    """
    require_memory(request, trace, "--numbers")
    return ask(_ENTRY, tuple[KernelNumbers, ...], request, request, display=display)
