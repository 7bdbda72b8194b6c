"""One transform each, as a function of a tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

REAL = (2, 4, 8)


class Calls(nn.Module):
    """Runs one function on its input."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def make(name: str, norm: str = "backward", dtype: str = "float32", dims: int = 0) -> Any:
    """A module that transforms, and its input."""
    if name == "stft":
        return Calls(
            lambda x: torch.stft(x, 8, window=torch.ones(8, device=x.device), return_complex=True)
        ), torch.ones(2, 64)
    if name == "istft":
        window = torch.ones(8)

        def back(x: Tensor) -> Tensor:
            z = torch.complex(x, x)
            return torch.istft(z, 8, window=window.to(x.device))

        return Calls(back), torch.ones(2, 5, 9)
    function = getattr(torch.fft, name)
    number = getattr(torch, dtype)
    x = torch.ones((2,) * dims, dtype=number) if dims else torch.ones(REAL, dtype=number)
    if name in {"ifft", "irfft", "hfft", "irfft2", "irfftn", "ifft2", "ifftn", "hfft2"}:
        return Calls(lambda y: function(torch.complex(y, y), norm=norm)), x
    return Calls(lambda y: function(y, norm=norm)), x
