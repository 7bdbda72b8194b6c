"""Models of the libraries, small and with random weights, each with one operation that loses its digits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.numerics.precision.planted import Variance


class Far(nn.Module):
    """Positions as if millions of tokens came before: the angles of the embedding are large."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, position_ids: Tensor) -> Any:
        return self.inner(x, position_ids + 3_000_000)


class Step(nn.Module):
    """A scheduler's step after a model, its noise from a long running sum."""

    def __init__(self, unet: nn.Module, scheduler: Any) -> None:
        super().__init__()
        self.unet = unet
        self.scheduler = scheduler
        scheduler.set_timesteps(10)

    def forward(self, x: Tensor) -> Tensor:
        drift = torch.cumsum(torch.full((400_000,), 0.1), 0)[-1]
        time = self.scheduler.timesteps[0]
        made: Tensor = self.scheduler.step(self.unet(x * drift, time).sample, time, x).prev_sample
        return made


def fnet() -> tuple[nn.Module, tuple[Tensor]]:
    from transformers import FNetConfig, FNetModel

    config = FNetConfig(num_hidden_layers=2, hidden_size=64, intermediate_size=64, vocab_size=50)
    model = FNetModel(config)
    model.encoder.layer[1].output.LayerNorm = Variance()
    return model, (torch.randint(0, 50, (2, 16)),)


def llama() -> tuple[nn.Module, tuple[Tensor]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(
            num_hidden_layers=1,
            hidden_size=64,
            intermediate_size=64,
            vocab_size=50,
            num_attention_heads=4,
            num_key_value_heads=4,
        )
    )
    model.model.rotary_emb = Far(model.model.rotary_emb)
    return model, (torch.randint(0, 50, (1, 16)),)


def unet() -> tuple[nn.Module, tuple[Tensor]]:
    from diffusers import DDIMScheduler, UNet2DModel

    model = UNet2DModel(
        sample_size=8,
        block_out_channels=(32, 32),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
    )
    return Step(model, DDIMScheduler()), (torch.randn(1, 3, 8, 8),)
