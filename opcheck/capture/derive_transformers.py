"""Inputs of a transformers model: its forward's names, filled from its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from opcheck.capture.build import values
from opcheck.errors import InputError

#: Tokens in a text: a sentence or two, where the model has positions for as many.
TOKENS = 128

#: What limits the length of a text, by the names that configurations use.
_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "max_target_positions")

#: Where a configuration keeps those of its parts.
_PARTS = (
    "text_config",
    "vision_config",
    "audio_config",
    "decoder",
    "encoder",
    "backbone_config",
    "thinker_config",
)

#: A model with such a setting writes its images into the text, and runs on text alone.
_IMAGE_TOKENS = ("image_token_id", "image_token_index", "image_token")


def derive(model: nn.Module) -> tuple[dict[str, torch.Tensor], str]:
    """Keyword arguments for one forward pass with batch size 1, and a note for the report.

    Returns:
        ``input_ids`` 1x128, ``pixel_values`` 1x3xHxW, ``input_values`` 1x16000 and the like: the
        model's main input, and what its forward does not run without.

    Raises:
        InputError: the main input is one that nothing is known about.
    """
    config: Any = model.config
    accepted = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", "input_ids")
    wanted = list(main) if isinstance(main, (list, tuple)) else [main]
    wanted += [
        name
        for name, parameter in accepted.items()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    left_out = ""
    if "input_ids" in wanted:
        both = [name for name in ("pixel_values", "input_features") if name in accepted]
        if any(_setting(config, name) is not None for name in _IMAGE_TOKENS):
            left_out = "".join(f"; without {name}, which --input gives" for name in both)
        elif _setting(config, "image_size") or hasattr(config, "audio_config"):
            wanted += both
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in accepted:
        wanted.append("decoder_input_ids")
    for name in wanted:
        if name not in MAKERS:
            raise InputError(
                f"nothing says what the input {name!r} of {type(model).__name__} looks like",
                context=f"transformers:{type(model).__name__} takes {', '.join(accepted)}",
                hint=f"give it: --input {name}=1x128:float32",
            )
    made = {name: MAKERS[name](config) for name in dict.fromkeys(wanted)}
    return (
        {name: _like(tensor, model) for name, tensor in made.items()},
        f"inputs as the configuration describes them{left_out}",
    )


def _like(tensor: torch.Tensor, model: nn.Module) -> torch.Tensor:
    """Floating inputs have the dtype of the weights, as the model's users cast them."""
    floating = (weight.dtype for weight in model.parameters() if weight.is_floating_point())
    return tensor.to(next(floating, tensor.dtype)) if tensor.is_floating_point() else tensor


def _configs(config: Any) -> Iterator[Any]:
    yield config
    for name in _PARTS:
        part = getattr(config, name, None)
        if part is not None and not isinstance(part, (dict, str)):
            yield from _configs(part)


def _setting(config: Any, *names: str, default: Any = None) -> Any:
    """The first of these settings that the configuration or one of its parts has."""
    for part in _configs(config):
        for name in names:
            value = getattr(part, name, None)
            if value is not None:
                return value
    return default


def _tokens(config: Any) -> torch.Tensor:
    # Models that count positions from the padding token have two fewer than they say.
    limit = _setting(config, *_LENGTHS, default=-1)
    length = TOKENS if limit < 0 else max(1, min(TOKENS, limit - 2))
    return values((1, length), torch.int64, _setting(config, "vocab_size", default=2))


def _decoder_tokens(config: Any) -> torch.Tensor:
    return _tokens(getattr(config, "decoder", None) or config)


def _image_shape(config: Any) -> tuple[int, int, int]:
    channels = _setting(config, "num_channels", "in_channels", "in_chans", default=3)
    size = _setting(config, "image_size", default=224)
    if isinstance(size, dict):
        size = (size["height"], size["width"])
    height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    return channels, height, width


def _image(config: Any) -> torch.Tensor:
    frames = getattr(config, "num_frames", None)
    return values((1, *((frames,) if frames else ()), *_image_shape(config)), torch.float32)


def _video(config: Any) -> torch.Tensor:
    frames = _setting(config, "frames_per_clip", "num_frames", default=16)
    channels, height, width = _image_shape(config)
    height = width = _setting(config, "crop_size", default=height)
    return values((1, frames, channels, height, width), torch.float32)


def _wave(config: Any) -> torch.Tensor:
    if config.model_type == "audio-spectrogram-transformer":
        return values((1, config.max_length, config.num_mel_bins), torch.float32)
    channels = getattr(config, "audio_channels", 1 if config.model_type == "dac" else None)
    if channels:
        return values((1, channels, 24000), torch.float32)
    return values((1, 16000), torch.float32)


def _spectrum(config: Any) -> torch.Tensor:
    if config.model_type == "whisper":
        return values((1, config.num_mel_bins, 2 * config.max_source_positions), torch.float32)
    if config.model_type == "clap":
        audio = config.audio_config
        return values((1, 1, 1001, audio.num_mel_bins), torch.float32)
    width = _setting(
        config, "input_feat_per_channel", "feature_projection_input_dim", "num_mel_bins", default=80
    )
    return values((1, 400, width), torch.float32)


def _series(config: Any) -> torch.Tensor:
    return values((1, config.context_length, config.num_input_channels), torch.float32)


#: The main input of a model -> what makes it from the configuration.
MAKERS: dict[str, Callable[[Any], torch.Tensor]] = {
    "input_ids": _tokens,
    "decoder_input_ids": _decoder_tokens,
    "pixel_values": _image,
    "pixel_values_videos": _video,
    "input_values": _wave,
    "input_features": _spectrum,
    "past_values": _series,
}
