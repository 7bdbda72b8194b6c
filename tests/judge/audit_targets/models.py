"""Small models that ask a target in different ways, each a function that gives a model and its inputs."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

Made = tuple[nn.Module, tuple[Any, ...]]


class Attention(nn.Module):
    """Scaled dot product attention of contiguous and of transposed tensors, dropout, rms_norm."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.norm = nn.RMSNorm(16) if hasattr(nn, "RMSNorm") else nn.LayerNorm(16)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> Any:
        q, k, v = self.qkv(x).chunk(3, -1)
        heads = [t.unflatten(-1, (2, 8)).transpose(1, 2) for t in (q, k, v)]
        out = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        out = out + F.scaled_dot_product_attention(q.contiguous(), k.contiguous(), v.contiguous())
        return self.norm(self.drop(out))


class Images(nn.Module):
    """Convolutions in channels-last, GroupNorm, max pooling, upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.conv(x.contiguous(memory_format=torch.channels_last))
        x = F.max_pool2d(self.norm(x).relu(), 2)
        volume = F.interpolate(x.unsqueeze(2), scale_factor=2, mode="nearest")
        return self.up(x).mean() + volume.mean()


class Recurrent(nn.Module):
    """An LSTM of two layers and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 8, num_layers=2, batch_first=True)
        self.gru = nn.GRU(8, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.gru(self.lstm(x)[0])[0]


class Transformed(nn.Module):
    """Transforms, which old releases lack."""

    def forward(self, x: torch.Tensor) -> Any:
        return torch.fft.irfft(torch.fft.rfft(x) * 2).abs()


class Wide(nn.Module):
    """Numbers in float64, which no release takes."""

    def forward(self, x: torch.Tensor) -> Any:
        steps = torch.arange(x.shape[-1], dtype=torch.float64, device=x.device)
        return x * torch.linspace(0, 1, x.shape[-1], device=x.device) + steps.float()


class Old(nn.Module):
    """Operators that some releases take apart and others have a kernel for."""

    def forward(self, x: torch.Tensor) -> Any:
        u, s, v = torch.linalg.svd(x.softmax(-1))
        order = torch.argsort(s, stable=True)
        marks = F.one_hot(order, 4).float()
        x = F.prelu(x, torch.ones(1, device=x.device)).repeat_interleave(2, 0)
        x[x > 1] = 0.0
        loss = F.kl_div(x.log_softmax(-1), x.softmax(-1), reduction="batchmean")
        return loss + marks.sum() + (u @ v).mean()


class AsksForMacos(nn.Module):
    """Control flow on what Python sees of the Mac."""

    def forward(self, x: torch.Tensor) -> Any:
        if torch.backends.mps.is_macos_or_newer(15, 0):
            return x.sin()
        return x.cos() if os.environ.get("PYTORCH_ENABLE_MPS_FALLBACK") == "1" else x.tan()


class AskedWhenBuilt(nn.Module):
    """What it is depends on the macOS that it was built on."""

    def __init__(self) -> None:
        super().__init__()
        newer = torch.backends.mps.is_macos_or_newer(14, 0)
        self.layer = nn.GELU() if newer else nn.ReLU()

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x)


class Plain(nn.Module):
    """Asks nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x)


class Raises(nn.Module):
    """Ends in an error on one side of a macOS, and ends its process on an old release's way."""

    def forward(self, x: torch.Tensor) -> Any:
        if not torch.backends.mps.is_macos_or_newer(14, 0):
            os._exit(7)
        if not torch.backends.mps.is_macos_or_newer(15, 0):
            message = "not on this macOS"
            raise ValueError(message)
        return x.sin()


def attention() -> Made:
    return Attention(), (torch.randn(2, 4, 16),)


def images() -> Made:
    return Images(), (torch.randn(1, 3, 8, 8),)


def recurrent() -> Made:
    return Recurrent(), (torch.randn(2, 3, 8),)


def transformed() -> Made:
    return Transformed(), (torch.randn(2, 8),)


def wide() -> Made:
    return Wide(), (torch.randn(2, 8),)


def old() -> Made:
    return Old(), (torch.randn(4, 4),)


def asks_for_macos() -> Made:
    return AsksForMacos(), (torch.randn(4),)


def asked_when_built() -> Made:
    return AskedWhenBuilt(), (torch.randn(4),)


def plain() -> Made:
    return Plain(), (torch.randn(2, 4),)


def raises() -> Made:
    return Raises(), (torch.randn(4),)
