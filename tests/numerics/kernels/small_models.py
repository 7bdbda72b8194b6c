"""Small models, one of each family, each with a step of training on values of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's own abbreviation)
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = split
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        down: Tensor = self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))
        return x + down


class Transformer(nn.Module):
    """A language model; as GPT-2 with 4 layers, width 128 and 64 tokens."""

    def __init__(self, width: int = 128, layers: int = 4, words: int = 1000, *, causal: bool = True) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width, 4, causal=causal) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        head: Tensor = self.head(self.norm(x))
        return head


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.cells = kind(16, 16, batch_first=True)
        self.head = nn.Linear(16, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        head: Tensor = self.head(self.cells(self.words(tokens))[0])
        return head


class Experts(nn.Module):
    """Each row goes to the two experts that a gate chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weight, chosen = self.gate(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for place, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == place)
            out = out.index_add(0, rows, expert(x[rows]) * weight[rows, slot, None])
        return out


class Graph(nn.Module):
    """Messages along edges are summed at their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        ends = torch.arange(12, device=x.device).view(2, 6) % len(x)
        passed = self.message(x)[ends[0]]
        index = ends[1][:, None].expand_as(passed)
        summed = torch.zeros_like(x).scatter_add(0, index, passed)
        head: Tensor = self.head(F.elu(summed) / torch.ones_like(x).cumsum(0))
        return head


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU())
        self.inner = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.Mish())
        self.up = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        kept = self.down(x)
        inner = self.inner(F.avg_pool2d(kept, 2))
        back = F.interpolate(inner, scale_factor=2.0, mode="bilinear")
        up: Tensor = self.up(torch.cat([kept, back], 1))
        return up


class Rotary(nn.Module):
    """Normed rows, turned by their places, in attention of groups, with gated units, as in Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.q, self.kv = nn.RMSNorm(32), nn.Linear(32, 32), nn.Linear(32, 32)
        self.gate, self.up, self.down = nn.Linear(32, 64), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        angles = torch.arange(length, device=x.device).float()[:, None] * 0.1
        q, kv = (layer(self.norm(x)).view(batch, length, 4, 8).transpose(1, 2) for layer in (self.q, self.kv))
        halves = q.chunk(2, -1)
        turned = torch.cat([
            halves[0] * angles.cos() - halves[1] * angles.sin(), halves[1] * angles.cos() + halves[0] * angles.sin()
        ], -1)  # fmt: skip
        k, v = kv[:, :2].repeat_interleave(2, 1), kv[:, 2:].repeat_interleave(2, 1)
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        mixed = F.scaled_dot_product_attention(turned, k, v, attn_mask=mask)
        x = x + mixed.transpose(1, 2).reshape(x.shape)
        down: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return x + down


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.things = nn.Embedding(40, 8), nn.Embedding(60, 8, padding_idx=0)

    def forward(self, pairs: Tensor) -> Tensor:
        return torch.sigmoid((self.users(pairs[:, 0]) * self.things(pairs[:, 1])).sum(-1))


class Masked(nn.Module):
    """Attention by hand: scores, a mask, softmax, dropout's mask, and the best places."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.project(x) @ x.transpose(1, 2)
        later = torch.ones_like(scores).triu(1).bool()
        scores = scores.masked_fill(later, float("-inf"))
        order = scores.detach().sort(-1, descending=True).indices
        kept = scores.softmax(-1).gather(-1, order)
        summed: Tensor = kept.cumsum(-1)
        return summed


def classes(out: Tensor) -> Tensor:
    """The loss of a model that gives scores of classes, the last dimension."""
    flat = out.flatten(0, -2)
    return F.cross_entropy(flat, torch.arange(len(flat), device=out.device) % out.shape[-1])


def squares(out: Tensor) -> Tensor:
    loss: Tensor = F.mse_loss(out, torch.ones_like(out))
    return loss


def _net(*layers: nn.Module) -> Callable[[], nn.Module]:
    """Return a function that makes a network of such layers, with weights from the current seed."""

    def build() -> nn.Module:
        network = nn.Sequential(*copy.deepcopy(layers))
        for layer in network:
            getattr(layer, "reset_parameters", lambda: None)()
        return network

    return build


def tokens(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.arange(torch.Size(shape).numel()).view(shape) * 7 % 40


def numbers(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(shape, generator=torch.Generator().manual_seed(3))


class SmallModel(NamedTuple):
    """How a model is made, what it gets, and its loss."""

    build: Callable[[], nn.Module]
    values: Callable[[], Tensor]
    loss: Callable[[Tensor], Tensor]


MODELS = {
    "perceptron": SmallModel(_net(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), numbers(8, 16), classes),
    "deep perceptron": SmallModel(
        _net(nn.Linear(16, 32), nn.LayerNorm(32), nn.LeakyReLU(), nn.Linear(32, 4), nn.LogSoftmax(-1)),
        numbers(8, 16), squares,
    ),
    "autoencoder": SmallModel(
        _net(nn.Linear(16, 4), nn.Tanh(), nn.Linear(4, 16), nn.Sigmoid()),
        numbers(8, 16), squares,
    ),
    "small images": SmallModel(
        _net(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4)),
        numbers(2, 3, 8, 8), classes,
    ),
    "hard images": SmallModel(
        _net(nn.Conv2d(3, 8, 3, groups=1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Hardsigmoid(), nn.Linear(8, 4)),
        numbers(2, 3, 8, 8), classes,
    ),
    "larger images": SmallModel(
        _net(nn.Upsample(scale_factor=2.0, mode="bicubic"), nn.Conv2d(3, 4, 3), nn.PReLU(), nn.PixelShuffle(2)),
        numbers(2, 3, 6, 6), squares,
    ),
    "style": SmallModel(
        _net(nn.ReplicationPad2d(2), nn.Conv2d(3, 4, 5), nn.InstanceNorm2d(4), nn.ELU(),
            nn.Upsample(scale_factor=2.0)),
        numbers(2, 3, 8, 8), squares,
    ),
    "sound": SmallModel(
        _net(nn.Conv1d(1, 4, 5), nn.ReLU(), nn.ConstantPad1d(2, 0.5), nn.Conv1d(4, 4, 3), nn.Softplus()),
        numbers(2, 1, 40), squares,
    ),
    "volumes": SmallModel(
        _net(nn.Conv3d(1, 2, 3), nn.ReLU(), nn.MaxPool3d(2), nn.Flatten(), nn.Linear(54, 4)),
        numbers(2, 1, 8, 8, 8), classes,
    ),
    "u-net": SmallModel(UNet, numbers(2, 3, 8, 8), squares),
    "language": SmallModel(lambda: Transformer(32, 1, 100), tokens(2, 12), classes),
    "sentences": SmallModel(lambda: Transformer(32, 1, 100, causal=False), tokens(2, 12), classes),
    "rotary": SmallModel(Rotary, numbers(2, 9, 32), squares),
    "masked": SmallModel(Masked, numbers(2, 9, 16), squares),
    "lstm": SmallModel(lambda: Recurrent(nn.LSTM), tokens(2, 9), classes),
    "gru": SmallModel(lambda: Recurrent(nn.GRU), tokens(2, 9), classes),
    "gated": SmallModel(_net(nn.Linear(16, 32), nn.GLU(), nn.Linear(16, 4)), numbers(8, 16), classes),
    "experts": SmallModel(Experts, numbers(12, 16), squares),
    "graph": SmallModel(Graph, numbers(9, 8), classes),
    "recommender": SmallModel(Recommender, tokens(9, 2), squares),
}  # fmt: skip


def train(name: str, device: str) -> None:
    """One step of training: forward, loss, backward, optimizer."""
    torch.manual_seed(1)
    small = MODELS[name]
    model = small.build().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    small.loss(model(small.values().to(device))).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
