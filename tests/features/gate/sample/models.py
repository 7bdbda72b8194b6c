"""The models of a small project."""

import json
import time
from pathlib import Path

import torch
from sizes import WIDTH
from torch import nn


class Encoder(nn.Module):
    """Runs natively on every target."""

    def __init__(self):
        super().__init__()
        scale = json.loads(Path("scale.json").read_text())["scale"]
        self.layer = nn.Linear(WIDTH, WIDTH * scale)

    def forward(self, x):
        return torch.relu(self.layer(x))


class Spectrum(nn.Module):
    """Leaves for the CPU where a release has no kernel for it."""

    def forward(self, x):
        values = torch.linalg.eigvals(x)
        return values.abs().sum()


class Broken(nn.Module):
    """Cannot be built."""

    def __init__(self):
        super().__init__()
        raise ValueError("no weights here")


def encoder():
    return Encoder(), torch.randn(2, WIDTH)


def spectrum():
    return Spectrum(), torch.randn(3, 3)


def slow():
    time.sleep(60)
