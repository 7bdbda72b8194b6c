"""Keeping a part on the CPU, and casting where a dtype begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class KeepOnCpu(nn.Module):
    """Runs a module on the CPU, in a dtype of its own, whatever the rest of the model does.

    ``model.to("mps")`` leaves it there: ``model.norm = KeepOnCpu(model.norm)``.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.module = module.to("cpu", dtype)
        self.dtype = dtype

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> KeepOnCpu:  # noqa: ARG002, FBT001, FBT002
        """Stay where it is when the model is moved or cast (torch/nn/modules/module.py)."""
        return self

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        """Move in, compute, move out."""
        like = next(value for value in args if value.is_floating_point())
        there = [
            value.cpu().to(self.dtype) if value.is_floating_point() else value.cpu()
            for value in args
        ]
        made: torch.Tensor = self.module(*there)
        return made.to(like.dtype).to(like.device)


def sigmas(n: int, device: torch.device, low: float = 0.03, high: float = 15.0) -> torch.Tensor:
    """A schedule computed in float64 on the CPU, and cast before it is moved."""
    ramp = torch.linspace(0, 1, n, dtype=torch.float64, device="cpu")
    schedule = (high ** (1 / 7) + ramp * (low ** (1 / 7) - high ** (1 / 7))) ** 7
    return schedule.to(torch.float32).to(device)
