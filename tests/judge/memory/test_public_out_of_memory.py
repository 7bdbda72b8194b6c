"""Public out-of-memory texts of known configurations: the estimate raises on the same Mac, with about the same figures.

``REPORTS`` has the address, the Mac, the release and what was printed; the models are built without memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional

import opcheck
from opcheck.judge.memory.mac_fits import deciding
from opcheck.model.records import MacFit

pytestmark = pytest.mark.slow

Program = tuple[Any, Any]


class Weights(nn.Module):
    """Weights of these shapes, of which the first is read."""

    def __init__(self, shapes: Iterator[tuple[int, ...]], dtype: torch.dtype) -> None:
        super().__init__()
        empty = (torch.empty(shape, dtype=dtype, device="meta") for shape in shapes)
        self.weights = nn.ParameterList(nn.Parameter(each, requires_grad=False) for each in empty)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first: torch.Tensor = self.weights[0]
        return x + first.flatten()[:1]


def _chatglm() -> Iterator[tuple[int, ...]]:
    yield 130528, 4096
    for _ in range(28):
        yield from ((4096,), (4096,), (12288, 4096), (12288,), (4096, 4096), (4096,))
        yield from ((4096,), (4096,), (16384, 4096), (16384,), (4096, 16384), (4096,))
    yield 130528, 4096


def chatglm_in_single() -> Program:
    return Weights(_chatglm(), torch.float32), torch.zeros(1)


def mpt_7b_in_single() -> Program:
    from transformers import MptConfig, MptForCausalLM

    with torch.device("meta"):
        model = MptForCausalLM(MptConfig(d_model=4096, n_heads=32, n_layers=32, vocab_size=50432))
    return model, {"input_ids": torch.ones(1, 8, dtype=torch.int64)}


def vicuna_7b_in_half() -> Program:
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig()).half()
    return model, {"input_ids": torch.ones(1, 8, dtype=torch.int64)}


def sd35_large() -> Program:
    from diffusers import SD3Transformer2DModel

    with torch.device("meta"):
        model = SD3Transformer2DModel(
            sample_size=128,
            num_layers=38,
            num_attention_heads=38,
            attention_head_dim=64,
            caption_projection_dim=2432,
            joint_attention_dim=4096,
            pooled_projection_dim=2048,
            pos_embed_max_size=192,
            in_channels=16,
            out_channels=16,
            qk_norm="rms_norm",
        ).half()
    return model, {
        "hidden_states": torch.zeros(2, 16, 128, 128, dtype=torch.float16),
        "encoder_hidden_states": torch.zeros(2, 154, 4096, dtype=torch.float16),
        "pooled_projections": torch.zeros(2, 2048, dtype=torch.float16),
        "timestep": torch.zeros(2),
    }


def gpt2_large_training() -> Program:
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device("meta"):
        config = GPT2Config(n_embd=1280, n_layer=36, n_head=20, attn_implementation="eager")
        model = GPT2LMHeadModel(config)
    tokens = torch.ones(8, 1024, dtype=torch.int64)
    return model, {"input_ids": tokens, "labels": tokens}


def outer_product() -> Program:
    wide, high = torch.zeros(1, 72250, 1), torch.zeros(1, 1, 72250)
    return torch.bmm, (wide, high)


def _attention(*shape: int, dtype: torch.dtype) -> Program:
    query, key, value = (torch.empty(shape, dtype=dtype, device="meta") for _ in range(3))
    return functional.scaled_dot_product_attention, (query, key, value)


def attention_of_a_large_picture() -> Program:
    return _attention(2, 10, 96 * 168, 64, dtype=torch.float32)


def attention_of_a_long_video() -> Program:
    return _attention(2, 48, 247726, 64, dtype=torch.bfloat16)


def warmup_of_qwen3_vl() -> Program:
    def warmup(x: torch.Tensor) -> torch.Tensor:
        # 437.81 GiB of half precision, as the text has it; transformers asked for all weights at once.
        return torch.empty(int(437.81 * 2**29), dtype=torch.float16, device=x.device)[:1] + x

    return warmup, torch.zeros(1, dtype=torch.float16)


def flux_in_single() -> Program:
    from diffusers import FluxTransformer2DModel

    with torch.device("meta"):
        model = FluxTransformer2DModel(guidance_embeds=False)
    return model, {
        "hidden_states": torch.zeros(1, 4096, 64),
        "encoder_hidden_states": torch.zeros(1, 256, 4096),
        "pooled_projections": torch.zeros(1, 768),
        "timestep": torch.zeros(1),
        "img_ids": torch.zeros(4096, 3),
        "txt_ids": torch.zeros(256, 3),
    }


class PublicText(NamedTuple):
    """A public text: where it stands, the Mac, the release, and what it printed; 0: the text does not show it."""

    program: Callable[[], Program]
    source: str
    mac: int
    torch: str
    macos: str
    #: GiB of "MPS allocated"
    allocated: float = 0.0
    #: how the text begins or what it contains
    printed: str = "MPS backend out of memory"
    options: dict[str, str] = {}


GITHUB = "https://github.com/"
REPORTS = [
    PublicText(
        chatglm_in_single, f"{GITHUB}zai-org/ChatGLM-6B/issues/311", 16, "2.1", "13.3", 18.05
    ),
    PublicText(
        chatglm_in_single,
        f"{GITHUB}chatchat-space/Langchain-Chatchat/issues/533",
        16,
        "2.0",
        "13.2",
        18.00,
    ),
    PublicText(mpt_7b_in_single, f"{GITHUB}h2oai/h2ogpt/issues/463", 16, "2.1", "13.4", 17.27),
    PublicText(vicuna_7b_in_half, f"{GITHUB}lm-sys/FastChat/issues/274", 8, "2.0", "13"),
    PublicText(sd35_large, f"{GITHUB}Comfy-Org/ComfyUI/issues/7171", 16, "2.6", "15", 16.91),
    PublicText(sd35_large, f"{GITHUB}Comfy-Org/ComfyUI/issues/7372", 16, "2.6", "15", 17.68),
    PublicText(
        gpt2_large_training,
        f"{GITHUB}huggingface/transformers/issues/28140",
        64,
        "2.1",
        "14.2",
        78.40,
        options={"mode": "train"},
    ),
    PublicText(
        outer_product,
        f"{GITHUB}pytorch/pytorch/issues/141909",
        16,
        "2.6",
        "15",
        printed="Invalid buffer size: 19.45 GB",
    ),
    PublicText(
        attention_of_a_large_picture,
        f"{GITHUB}kijai/ComfyUI-SUPIR/pull/210",
        16,
        "2.10",
        "15",
        printed="Invalid buffer size: 19.38 GiB",
    ),
    PublicText(
        attention_of_a_long_video,
        f"{GITHUB}huggingface/diffusers/issues/9972",
        24,
        "2.5",
        "15",
        printed="Invalid buffer size: 109",
    ),
    PublicText(
        warmup_of_qwen3_vl,
        f"{GITHUB}QwenLM/Qwen3-VL/issues/1508",
        128,
        "2.8",
        "15",
        printed="Invalid buffer size: 437.81 GiB",
    ),
    PublicText(flux_in_single, f"{GITHUB}black-forest-labs/flux/issues/80", 36, "2.4", "14"),
]


def _fit(public: PublicText) -> MacFit:
    model, inputs = public.program()
    report = opcheck.audit(
        model,
        inputs,
        torch=public.torch,
        macos=public.macos,
        memory=public.mac,
        **public.options,  # type: ignore[arg-type]
    )
    assert report.memory is not None
    fit = deciding(report.memory)
    assert fit is not None
    return fit


@pytest.mark.parametrize("public", REPORTS, ids=lambda each: each.source.removeprefix(GITHUB))
def test_the_run_raises_as_on_that_mac(public: PublicText) -> None:
    fit = _fit(public)
    assert fit.state == "raises"
    assert public.printed in fit.prints
    if public.allocated:
        assert fit.allocated / 2**30 == pytest.approx(public.allocated, rel=0.15)
