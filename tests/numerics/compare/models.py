"""Models that are compared in a child process, each small."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

Made = tuple[object, tuple[Tensor, ...]]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(4, 8, 3), nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.nn.functional.gelu(self.norm(self.conv(x)))
        x[:, ::2] *= 2
        order = x.sum(-1).argsort(-1)
        scores: Tensor = self.head(x.max(-1).values.gather(-1, order))
        return nn.functional.dropout(scores, 0.5, training=True)


def net() -> Made:
    return Net(), (torch.randn(2, 4, 9),)


def raises(x: Tensor) -> Tensor:
    y = x.exp()
    message = "it does not like this"
    raise ValueError(message, y)


def hangs(x: Tensor) -> Tensor:
    y = x.exp()
    while True:
        time.sleep(0.05)
        y = y + 1


def broken() -> Made:
    return raises, (torch.randn(3),)


def endless() -> Made:
    return hangs, (torch.randn(3),)
