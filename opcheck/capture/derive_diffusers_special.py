"""Inputs that one model of diffusers alone has, or has in another form: by class and argument of forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Frames of a video, in latents; height and width of its latents; tokens of a prompt.
_FRAMES = 5
_SIDE = 32
_TOKENS = 77
#: Tokens of a prompt that T5 reads.
_TOKENS_T5 = 256

Make = Callable[[Any], Any]


def _ones(*shape: int) -> Make:
    return lambda _: torch.ones(shape)


def _floats(*shape: int) -> Make:
    return lambda facts: facts.floats(*shape)


def _image(channels: int, side: int = _SIDE) -> Make:
    return _floats(1, channels, side, side)


def _latents(facts: Any) -> Any:
    """What a ControlNet of packed latents is led by: latents."""
    return facts.floats(1, _SIDE * _SIDE, facts.get("in_channels"))


def _rope(length: int, width: int) -> Make:
    return lambda facts: (facts.floats(length, width), facts.floats(length, width))


_HUNYUAN: dict[str, Make] = {
    "encoder_hidden_states": lambda facts: facts.floats(
        1, _TOKENS, facts.get("cross_attention_dim")
    ),
    "text_embedding_mask": _ones(1, _TOKENS),
    "encoder_hidden_states_t5": lambda facts: facts.floats(
        1, _TOKENS_T5, facts.get("cross_attention_dim_t5")
    ),
    "text_embedding_mask_t5": _ones(1, _TOKENS_T5),
    "image_meta_size": _ones(1, 6),
    "style": lambda _: torch.zeros(1, dtype=torch.int64),
    "image_rotary_emb": lambda facts: _rope(256, facts.get("attention_head_dim"))(facts),
}

#: Class -> argument -> what makes it.
SPECIAL: dict[str, dict[str, Make]] = {
    # Its encoder reads Fourier features, five numbers for each channel.
    "AutoencoderKLMochi": {"sample": _floats(1, 3, 7, 64, 64)},
    "ControlNetUnionModel": {
        "controlnet_cond": lambda facts: [facts.floats(1, 3, 512, 512)],
        "control_type": _ones(1, 6),
        "control_type_idx": lambda _: [0],
    },
    "CosmosTransformer3DModel": {
        "fps": lambda _: 24,
        "padding_mask": lambda facts: facts.floats(1, 1, 8 * _SIDE, 8 * _SIDE),
        "hidden_states": lambda facts: facts.floats(
            1, facts.get("in_channels"), _FRAMES, _SIDE, _SIDE
        ),
    },
    "Flux2Transformer2DModel": {
        "img_ids": lambda facts: torch.zeros(_SIDE * _SIDE, 4, dtype=facts.dtype),
        "txt_ids": lambda facts: torch.zeros(_TOKENS, 4, dtype=facts.dtype),
    },
    "FluxControlNetModel": {"controlnet_cond": _latents},
    "HunyuanDiT2DModel": _HUNYUAN,
    "HunyuanDiT2DControlNetModel": {**_HUNYUAN, "controlnet_cond": _image(4)},
    "I2VGenXLUNet": {
        "sample": _floats(1, 4, _FRAMES, _SIDE, _SIDE),
        "image_latents": _floats(1, 4, _FRAMES, _SIDE, _SIDE),
        "image_embeddings": lambda facts: facts.floats(1, facts.get("cross_attention_dim")),
        "fps": lambda _: torch.tensor([16]),
    },
    "Kandinsky3UNet": {"encoder_attention_mask": _ones(1, _TOKENS)},
    "Kandinsky5Transformer3DModel": {
        "hidden_states": lambda facts: facts.floats(1, 1, _SIDE, _SIDE, facts.get("in_visual_dim")),
        "encoder_hidden_states": lambda facts: facts.floats(1, _TOKENS, facts.get("in_text_dim")),
        "pooled_projections": lambda facts: facts.floats(1, facts.get("in_text_dim2")),
        "visual_rope_pos": lambda _: [
            torch.arange(1),
            torch.arange(_SIDE // 2),
            torch.arange(_SIDE // 2),
        ],
        "text_rope_pos": lambda _: torch.arange(_TOKENS),
    },
    "LatteTransformer3DModel": {
        "hidden_states": lambda facts: facts.floats(
            1, facts.get("in_channels"), facts.get("video_length"), _SIDE, _SIDE
        ),
        "encoder_hidden_states": lambda facts: facts.floats(
            1, _TOKENS, facts.get("caption_channels", "cross_attention_dim")
        ),
        "timestep": lambda _: torch.ones(1, dtype=torch.int64),
    },
    "QwenImageControlNetModel": {"controlnet_cond": _latents},
    "SD3ControlNetModel": {
        "controlnet_cond": lambda facts: facts.floats(
            1, facts.get("in_channels"), facts.get("sample_size"), facts.get("sample_size")
        ),
    },
    "SanaControlNetModel": {
        "controlnet_cond": lambda facts: facts.floats(
            1, facts.get("in_channels"), facts.get("sample_size"), facts.get("sample_size")
        ),
    },
    "SparseControlNetModel": {
        "sample": _floats(1, 4, _FRAMES, _SIDE, _SIDE),
        "encoder_hidden_states": lambda facts: facts.floats(
            _FRAMES, _TOKENS, facts.get("cross_attention_dim")
        ),
        "controlnet_cond": lambda facts: facts.floats(
            1, facts.get("conditioning_channels"), _FRAMES, _SIDE, _SIDE
        ),
        "conditioning_mask": lambda facts: facts.floats(1, 1, _FRAMES, _SIDE, _SIDE),
    },
    "StableAudioDiTModel": {
        "hidden_states": lambda facts: facts.floats(
            1, facts.get("in_channels"), facts.get("sample_size")
        ),
        "encoder_hidden_states": lambda facts: facts.floats(
            1, _TOKENS, facts.get("cross_attention_input_dim")
        ),
        "global_hidden_states": lambda facts: facts.floats(
            1, 1, facts.get("global_states_input_dim")
        ),
        "rotary_embedding": lambda facts: _rope(
            facts.get("sample_size") + 1, facts.get("attention_head_dim") // 2
        )(facts),
    },
    "StableCascadeUNet": {
        "timestep_ratio": _ones(1),
        "clip_text_pooled": lambda facts: facts.floats(
            1, 1, facts.get("clip_text_pooled_in_channels")
        ),
    },
    "T2IAdapter": {"x": _image(3, 512)},
    "UNetControlNetXSModel": {
        "sample": _image(4),
        "controlnet_cond": _image(3, 8 * _SIDE),
    },
    # Its picture is of tokens; the five numbers are its sizes, its crop and a score.
    "UVit2DModel": {
        "input_ids": lambda _: torch.arange(_SIDE * _SIDE).reshape(1, _SIDE, _SIDE),
        "encoder_hidden_states": lambda facts: facts.floats(
            1, _TOKENS, facts.get("encoder_hidden_size")
        ),
        "pooled_text_emb": lambda facts: facts.floats(1, facts.get("cond_embed_dim")),
        "micro_conds": lambda facts: facts.floats(
            1, facts.get("micro_cond_embed_dim") // facts.get("micro_cond_encode_dim")
        ),
    },
    # It is led by one frame less than it makes, and by a face at four times the frames less three.
    "WanAnimateTransformer3DModel": {
        "pose_hidden_states": lambda facts: facts.floats(
            1, facts.get("latent_channels"), _FRAMES - 1, _SIDE, _SIDE
        ),
        "face_pixel_values": _floats(1, 3, 4 * (_FRAMES - 1) - 3, 512, 512),
    },
    "WanVACETransformer3DModel": {
        "control_hidden_states": lambda facts: facts.floats(
            1, facts.get("vace_in_channels"), _FRAMES, _SIDE, _SIDE
        ),
    },
    # A list of pictures, with a prompt for each.
    "ZImageTransformer2DModel": {
        "x": lambda facts: [facts.floats(facts.get("in_channels"), 1, _SIDE, _SIDE)],
        "t": _ones(1),
        "cap_feats": lambda facts: [facts.floats(_TOKENS, facts.get("cap_feat_dim"))],
    },
}
