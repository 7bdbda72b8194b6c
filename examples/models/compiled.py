"""Small programs for ``scripts/refresh_compile.py``: each meets another part of torch.compile.

Each factory takes nothing and returns a module and the inputs of one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

Made = tuple[nn.Module, dict[str, Tensor]]


class Images(nn.Module):
    """Convolution, batch normalization, pooling, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.classify = nn.Linear(8 * 64, 10)

    def forward(self, image: Tensor) -> Tensor:
        """Scores (batch, 10) for images (batch, 3, 16, 16)."""
        return self.classify(self.features(image).flatten(1)).log_softmax(-1)


def images() -> Made:
    """A convolutional network."""
    return Images(), {"image": torch.linspace(-1, 1, 2 * 768).reshape(2, 3, 16, 16)}


class Attention(nn.Module):
    """One block of a transformer."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """States (batch, length, width) mixed by attention."""
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], is_causal=True)
        return x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))


def attention() -> Made:
    """One attention block."""
    return Attention(), {"x": torch.linspace(-1, 1, 2 * 256).reshape(2, 8, 32)}


class Recurrent(nn.Module):
    """An LSTM, which Dynamo leaves alone."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """States (batch, length, 16)."""
        return self.lstm(x)[0]


def recurrent() -> Made:
    """An LSTM."""
    return Recurrent(), {"x": torch.linspace(-1, 1, 2 * 40).reshape(2, 5, 8)}


class Branch(nn.Module):
    """A branch inside the graph: torch.cond."""

    def forward(self, x: Tensor) -> Tensor:
        """One of two functions, by the sum."""
        return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() - 1, (x,))


def branch() -> Made:
    """A branch by torch.cond."""
    return Branch(), {"x": torch.linspace(-1, 2, 32).reshape(4, 8)}


class Break(nn.Module):
    """A branch on a value in Python: the graph breaks."""

    def forward(self, x: Tensor) -> Tensor:
        """Another function where the sum is large."""
        y = x.sin()
        if y.sum().item() > 1000:
            y = y * 2
        return y.cos()


def graph_break() -> Made:
    """A graph break."""
    return Break(), {"x": torch.linspace(-1, 2, 32).reshape(4, 8)}


class Mask(nn.Module):
    """A result whose size is known when it is computed."""

    def forward(self, x: Tensor) -> Tensor:
        """What is positive, doubled."""
        return x[x > 0] * 2


def mask() -> Made:
    """A mask that depends on the data."""
    return Mask(), {"x": torch.linspace(-1, 2, 32).reshape(4, 8)}


class Sorting(nn.Module):
    """Operators that Inductor leaves to eager kernels."""

    def forward(self, x: Tensor) -> Tensor:
        """Sorted, scattered, summed up, and the largest of it."""
        values, places = x.sort(-1)
        scattered = torch.zeros_like(x).scatter_add(-1, places, values.cumsum(-1))
        return scattered.topk(3).values


def sorting() -> Made:
    """Sort, scatter, cumsum and topk."""
    return Sorting(), {"x": torch.linspace(-1, 2, 32).reshape(4, 8)}


class Wide(nn.Module):
    """Computes in float64 for a moment."""

    def forward(self, x: Tensor) -> Tensor:
        """The mean in float64."""
        return x.double().mean(-1).float()


def wide() -> Made:
    """A cast to float64."""
    return Wide(), {"x": torch.linspace(-1, 2, 32).reshape(4, 8)}


class Many(nn.Module):
    """More inputs in one fused kernel than Metal binds."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.full((8,), 0.1 * n)) for n in range(40))

    def forward(self, x: Tensor) -> Tensor:
        """The sum over all scales."""
        return sum((x * scale).sin() for scale in self.scales)


def many() -> Made:
    """Forty inputs of one kernel."""
    return Many(), {"x": torch.linspace(-1, 2, 32).reshape(4, 8)}


class Step(nn.Module):
    """Forward, backward and an AdamW step in one call, as a compiled training loop has them."""

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.optimizer = torch.optim.AdamW(self.layer.parameters(), lr=1e-3, foreach=not fused, fused=fused)

    def forward(self, x: Tensor) -> Tensor:
        """The loss before the step."""
        with torch.enable_grad():
            loss = self.layer(x).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach()


def step() -> Made:
    """A compiled training step with AdamW over all parameters at once."""
    return Step(fused=False), {"x": torch.linspace(-1, 2, 32).reshape(4, 8)}


def fused_step() -> Made:
    """The same with the optimizer's one kernel for everything."""
    return Step(fused=True), {"x": torch.linspace(-1, 2, 32).reshape(4, 8)}


#: Every factory, in the order of the reports.
PROGRAMS: dict[str, Callable[[], Any]] = {
    make.__name__: make
    for make in (images, attention, recurrent, branch, graph_break, mask, sorting, wide, many, step, fused_step)
}
