"""The estimate against what the same program holds on the plain CPU, which knows nothing of it."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

from tests.judge.memory.live import Program, estimated, seen

Case = tuple[Program, nn.Module, tuple[torch.Tensor, ...]]


def forward(module: nn.Module, *inputs: torch.Tensor) -> None:
    with torch.no_grad():
        module(*inputs)


def forward_with_gradients(module: nn.Module, *inputs: torch.Tensor) -> None:
    module(*inputs)


def train(
    module: nn.Module,
    *inputs: torch.Tensor,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    **options: Any,
) -> None:
    """Two steps, as a loop runs them: the second has the optimizer's state from the beginning."""
    chosen = optimizer(module.parameters(), lr=0.1, **options)
    for _ in range(2):
        output = module(*inputs)
        loss = output.float().square().mean()
        chosen.zero_grad()
        loss.backward()
        chosen.step()


sgd = functools.partial(train, optimizer=torch.optim.SGD, momentum=0.9)


class Attention(nn.Module):
    """A transformer block; attention written out, or as PyTorch has it (which is another kernel on a CPU)."""

    def __init__(self, width: int = 32, heads: int = 4, *, written_out: bool = False) -> None:
        super().__init__()
        self.norm, self.heads, self.written_out = nn.LayerNorm(width), heads, written_out
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
        if self.written_out:
            mixed = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        result: torch.Tensor = x + self.mlp(x)
        return result


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.blocks = nn.ModuleList([Attention() for _ in range(4)])
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


class Skips(nn.Module):
    """What a U-Net keeps for its way up."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3 if i == 0 else 8 << i, 16 << i, 3, padding=1) for i in range(3)])
        self.up = nn.ModuleList([nn.Conv2d(48 << i, 16 << i, 3, padding=1) for i in (1, 0)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for index, layer in enumerate(self.down):
            x = layer(F.avg_pool2d(x, 2) if index else x).relu_()
            kept.append(x)
        kept.pop()
        for layer in self.up:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = layer(torch.cat([x, kept.pop()], dim=1)).relu()
        return x


class Views(nn.Module):
    """Large things that only a small view of them keeps, and writes in place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = [x.exp()[i] for i in range(4)]
        x = torch.cat([row.mul_(2).unsqueeze(0) for row in rows])
        del rows
        x[:, 0] = 1
        x = x.t().contiguous().add_(1).view(-1)
        return x.sin().view(4, -1)[0]


class Recurrent(nn.Module):
    """An LSTM step by step: nn.LSTM is one kernel on a Mac, and many calls on a CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.Linear(8 + 32, 4 * 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = cell = x.new_zeros(x.shape[0], 32)
        results = []
        for step in x.unbind(1):
            into, forget, out, new = self.cell(torch.cat([step, hidden], dim=-1)).chunk(4, dim=-1)
            cell = forget.sigmoid() * cell + into.sigmoid() * new.tanh()
            hidden = out.sigmoid() * cell.tanh()
            results.append(self.head(hidden))
        return torch.stack(results, dim=1)


def mlp() -> nn.Module:
    layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1))]
    return nn.Sequential(*layers)


def convolutions() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(inplace=True)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)),
    )


def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    # Written out: what PyTorch takes for attention without gradients is one kernel on a Mac, and not on a CPU.
    options = {"vocab_size": 64, "num_hidden_layers": 3, "attn_implementation": "eager"}
    config = transformers.BertConfig(**options, **sizes)

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = transformers.BertModel(config)

        def forward(self, ids: torch.Tensor) -> Any:
            return self.bert(ids).last_hidden_state

    return Pooled()


def resnet() -> nn.Module:
    model: nn.Module = pytest.importorskip("timm").create_model("resnet10t")
    return model


TOKENS = torch.zeros(8, 64, dtype=torch.int64)
CASES: dict[str, Callable[[], Case]] = {
    "mlp": lambda: (forward, mlp(), (torch.randn(256, 64),)),
    "mlp, gradients on": lambda: (forward_with_gradients, mlp(), (torch.randn(256, 64),)),
    "mlp, SGD": lambda: (sgd, mlp(), (torch.randn(256, 64),)),
    "mlp, AdamW": lambda: (train, mlp(), (torch.randn(32, 64),)),
    "convolutions": lambda: (forward, convolutions(), (torch.randn(4, 3, 32, 32),)),
    "convolutions, AdamW": lambda: (train, convolutions(), (torch.randn(4, 3, 32, 32),)),
    "attention": lambda: (forward, Attention(written_out=True), (torch.randn(4, 64, 32),)),
    "attention, AdamW": lambda: (train, Attention(), (torch.randn(4, 64, 32),)),
    "checkpointed, SGD": lambda: (sgd, Checkpointed(reentrant=False), (torch.randn(4, 64, 32),)),
    "checkpointed, reentrant": lambda: (sgd, Checkpointed(reentrant=True), (torch.randn(4, 64, 32),)),
    "skips": lambda: (forward, Skips(), (torch.randn(2, 3, 32, 32),)),
    "skips, SGD": lambda: (sgd, Skips(), (torch.randn(2, 3, 32, 32),)),
    "views": lambda: (forward, Views(), (torch.randn(4, 4096),)),
    "recurrent": lambda: (forward, Recurrent(), (torch.randn(4, 12, 8),)),
    "recurrent, SGD": lambda: (sgd, Recurrent(), (torch.randn(4, 12, 8),)),
    "bert": lambda: (forward, bert().eval(), (TOKENS,)),
    "bert, AdamW": lambda: (train, bert().eval(), (TOKENS,)),
    "resnet": lambda: (forward, resnet().eval(), (torch.randn(2, 3, 64, 64),)),
    "resnet, SGD": lambda: (sgd, resnet().eval(), (torch.randn(2, 3, 64, 64),)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_estimate_is_the_live_peak(name: str) -> None:
    torch.manual_seed(0)
    gc.collect()  # what tests before left is none of this program's
    program, module, inputs = CASES[name]()
    live = seen(program, module, *inputs)
    assert estimated(program, module, *inputs) == pytest.approx(live, rel=0.02)
