"""A model that asks for the release of torch, once when it is imported and once in each call."""

from __future__ import annotations

import torch
from torch import nn

_SINCE_2_8 = torch.__version__ >= "2.8"


class Branches(nn.Module):
    """Control flow on the version of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GELU() if _SINCE_2_8 else nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.__version__ >= "2.3":
            return self.layer(x)  # type: ignore[no-any-return]
        return self.layer(x).sin()  # type: ignore[no-any-return]


def branches() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Branches(), (torch.randn(4),)
