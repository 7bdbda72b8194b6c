"""The smallest programs of public reports about torch.compile on MPS, written anew; nothing to run.

``op_lists/compile_reports.yaml`` names them, with the address of each report.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention


class Reported(NamedTuple):
    """A program and the arguments of one call."""

    make: Callable[[], Callable[..., Any]]
    inputs: Callable[[], tuple[Any, ...]]
    training: bool = False
    dynamic: bool | None = None


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def _channels_last() -> nn.Module:
    net: nn.Module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    for layer in net.children():
        for parameter in layer.parameters():
            if parameter.dim() > 1:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return net


class _Autocast(nn.Module):
    """Chooses the device of the casts as programs do that run on any."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return torch.softmax(self.linear(x), -1).float()


def _autocast() -> nn.Module:
    return _Autocast()


def _decoder() -> nn.Module:
    return nn.Sequential(nn.ConvTranspose2d(256, 128, 5, stride=2), nn.ReLU(), nn.ConvTranspose2d(128, 64, 5, stride=2))


def _last() -> nn.Module:
    layer = nn.ConvTranspose2d(16, 8, 3)
    layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    return layer


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v)


class _Heads(nn.Module):
    """Causal attention of six heads."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(384, 1152)

    def forward(self, x: Tensor) -> Tensor:
        shape = (x.shape[0], x.shape[1], 6, 64)
        query, key, value = (part.view(shape).transpose(1, 2) for part in self.qkv(x).split(384, dim=2))
        result: Tensor = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return result


def _padded(x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.pad(torch.cat([nn.functional.pad(x, (1, 1)), y], 1), (2, 2))


def _branches(x: Tensor) -> Tensor:
    result: Tensor = torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() - 1, (x,))
    return result


def _flexible(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    result = flex_attention(q, k, v)
    assert isinstance(result, Tensor)
    return result


def _flipped(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x, y], 1).view(4)[:3].flip(0)


def _overflow(x: Tensor) -> Tensor:
    limit = torch.where(torch.isinf(x).any(), 60000.0, 65000.0)
    return x.clamp(-limit, limit) / x.sum(-1, keepdim=True)


#: what masked loads of Inductor's own decompositions call
_MASKED_INDEX = "_unsafe_masked_index"


def _masked_index(x: Tensor, mask: Tensor, index: Tensor) -> Tensor:
    result: Tensor = getattr(torch.ops.aten, _MASKED_INDEX)(x, mask, [index], 1.0)
    return result


def _sum_of_many(*tensors: Tensor) -> Tensor:
    total = tensors[0].sin()
    for tensor in tensors[1:]:
        total = total + tensor.sin()
    return total


class _Language(nn.Module):
    """A layer of a small language model: RMSNorm, rotary embedding, attention by its formula, SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(64)
        self.qkv = nn.Linear(64, 192, bias=False)
        self.out = nn.Linear(64, 64, bias=False)
        self.up, self.gate = nn.Linear(64, 128, bias=False), nn.Linear(64, 128, bias=False)
        self.down = nn.Linear(128, 64, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm(x)).chunk(3, -1)
        position = torch.arange(x.shape[1], dtype=x.dtype)[:, None] / 7
        turned = torch.cat((-query[..., 32:], query[..., :32]), -1)
        query = query * position.cos() + turned * position.sin()
        x = x + self.out((query @ key.mT / 8).softmax(-1) @ value)
        normed = self.norm(x)
        result: Tensor = x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))
        return result


def _normal(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(*shape),)


def _two(first: tuple[int, ...], second: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(*first), torch.randn(*second))


def _plain(function: Callable[..., Any]) -> Callable[[], Callable[..., Any]]:
    return lambda: function


PROGRAMS: dict[str, Reported] = {
    "network": Reported(_network, _normal(4, 64)),
    "convolutions": Reported(_convolutions, _normal(4, 3, 32, 32), training=True),
    "mean": Reported(_plain(lambda x: x[:, 0].mean()), _normal(768, 769)),
    "double": Reported(_plain(lambda x: (x.double() * 2).float()), _normal(4, 8)),
    "rms-norm-2048": Reported(lambda: nn.RMSNorm(2048), _normal(2048)),
    "share": Reported(_plain(lambda x: x / x.sum()), _normal(2048)),
    "masked-mean": Reported(_plain(lambda x: (x - (x * (x > 0)).sum(-1, keepdim=True)) / 2), _normal(4, 2048)),
    "cross-entropy": Reported(
        _plain(lambda x: nn.functional.cross_entropy(x, torch.zeros(len(x), dtype=torch.long))), _normal(4, 50257)
    ),
    "layer-norm-4096": Reported(lambda: nn.LayerNorm(4096), _normal(4, 4096)),
    "layer-norm-2048": Reported(lambda: nn.LayerNorm(2048), _normal(4, 2048)),
    "layer-norm-512": Reported(lambda: nn.LayerNorm(512), _normal(4, 512)),
    "sum-dynamic": Reported(_plain(lambda x: x.sum(-1)), _normal(4, 3000), dynamic=True),
    "channels-last": Reported(_channels_last, _normal(2, 3, 16, 16), training=True),
    "autocast": Reported(_autocast, _normal(4, 64)),
    "layer-norm-dynamic": Reported(
        _plain(lambda x: nn.functional.layer_norm(x, x.shape[1:])), _normal(4, 700), dynamic=True
    ),
    "variance-dynamic": Reported(_plain(lambda x: x.var(-1)), _normal(4, 3000), dynamic=True),
    "flip-of-cat": Reported(_plain(_flipped), _two((2, 1), (2, 1))),
    "polygamma": Reported(_plain(lambda x: torch.special.polygamma(0, x)), lambda: (torch.tensor([2]),)),
    "broadcast-product": Reported(_plain(lambda a, b: (a[:, :, None] * b[:, None]).sum()), _two((8, 32), (8, 48))),
    "broadcast-difference": Reported(_plain(lambda a, b: (a[:, None] - b[None, :]).sum()), _two((32,), (64,))),
    "tiled-sum": Reported(_plain(lambda x: x.sum((1, 3))), _normal(4, 8, 3, 9)),
    "overflow": Reported(_plain(_overflow), _normal(4, 2048)),
    "transposed-convolution": Reported(
        _last, lambda: (torch.randn(2, 16, 8, 8).to(memory_format=torch.channels_last),)
    ),
    "cholesky": Reported(_plain(lambda x: torch.linalg.cholesky(x @ x.mT + 9 * torch.eye(4)) * 2), _normal(4, 4)),
    "reflection": Reported(lambda: nn.ReflectionPad2d(1), _normal(2, 3, 10, 10), dynamic=True),
    "masked-index": Reported(
        _plain(_masked_index), lambda: (torch.randn(8), torch.tensor([True, False]), torch.tensor([3, 0]))
    ),
    "decoder": Reported(_decoder, _normal(2, 256, 4, 4), training=True),
    "heads": Reported(_Heads, _normal(1, 1024, 384), training=True),
    "modulo": Reported(
        _plain(lambda x: x.view(2, 1024, 6, 64).transpose(1, 2).contiguous().view(-1) + 1), _normal(2, 1024, 384)
    ),
    "value-dimension": Reported(_plain(_attention), lambda: (*torch.randn(2, 1, 1, 16, 32), torch.randn(1, 1, 16, 24))),
    "nested-masks": Reported(_plain(_padded), _two((8, 10), (8, 12))),
    "infinite-row": Reported(_plain(lambda x: x.amax(-1)), lambda: (torch.full((2, 3000), -torch.inf),)),
    "batch-norm-large": Reported(lambda: nn.BatchNorm2d(8), _normal(4, 8, 32, 32), training=True),
    "batch-norm-small": Reported(lambda: nn.BatchNorm2d(8), _normal(16, 8, 4, 4), training=True),
    "branches": Reported(_plain(_branches), _normal(4, 8)),
    "unsigned": Reported(_plain(lambda x: (x * 9).to(torch.uint16).float() + 1), _normal(16, 16)),
    "largest-int64": Reported(_plain(lambda x: x.amax(-1)), lambda: (-torch.randint(1, 9, (4, 600)),)),
    "sinh": Reported(_plain(torch.sinh), _normal(4, 8)),
    "argmax": Reported(_plain(lambda x: x.argmax(-1)), _normal(4, 600)),
    "flexible": Reported(_plain(_flexible), lambda: tuple(torch.randn(3, 1, 2, 128, 32))),
    "many-inputs": Reported(_plain(_sum_of_many), lambda: tuple(torch.randn(40, 4, 8))),
    "half-choice": Reported(_plain(lambda x: torch.where(x > 0, x, 0.0) + 1), _normal(4, 8)),
    "waves": Reported(_plain(lambda x: x[:, ::2].sin() + x[:, 1::2].cos()), _normal(4, 8)),
    "language": Reported(_Language, _normal(1, 16, 64)),
}
