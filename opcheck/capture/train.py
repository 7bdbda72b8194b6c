"""One training step: forward, loss, backward, optimizer step, as a plain training loop runs them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from opcheck.capture.train_loss import NothingToTrainError, loss_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from opcheck.capture.train_optimizer import Chosen
    from opcheck.tracing.call_sites import CallSites


class TrainStep:
    """Runs the step; ``loss`` says afterwards which number was minimized."""

    def __init__(self, optimizer: Chosen, autocast: str) -> None:
        self.optimizer = optimizer
        self.autocast = autocast
        self.loss = ""

    def __call__(self, model: torch.nn.Module, args: Any, kwargs: Any, sites: CallSites) -> None:
        """The first step of a training loop.

        Raises:
            NothingToTrainError: no parameter requires a gradient, or the loss depends on none.
            Exception: whatever the model or the optimizer raises.
        """
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise NothingToTrainError("no parameter of the model requires a gradient")
        with sites.at("optimizer", self.optimizer.kind.__name__):
            optimizer = self.optimizer.made_for(model.parameters())
            # https://docs.pytorch.org/docs/stable/amp.html: float16 gradients underflow without it.
            scaler = torch.amp.GradScaler("mps", enabled=self.autocast == "float16")

        def evaluate() -> torch.Tensor:
            with autocast(self.autocast):
                output = model(*args, **kwargs)
                with sites.modules.inside("loss"):
                    loss = loss_of(output)
            self.loss = loss.said
            with sites.at("backward", ""):
                torch.autograd.backward(scaler.scale(loss.value))
            return loss.value

        if self.optimizer.needs_closure:
            _closure_step(optimizer, evaluate, sites)
            return
        evaluate()
        with sites.at("optimizer", self.optimizer.kind.__name__):
            scaler.step(optimizer)
            scaler.update()


def autocast(dtype: str) -> AbstractContextManager[Any]:
    """``torch.autocast("mps", dtype)``; nothing where no dtype is given."""
    if not dtype:
        return contextlib.nullcontext()
    return torch.autocast("mps", dtype=getattr(torch, dtype))


def _closure_step(
    optimizer: torch.optim.Optimizer, evaluate: Callable[[], torch.Tensor], sites: CallSites
) -> None:
    """A step of an optimizer that evaluates the model itself, as often as it likes."""

    def closure() -> torch.Tensor:
        with sites.at("forward", ""):
            optimizer.zero_grad()
            return evaluate()

    with sites.at("optimizer", type(optimizer).__name__):
        optimizer.step(closure)  # type: ignore[arg-type]  # the stub wants a float, LBFGS takes both
