"""Two models without a library, small ones of their kinds, for reports/compare_*.md; nothing to run."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

Model = tuple[nn.Module, tuple[Tensor, ...]]


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.inward(x).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.outward(mixed.transpose(1, 2).flatten(-2))
        return out


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = _Attention(width, heads)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norms[0](x + self.attention(x))
        out: Tensor = self.norms[1](x + self.down(functional.gelu(self.up(x))))
        return out


class Bert(nn.Module):
    """Token and position embeddings, layers normed after their sums, a head over the vocabulary."""

    def __init__(self, words: int = 1000, width: int = 256, depth: int = 4, heads: int = 8) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(_Layer(width, heads) for _ in range(depth))

    def forward(self, tokens: Tensor) -> Tensor:
        """Logarithms of what each word's place holds."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.words(tokens) + self.places(positions))
        for layer in self.layers:
            x = layer(x)
        return functional.log_softmax(x @ self.words.weight.T / math.sqrt(x.shape[-1]), -1)


class _Block(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2))
        self.skip = nn.Conv2d(before, width, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(out)) + self.skip(x))


class Resnet(nn.Module):
    """Four stages of two blocks each, as ResNet-18."""

    def __init__(self) -> None:
        super().__init__()
        widths = (64, 64, 128, 256, 512)
        self.stem, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.blocks = nn.Sequential(
            *(
                block
                for before, width in pairwise(widths)
                for block in (_Block(before, width, 1 if before == width else 2), _Block(width, width, 1))
            )
        )
        self.head = nn.Linear(512, 100)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of a hundred kinds."""
        x = functional.max_pool2d(functional.relu(self.norm(self.stem(x))), 3, 2, 1)
        out: Tensor = self.head(self.blocks(x).mean((2, 3)))
        return out


def bert() -> Model:
    """Two sentences of 64 tokens."""
    return Bert(), (torch.randint(0, 1000, (2, 64)),)


def resnet() -> Model:
    """Four pictures of 96 x 96."""
    return Resnet(), (torch.randn(4, 3, 96, 96),)
