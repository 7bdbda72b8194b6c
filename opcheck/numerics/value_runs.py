"""Runs a model with its values in a child process: next to float64, or by a release's kernels.  Imports no torch."""

from opcheck.capture.parent import ask
from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import UsageError
from opcheck.common.text import filesize
from opcheck.model.records import KernelNumbers, Precision, Trace
from opcheck.worker import platform
from opcheck.worker.protocol import NO_DISPLAY, ProcessDisplay

#: Bytes that a number of the model takes: as it was built, in the run, and in float64; and again for its gradient.
_BYTES, _BYTES_OF_GRADIENT = 4 + 4 + 8, 4 + 8
#: The functions that the child process calls, by name: the emulated Mac is above this room.
_PRECISION = "opcheck.numerics.precision.child.precision_run:compare"
_NUMBERS = "opcheck.device.emulator.child.model_numbers:check"


def compare(request: CaptureRequest, trace: Trace, *, display: ProcessDisplay = NO_DISPLAY) -> tuple[Precision, ...]:
    """Return the model of ``request`` on this machine's CPU in each dtype of ``request.precision``.

    Args:
        request: the model and its inputs.
        trace: the same on the simulated Mac; it has the size of the model.
        display: what is shown of the child.

    Raises:
        UsageError: the model is larger than this machine has memory for.
        OpcheckError: the child raises it, or it died.
    """
    if not request.precision:
        return ()
    require_memory(request, trace, f"--precision {','.join(request.precision)}")
    return ask(_PRECISION, tuple[Precision, ...], request, request, display=display)


def require_memory(request: CaptureRequest, trace: Trace, flag: str) -> None:
    """Refuse a model that this machine has no memory for.

    Raises:
        UsageError: it is too large to be run with its values.
    """
    # The least that the runs take: parameters and, where a backward is run, their gradients.
    needed = trace.parameters * (_BYTES + (_BYTES_OF_GRADIENT if request.mode == "train" else 0))
    may_take = int(request.memory_limit * 1e9) or platform.default_memory()
    if may_take and needed > may_take:
        raise UsageError(
            f"the model is too large to be run for real: {trace.parameters:,} parameters take {filesize(needed)}",
            context=f"{flag}; this machine may take {filesize(may_take)} (--memory-limit)",
            hint="a smaller model of the same kind shows where precision is lost, too: --config num_hidden_layers=2",
        )


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
    return ask(_NUMBERS, tuple[KernelNumbers, ...], request, request, display=display)
