"""Models in which one operation loses its digits, and the same without it."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Variance(nn.Module):
    """A norm whose variance is a difference of squares."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + 1000.0
        mean = x.mean(-1, keepdim=True)
        var = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) * torch.rsqrt(var + 1e-5)


class Sum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x.abs().repeat(1, 4000), -1)[:, -64:]


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        angle = x * 30000.0
        return torch.sin(angle)


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(x, (64,))


class Large(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(x.abs() + 12.0)


class Net(nn.Module):
    """The planted module between two layers, and an answer."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.inside = inside
        self.last = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.last(self.inside(torch.relu(self.first(x))))
        return scores, scores.argmax(-1)


def _made(inside: nn.Module) -> tuple[nn.Module, tuple[Tensor]]:
    return Net(inside), (torch.randn(8, 64),)


def variance() -> tuple[nn.Module, tuple[Tensor]]:
    return _made(Variance())


def cumsum() -> tuple[nn.Module, tuple[Tensor]]:
    return _made(Sum())


def sine() -> tuple[nn.Module, tuple[Tensor]]:
    return _made(Sine())


def plain() -> tuple[nn.Module, tuple[Tensor]]:
    return _made(Plain())


def large() -> tuple[nn.Module, tuple[Tensor]]:
    return _made(Large())


def explicit_double(x: Tensor) -> Tensor:
    """Asks for float64 itself: the run goes without."""
    table = torch.arange(64, dtype=torch.float64) / 7
    wide = x.double() * table
    wide += 1
    return wide.sin().to(x.dtype)


def tricky(x: Tensor) -> Tensor:
    """Views, writes in place, indices, complex numbers, whole numbers."""
    y = x.clone()
    y[:, ::2] *= 3
    y.t().add_(x.t())
    z = torch.fft.rfft(y) * 1j
    order = y.sum(-1).argsort()
    count = torch.zeros(8, dtype=torch.int64)
    count.scatter_add_(0, order, torch.ones_like(order))
    count += 2
    assert count.tolist() == [3] * 8
    return torch.fft.irfft(z.conj() / (1 + count.unsqueeze(-1)))[order]


def fails(x: Tensor) -> Tensor:
    y = x * 2
    message = "it does not like this"
    raise ValueError(message, y.shape)
