"""Sound for a transformers model, as a wave or as a spectrum, and what sound is made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from opcheck.capture.build import values
from opcheck.capture.derive_config import Facts

#: Frames of a spectrum where the model has no length of its own: four seconds.
FRAMES = 400
#: Samples of a wave: one second.
SAMPLES = 16000

#: Bands of a spectrum, by the names that configurations use.
_BANDS = (
    "input_feat_per_channel",
    "feature_projection_input_dim",
    "num_mel_bins",
    "input_feat_size",
    "feature_size",
    "model_in_dim",
    "input_dim",
)

#: They read (batch, frames, bands) though a convolution comes first.
_FRAMES_FIRST = ("speech_to_text",)

#: They read several frames as one.
_STACKED = (
    "fun_asr_nano_encoder",
    "granite_speech5",
    "granite_speech5_ctc",
    "granite_speech5_encoder",
)


def _wave(facts: Facts) -> torch.Tensor:
    if facts.kind == "audio-spectrogram-transformer":
        return facts.floats(1, facts.config.max_length, facts.config.num_mel_bins)
    channels = getattr(facts.config, "audio_channels", 1 if facts.kind == "dac" else None)
    if channels:
        return facts.floats(1, channels, 24000)
    if "pe_audio" in facts.kind or facts.kind == "xcodec":
        return facts.floats(1, 1, SAMPLES - SAMPLES % 1920)
    return facts.floats(1, SAMPLES - SAMPLES % 1920 if "muse_spark" in facts.kind else SAMPLES)


def _spectrum(facts: Facts) -> torch.Tensor:
    part = facts.part("audio_config") or facts.part("encoder_config") or facts
    bands = _bands(facts)
    if "clap" in facts.kind:
        return facts.floats(1, 1, 1001, bands)
    reads = next((one for one in facts.model.modules() if isinstance(one, nn.Conv1d)), None)
    if reads is not None and reads.in_channels == bands and facts.kind not in _FRAMES_FIRST:
        positions = part.size("max_source_positions", default=0)
        return facts.floats(1, bands, 2 * positions or FRAMES)
    return facts.floats(1, FRAMES, bands)


def _bands(facts: Facts) -> int:
    """How many numbers a frame has; several bands of several frames where the first layer says so."""
    part = facts.part("audio_config") or facts.part("encoder_config") or facts
    bands = part.size(*_BANDS, default=128 if "gemma4" in facts.kind else 80)
    layers = (
        one for one in facts.model.modules() if isinstance(one, (nn.Conv1d, nn.Conv2d, nn.Linear))
    )
    first = next(layers, None)
    if isinstance(first, nn.Linear) and first.in_features % bands == 0 and facts.kind in _STACKED:
        return first.in_features
    return bands


def _heard(facts: Facts) -> torch.Tensor:
    """All of the spectrum counts."""
    spectrum = _spectrum(facts)
    bands = _bands(facts)
    return torch.ones(
        (1, spectrum.shape[1 if spectrum.shape[-1] == bands else 2]), dtype=torch.bool
    )


#: An argument of forward -> what makes it.
MAKERS: dict[str, Callable[[Facts], Any]] = {
    "input_values": _wave,
    "input_features": _spectrum,
    "input_features_mask": _heard,
    "feature_attention_mask": _heard,
    "spectrogram": lambda facts: facts.floats(
        1, FRAMES // 4, facts.size("model_in_dim", "num_mel_bins", default=80)
    ),
    "latents": lambda facts: facts.floats(1, facts.size("hidden_size", default=512), 25),
    "codebook_idx": lambda _: 1,
    "audio_mel": _spectrum,
    "audio_mel_mask": lambda _: torch.zeros((1, FRAMES), dtype=torch.bool),
}
SPECIAL: dict[tuple[str, str], Callable[[Facts], Any]] = {
    ("fine_acoustics", "input_ids"): lambda facts: values(
        (1, 128, facts.size("n_codes_total", default=8)), torch.int64, 1024
    ),
}
