"""Inputs of a diffusers model: its forward's names, filled from its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from opcheck.capture.build import values
from opcheck.capture.derive_diffusers_special import SPECIAL
from opcheck.errors import InputError

#: Tokens of a prompt: CLIP's number, which every text-conditioned model takes.
TOKENS = 77
#: Height and width in tokens of an image that a transformer reads as packed latents.
PACKED = 32
#: Frames of a video, in latents and in pixels.
LATENT_FRAMES = 5
FRAMES = 17

#: Models of packed latents: (batch, tokens, channels).
_PACKED = ("Flux", "Chroma", "Bria", "Ovis", "LongCatImage", "QwenImage")
#: The same for videos: their forward takes the three sizes, too.
_PACKED_VIDEO = ("LTXVideoTransformer",)
#: Autoencoders of videos: (batch, channels, frames, height, width).
_VIDEO_AUTOENCODERS = (
    "Allegro",
    "CogVideoX",
    "Cosmos",
    "HunyuanVideo",
    "LTX",
    "Magvit",
    "Mochi",
    "QwenImage",
    "Wan",
)
#: Their latents are (batch, frames, channels, height, width).
_FRAMES_FIRST = ("CogVideoX", "ConsisID", "UNetSpatioTemporal")


class Facts:
    """A model's configuration, its name and dtype, and what its forward asks for."""

    def __init__(self, model: nn.Module) -> None:
        self.config: Any = dict(getattr(model, "config", {}))
        self.name = type(model).__name__
        weights = (weight.dtype for weight in model.parameters() if weight.is_floating_point())
        self.dtype = next(weights, torch.float32)

    def get(self, *names: str, default: Any = None) -> Any:
        """The first of these settings that is set; of a list its first entry."""
        for name in names:
            value = self.config.get(name)
            if isinstance(value, (list, tuple)):
                value = value[0] if value else None
            if value is not None:
                return value
        return default

    def named(self, parts: tuple[str, ...]) -> bool:
        """Whether the class's name has one of these in it."""
        return any(part in self.name for part in parts)

    def floats(self, *shape: int) -> torch.Tensor:
        """Floats of that shape in the dtype of the weights."""
        return values(shape, self.dtype)


def derive(model: nn.Module) -> dict[str, Any]:
    """Keyword arguments for one forward pass with batch size 1.

    Returns:
        ``sample`` 1xCxHxW or ``hidden_states`` in the model's layout, ``timestep`` 1,
        ``encoder_hidden_states`` 1x77xD, and what else the configuration makes forward ask for.

    Raises:
        InputError: forward requires an argument that nothing is known about.
    """
    facts = Facts(model)
    made: dict[str, Any] = {}
    for name, parameter in inspect.signature(model.forward).parameters.items():
        required = parameter.default is parameter.empty
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        special = SPECIAL.get(facts.name, {}).get(name)
        maker = special or (MAKERS.get(name) if required or name in OFFERED else None)
        value = None if maker is None else maker(facts)
        if value is not None:
            made[name] = value
        elif required:
            raise InputError(
                f"nothing says what the input {name!r} of {facts.name} looks like",
                context=f"{facts.name}.forward",
                hint="give every argument: --input sample=1x4x64x64:float32 --input ...",
            )
    return made


def _size(facts: Facts, default: int) -> tuple[int, int]:
    size = facts.config.get("sample_size")
    if isinstance(size, (list, tuple)):
        return size[-2], size[-1]
    if isinstance(size, int):
        return size, size
    height, width = facts.get("sample_height"), facts.get("sample_width")
    return (height, width) if height and width else (default, default)


def _sample(facts: Facts) -> torch.Tensor:
    channels = facts.get("in_channels", "audio_channels", default=3)
    if facts.named(("1D", "Oobleck")):
        return facts.floats(1, channels, facts.get("sample_size", default=65536))
    if facts.named(("Autoencoder", "VQ", "VAE")):
        height, width = _size(facts, 256)
        # The default configuration's size is smaller than what the encoder halves it by.
        height, width = max(height, 64), max(width, 64)
        if facts.named(_VIDEO_AUTOENCODERS):
            return facts.floats(1, channels, FRAMES, min(height, 256), min(width, 256))
        return facts.floats(1, channels, height, width)
    height, width = _size(facts, 64)
    if facts.named(_FRAMES_FIRST):
        return facts.floats(1, LATENT_FRAMES, channels, height, width)
    if facts.named(("3D", "Motion")):
        return facts.floats(1, channels, LATENT_FRAMES, height, width)
    return facts.floats(1, channels, height, width)


def _hidden(facts: Facts) -> torch.Tensor:
    channels = facts.get("in_channels", default=4)
    if facts.named(_PACKED):
        return facts.floats(1, PACKED * PACKED, channels)
    if facts.named(_PACKED_VIDEO):
        return facts.floats(1, LATENT_FRAMES * PACKED * PACKED, channels)
    if "Prior" in facts.name:
        return facts.floats(1, facts.get("embedding_dim"))
    height, width = _size(facts, 32)
    if facts.named(_FRAMES_FIRST):
        return facts.floats(1, LATENT_FRAMES, channels, height, width)
    if "3D" in facts.name:
        return facts.floats(1, channels, LATENT_FRAMES, height, width)
    return facts.floats(1, channels, height, width)


def _tokens(facts: Facts) -> int:
    return int(facts.get("max_text_seq_length", "num_embeddings", default=TOKENS))


def _text(facts: Facts) -> torch.Tensor | None:
    width = facts.get(
        "encoder_hid_dim",
        "caption_channels",
        "joint_attention_dim",
        "text_embed_dim",
        "text_dim",
        "cap_feat_dim",
        "cross_attention_dim",
        "embedding_dim" if "Prior" in facts.name else "",
    )
    # A motion model reads one prompt a frame.
    batch = LATENT_FRAMES if "Motion" in facts.name else 1
    return None if width is None else facts.floats(batch, _tokens(facts), width)


def _text_mask(facts: Facts) -> torch.Tensor:
    return torch.ones((1, _tokens(facts)), dtype=torch.bool)


def _sizes(name: str, size: int) -> tuple[str, Callable[[Facts], int | None]]:
    return name, lambda facts: size if facts.named(_PACKED_VIDEO) else None


def _timestep(facts: Facts) -> torch.Tensor:
    # The schedulers of the U-nets count in integers, the flow-matching ones in fractions.
    counted = "UNet" in facts.name or facts.name == "ControlNetModel"
    return values((1,), torch.int64, 2) if counted else facts.floats(1).abs()


def _labels(facts: Facts) -> torch.Tensor | None:
    if facts.get("class_embed_type") in ("projection", "simple_projection"):
        return facts.floats(1, facts.get("projection_class_embeddings_input_dim"))
    if facts.get("class_embed_type") == "timestep":
        return values((1,), torch.int64, 2)
    count = facts.get("num_class_embeds", "num_embeds_ada_norm")
    return None if count is None else values((1,), torch.int64, count)


def _added(facts: Facts) -> dict[str, torch.Tensor] | None:
    if facts.get("addition_embed_type") == "text_time":
        times = 6
        width = facts.get("projection_class_embeddings_input_dim")
        width -= times * facts.get("addition_time_embed_dim")
        return {"text_embeds": facts.floats(1, width), "time_ids": facts.floats(1, times)}
    if "PixArt" in facts.name:
        return {"resolution": facts.floats(1, 2), "aspect_ratio": facts.floats(1, 1)}
    return None


def _pooled(facts: Facts) -> torch.Tensor | None:
    width = facts.get("pooled_projection_dim", "pooled_projections_dim")
    return None if width is None else facts.floats(1, width)


def _guidance(facts: Facts) -> torch.Tensor | None:
    return facts.floats(1) if facts.get("guidance_embeds") else None


def _condition(facts: Facts) -> torch.Tensor | None:
    """The image beside a U-net's latents: eight times their size, in pixels."""
    if facts.name != "ControlNetModel":
        return None  # the others read latents, each in its own layout
    height, width = _size(facts, 64)
    channels = facts.get("conditioning_channels", default=3)
    return facts.floats(1, channels, 8 * height, 8 * width)


#: An argument of forward -> what makes it; None: this configuration does not use it.
MAKERS: dict[str, Callable[[Facts], Any]] = {
    "sample": _sample,
    "hidden_states": _hidden,
    "timestep": _timestep,
    "encoder_hidden_states": _text,
    "encoder_attention_mask": _text_mask,
    "class_labels": _labels,
    "added_cond_kwargs": _added,
    "pooled_projections": _pooled,
    "guidance": _guidance,
    "img_ids": lambda facts: torch.zeros(PACKED * PACKED, 3, dtype=facts.dtype),
    "txt_ids": lambda facts: torch.zeros(TOKENS, 3, dtype=facts.dtype),
    "controlnet_cond": _condition,
    "added_time_ids": lambda facts: facts.floats(1, 3),
    "proj_embedding": lambda facts: facts.floats(1, facts.get("embedding_dim")),
    "original_size": lambda facts: facts.floats(1, 2),
    "target_size": lambda facts: facts.floats(1, 2),
    "crop_coords": lambda facts: facts.floats(1, 2),
    "img_shapes": lambda _: [[(1, PACKED, PACKED)]],
    **dict(
        (_sizes("num_frames", LATENT_FRAMES), _sizes("height", PACKED), _sizes("width", PACKED))
    ),
}

#: Arguments that have a default and are given where the configuration uses them.
OFFERED = {
    "added_cond_kwargs",
    "class_labels",
    "encoder_hidden_states",
    "guidance",
    "height",
    "img_ids",
    "img_shapes",
    "num_frames",
    "pooled_projections",
    "timestep",
    "txt_ids",
    "width",
}
