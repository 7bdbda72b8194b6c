"""A model with its weights, run once below a mode that makes each call again.

This runs in the child process, because user code runs here.
"""

import contextlib
from typing import Any

import torch
from torch import nn

from opcheck.capture.child.build import OnMps, without_compiler
from opcheck.capture.child.inputs.specs import Inputs
from opcheck.capture.child.loading.fixed_programs import set_training
from opcheck.capture.child.loading.load import load
from opcheck.capture.child.run import AsModule, called_with, leave_uncompiled
from opcheck.capture.child.training import NothingToTrainError, loss_of
from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import CaptureError
from opcheck.common.text import error_text, type_and_text
from opcheck.numerics.child.float64 import Float64Mode
from opcheck.tracing.call_sites import CallSites
from opcheck.tracing.source_locations import locate_raise
from opcheck.worker.platform import TimeLimitReached, out_of_memory
from opcheck.worker.protocol import Say


def build_model(request: CaptureRequest, say: Say) -> tuple[nn.Module, Inputs]:
    """Return the model in the mode that the request names, and what it is called with: labels too, to train it.

    Raises:
        ModelLoadError: the model cannot be imported or built.
        InputError: the inputs do not parse, or none could be derived.
    """
    say("building the model with its weights")
    with OnMps(), leave_uncompiled([]):
        loaded = load(request.model, request.config, dtype=request.dtype, real=True, repository=request.repository)
        inputs = called_with(loaded, request)
    model = loaded.model if isinstance(loaded.model, nn.Module) else AsModule(loaded.model)
    set_training(model, request.model, training=request.mode == "train")
    return model, inputs


#: The mode that sees the calls of a run, if any.
RunMode = Float64Mode | contextlib.nullcontext[None]


class ModelRun:
    """The places of the run's calls, and the loss of a training step."""

    def __init__(self) -> None:
        self.sites = CallSites()
        #: what a training step took backward; empty: there was none
        self.loss = ""
        #: what the model returned; None: it did not
        self.output: Any = None

    def __call__(self, model: nn.Module, args: Any, kwargs: Any, mode: RunMode, *, train: bool, grad: bool) -> None:
        """Call the model; to train, take its loss backward, too.

        Raises:
            BaseException: whatever the user's code raises.
        """
        with self.sites.follow_modules(model), without_compiler(), torch.set_grad_enabled(grad), mode:
            self.output = model(*args, **kwargs)
            if train:
                self._backward()

    def _backward(self) -> None:
        try:
            with self.sites.modules.inside("loss"):
                loss = loss_of(self.output)
        except NothingToTrainError as error:
            self.loss = f"none: {error_text(error)}"
            return
        self.loss = loss.text
        self.sites.phase = "backward"
        torch.autograd.backward(loss.value)


def describe_break(error: BaseException, title: str, *, op: str = "", calls: int, doing: str, hint: str) -> str:
    """Return where and why a run broke off, for a report of the calls before.

    Args:
        error: what the user's code raised.
        title: names the model.
        op: the operator that was running; empty: none.
        calls: how many were compared.
        doing: what broke off, for the error.
        hint: what to do next, for the error.

    Raises:
        CaptureError: no call was compared, or this machine's memory was out.
    """
    text = error_text(error)
    if not isinstance(error, TimeLimitReached):
        text = type_and_text(error)
    text += f", in {op}" if op else ""
    where = locate_raise(error)
    if not calls or out_of_memory(error):
        raise CaptureError(
            f"{doing} broke off: {text}", context=" ".join(str(part) for part in (title, where) if part), hint=hint
        ) from error
    return f"broke off{f' at {where}' if where else ''}: {text}"
