"""A model with its weights, as both runs beside float64 take it.  In the child process: user code runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from opcheck.capture.build import OnMps
from opcheck.capture.load import load
from opcheck.capture.modes import set_training
from opcheck.capture.run import AsModule, called_with, uncompiled
from opcheck.capture.watchdog import TimeLimitReached
from opcheck.common.text import one_line

if TYPE_CHECKING:
    from opcheck.capture.inputs import Inputs
    from opcheck.capture.protocol import Say
    from opcheck.capture.request import CaptureRequest


def built(request: CaptureRequest, say: Say) -> tuple[nn.Module, Inputs]:
    """The model in the mode that is asked for, and what it is called with: labels too, to train it.

    Raises:
        ModelLoadError: the model cannot be imported or built.
        InputError: the inputs do not parse, or none could be derived.
    """
    say("building the model with its weights")
    with OnMps(), uncompiled([]):
        loaded = load(request.model, request.config, dtype=request.dtype, real=True)
        inputs = called_with(loaded, request)
    model = loaded.model if isinstance(loaded.model, nn.Module) else AsModule(loaded.model)
    set_training(model, request.model, training=request.mode == "train")
    return model, inputs


def broke_off(error: BaseException) -> str:
    """Why a run ended before its end, in a line."""
    if isinstance(error, TimeLimitReached):
        return str(error)
    return f"{type(error).__name__}: {one_line(error)}"
