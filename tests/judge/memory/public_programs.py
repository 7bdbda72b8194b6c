"""Programs of public out-of-memory texts: models of their public configurations, without memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

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
    query, key, value = (torch.zeros(shape, dtype=dtype) for _ in range(3))
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


def llama_2_13b_in_half() -> Program:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 5120, "intermediate_size": 13824}
    with torch.device("meta"):
        config = LlamaConfig(num_hidden_layers=40, num_attention_heads=40, **sizes)
        model = LlamaForCausalLM(config).half()
    return model, {"input_ids": torch.ones(1, 18, dtype=torch.int64)}


def mixtral_in_single() -> Program:
    from transformers import MixtralConfig, MixtralForCausalLM

    with torch.device("meta"):
        model = MixtralForCausalLM(MixtralConfig())
    return model, {"input_ids": torch.ones(1, 8, dtype=torch.int64)}


def sdxl_unet_in_single() -> Program:
    from diffusers import UNet2DConditionModel

    with torch.device("meta"):
        model = UNet2DConditionModel(
            sample_size=128,
            block_out_channels=(320, 640, 1280),
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            transformer_layers_per_block=(1, 2, 10),
            attention_head_dim=(5, 10, 20),
            cross_attention_dim=2048,
            use_linear_projection=True,
            addition_embed_type="text_time",
            addition_time_embed_dim=256,
            projection_class_embeddings_input_dim=2816,
        )
    added = {"text_embeds": torch.zeros(1, 1280), "time_ids": torch.zeros(1, 6)}
    return model, {
        "sample": torch.zeros(1, 4, 128, 128),
        "timestep": torch.zeros(1),
        "encoder_hidden_states": torch.zeros(1, 77, 2048),
        "added_cond_kwargs": added,
    }


def shieldgemma_with_gradients() -> Program:
    """One picture against three policies, which is what the model checks, without ``torch.no_grad``."""
    from transformers import ShieldGemma2Config, ShieldGemma2ForImageClassification

    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 1024,
        "vocab_size": 262208,
    }
    vision = {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "image_size": 896,
        "patch_size": 14,
        "vision_use_head": False,
    }
    with torch.device("meta"):
        config = ShieldGemma2Config(text_config=text, vision_config=vision, mm_tokens_per_image=256)
        config.yes_token_index, config.no_token_index = 1, 2
        model = ShieldGemma2ForImageClassification(config)
    tokens = torch.ones(3, 456, dtype=torch.int64)
    tokens[:, 10:266] = config.image_token_index
    return model, {
        "input_ids": tokens,
        "attention_mask": torch.ones_like(tokens),
        "pixel_values": torch.zeros(3, 3, 896, 896),
        "token_type_ids": (tokens == config.image_token_index).long(),
    }


class InBatchRanking(nn.Module):
    """An encoder trained to rank each passage of a batch, as MultipleNegativesRankingLoss does."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, anchors: torch.Tensor, *passages: torch.Tensor) -> torch.Tensor:
        first, *others = (
            functional.normalize(self.encoder(input_ids=ids).last_hidden_state[:, 0], dim=-1)
            for ids in (anchors, *passages)
        )
        labels = torch.arange(len(anchors), device=first.device)
        return functional.cross_entropy(20 * first @ torch.cat(others).T, labels)


def bge_small_training(batch: int, length: int = 512) -> Program:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 384, "intermediate_size": 1536}
    with torch.device("meta"):
        encoder = BertModel(BertConfig(num_hidden_layers=12, num_attention_heads=12, **sizes))
    anchors, passages = (torch.ones(batch, n, dtype=torch.int64) for n in (32, length))
    return InBatchRanking(encoder), (anchors, passages, passages)


def klue_roberta_training() -> Program:
    from transformers import RobertaConfig, RobertaModel

    sizes = {"vocab_size": 32000, "max_position_embeddings": 514, "type_vocab_size": 1}
    with torch.device("meta"):
        encoder = RobertaModel(RobertaConfig(attn_implementation="eager", **sizes))
    return InBatchRanking(encoder), tuple(torch.full((16, n), 5) for n in (40, 512))


class SpladeTraining(nn.Module):
    """Two steps of a loop that clears the gradients after the forward pass, as the reported one does."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        self.model.train()
        with torch.enable_grad():
            optimizer = torch.optim.AdamW(self.model.parameters())
            for _ in range(2):
                loss = self._loss(tokens, masks)
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
        return loss

    def _loss(self, tokens: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        logits = [
            self.model(input_ids=ids, attention_mask=mask).logits for ids, mask in zip(tokens, masks, strict=True)
        ]
        query, positive, negative = (
            (torch.log(1 + each.relu()) * mask[..., None].expand_as(each)).max(dim=1)[0]
            for each, mask in zip(logits, masks, strict=True)
        )
        margin = 0.2 - (query * positive).sum(1) + (query * negative).sum(1)
        loss: torch.Tensor = margin.relu().mean() + 1e-4 * (query.norm(p=1) + positive.norm(p=1))
        return loss


def splade_training() -> Program:
    from transformers import BertConfig, BertForMaskedLM

    with torch.device("meta"):
        model = BertForMaskedLM(BertConfig())
    tokens = torch.ones(3, 8, 512, dtype=torch.int64)
    masks = torch.ones_like(tokens)
    masks[..., 100:] = 0
    return SpladeTraining(model), (tokens, masks)


class ChatBlock(nn.Module):
    """A block of nanochat: rotary embeddings, normed queries, value embeddings, a window on three of four layers."""

    def __init__(self, index: int, width: int = 768) -> None:
        super().__init__()
        self.is_full = index % 4 == 3
        shapes = ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width))
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(shape)) for shape in shapes)
        values = nn.Embedding(32768, width, dtype=torch.bfloat16)
        self.values = values if index % 2 else None

    def forward(self, x: torch.Tensor, ids: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        qkv, out, up, down = (weight.to(x.dtype) for weight in self.weights)
        heads = functional.linear(_norm(x), qkv).view(*ids.shape, 18, -1)
        q, k, v = heads.chunk(3, dim=-2)
        q, k = (_norm(_rotate(each, angles)) * 1.2 for each in (q, k))
        if self.values is not None:
            v = v + self.values(ids).view_as(v)
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        if self.is_full:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            at = torch.arange(ids.shape[1], device=ids.device)
            far = at[:, None] - at
            window = (far >= 0) & (far <= 512)
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=window)
        x = x + functional.linear(mixed.transpose(1, 2).flatten(2), out)
        return x + functional.linear(functional.linear(_norm(x), up).relu().square(), down)


def _norm(x: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, (x.shape[-1],))


def _rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * angles + right * angles, right * angles - left * angles], dim=-1)


class NanoChat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(32768, 768, dtype=torch.bfloat16)
        self.blocks = nn.ModuleList(ChatBlock(index) for index in range(12))
        self.head = nn.Parameter(torch.empty(32768, 768))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = _norm(self.tokens(ids))
        angles = torch.zeros(1, ids.shape[1], 1, 64, dtype=x.dtype, device=x.device)
        for block in self.blocks:
            x = block(x, ids, angles)
        logits = functional.linear(_norm(x), self.head.to(x.dtype)).float()
        logits = 15 * torch.tanh(logits / 15)
        return functional.cross_entropy(logits.flatten(0, 1), ids.flatten())


def nanochat_training(batch: int) -> Program:
    with torch.device("meta"):
        model = NanoChat()
    return model, (torch.ones(batch, 2048, dtype=torch.int64),)
