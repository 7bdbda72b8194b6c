"""Inputs that only one kind of model has, or one part of it: what robots, speakers and readers are called with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opcheck.capture import derive_image, derive_text
from opcheck.capture.build import values
from opcheck.capture.derive_config import Facts

#: Frames of speech, or of a spectrum of it: a second or two.
FRAMES = 100
#: Boxes on a page.
BOXES = 100
#: Regions of an image that a detector has found: Faster R-CNN as it was used for VisualBERT.
REGIONS = 36


def _first(_facts: Facts) -> torch.Tensor:
    """The first speaker, or the first language."""
    return torch.zeros((1, 1), dtype=torch.int64)


def _page(_facts: Facts) -> torch.Tensor:
    """Boxes on a page of a thousand by a thousand, each below the one before."""
    top = 10.0 * torch.arange(BOXES)
    left = torch.zeros_like(top)
    return torch.stack((left, top, left + 900, top + 9), dim=-1).unsqueeze(0)


def _documents(facts: Facts) -> torch.Tensor:
    """Rag: the question with each document that was found for it."""
    length = min(facts.size("max_combined_length", default=300), derive_text.TOKENS)
    return values((facts.config.n_docs, length), torch.int64, derive_text.vocabulary(facts))


def _seen(facts: Facts, *shape: int) -> torch.Tensor:
    """VisualBERT: ones, for each of the answers to choose from."""
    choices = (derive_text.CHOICES,) if "MultipleChoice" in facts.name else ()
    return torch.ones((1, *choices, *shape), dtype=torch.int64)


def _regions(facts: Facts) -> torch.Tensor:
    """VisualBERT: vectors of what a detector saw."""
    width = facts.size("visual_embedding_dim", default=512)
    return facts.floats(*_seen(facts, REGIONS).shape, width)


def _everything(facts: Facts) -> dict[str, torch.Tensor]:
    """Perceiver: a video, its sound and its label."""
    config = facts.config
    sound = config.num_frames * config.audio_samples_per_frame
    return {
        "image": facts.floats(1, config.num_frames, 3, config.image_size, config.image_size),
        "audio": facts.floats(1, sound, 1),
        "label": facts.floats(1, config.num_labels),
    }


def _points(facts: Facts) -> dict[str, torch.Tensor | None]:
    """Perceiver: which of the pixels and samples are written now, one part of 128."""
    config = facts.config
    pixels = config.num_frames * config.image_size**2
    samples = config.num_frames * config.audio_samples_per_frame // config.samples_per_patch
    return {
        "image": torch.arange(pixels // 128),
        "audio": torch.arange(max(1, samples // 128)),
        "label": None,
    }


def _cameras(facts: Facts) -> torch.Tensor:
    """PI0: an image from each of two cameras."""
    return facts.floats(1, 2, *derive_image.image_shape(facts))


def _instruction(facts: Facts) -> torch.Tensor:
    """PI0: the parts of both images, then what to do."""
    vision = facts.config.vlm_config.vision_config
    parts = 2 * (vision.image_size // vision.patch_size) ** 2
    mark = facts.config.vlm_config.image_token_id
    words = values((1, 32), torch.int64, facts.config.vlm_config.text_config.vocab_size)
    return derive_text.with_placeholders(words, mark, parts)


def _actions(facts: Facts) -> torch.Tensor:
    return facts.floats(1, facts.config.chunk_size, facts.config.max_action_dim)


def _wave(facts: Facts) -> torch.Tensor:
    """A second of sound by channels, as many samples as the steps of the encoder divide."""
    hop = facts.size("hop_length", default=320)
    return facts.floats(1, facts.size("channels", "audio_channels"), hop * (24000 // hop))


def _steps(facts: Facts) -> int:
    """How many vectors the encoder makes of that second."""
    return _wave(facts).shape[-1] // facts.size("hop_length", default=320)


def _mel(facts: Facts, length: int = FRAMES) -> torch.Tensor:
    return facts.floats(1, length, facts.size("mel_dim", default=80))


#: (model type or class, argument of forward) -> what makes it.
SPECIAL: dict[tuple[str, str], Callable[[Facts], Any]] = {
    ("pi0", "pixel_values"): _cameras,
    ("pi0", "pixel_attention_mask"): lambda _: torch.ones((1, 2), dtype=torch.bool),
    ("pi0", "input_ids"): _instruction,
    ("pi0", "attention_mask"): lambda facts: torch.ones_like(_instruction(facts)),
    ("pi0", "state"): lambda facts: facts.floats(1, facts.config.max_state_dim),
    ("pi0", "noise"): _actions,
    ("pi0", "timestep"): lambda _: torch.ones(1),
    ("pi0", "action_embeds"): lambda facts: facts.floats(
        1, facts.config.chunk_size + 1, facts.config.dit_config.hidden_size
    ),
    ("PPDocLayoutV2ReadingOrder", "boxes"): _page,
    ("PPDocLayoutV2ReadingOrder", "labels"): lambda _: torch.zeros((1, BOXES), dtype=torch.int64),
    ("PPDocLayoutV2ReadingOrder", "mask"): lambda _: torch.ones((1, BOXES), dtype=torch.bool),
    ("SLANetSLAHead", "hidden_states"): lambda facts: facts.floats(
        1, 256, facts.config.post_conv_out_channels
    ),
    ("phi4_multimodal_audio", "hidden_states"): lambda facts: facts.floats(
        1, 4 * FRAMES, facts.size("input_size", default=80)
    ),
    ("phi4_multimodal_audio", "mask"): lambda _: torch.ones((1, 4 * FRAMES), dtype=torch.bool),
    ("qwen2_5_omni_talker", "thinker_reply_part"): lambda facts: facts.floats(
        1, 32, facts.config.embedding_size
    ),
    ("qwen2_5_omni_bigvgan", "mel_spectrogram"): lambda facts: facts.floats(
        1, facts.size("mel_dim", default=80), FRAMES
    ),
    ("qwen2_5_omni_dit", "hidden_states"): lambda facts: _mel(facts, FRAMES * facts.config.repeats),
    ("qwen2_5_omni_dit", "condition_vector"): _mel,
    ("qwen2_5_omni_dit", "speaker_embedding"): lambda facts: facts.floats(
        1, FRAMES * facts.config.repeats, facts.config.enc_emb_dim
    ),
    ("qwen2_5_omni_dit", "quantized_code"): lambda facts: values(
        (1, FRAMES), torch.int64, facts.config.num_embeds
    ),
    ("qwen2_5_omni_dit", "time_step"): lambda _: torch.tensor(0.5),
    ("qwen2_5_omni_token2wav", "code"): lambda facts: values(
        (1, FRAMES), torch.int64, facts.config.dit_config.num_embeds
    ),
    ("qwen2_5_omni_token2wav", "conditioning"): lambda facts: facts.floats(
        1, facts.config.dit_config.enc_emb_dim
    ),
    ("qwen2_5_omni_token2wav", "reference_mel"): lambda facts: facts.floats(
        1, FRAMES, facts.config.dit_config.mel_dim
    ),
    ("Qwen3OmniMoeCode2Wav", "codes"): lambda facts: values(
        (1, facts.config.num_quantizers, FRAMES), torch.int64, facts.config.codebook_size
    ),
    # The talker's state and its first code; each later code is a step of its own.
    ("qwen3_omni_moe_talker_code_predictor", "inputs_embeds"): lambda facts: facts.floats(
        1, 2, facts.config.hidden_size
    ),
    # It hears whole windows.
    ("qwen3_asr_encoder", "input_features"): lambda facts: facts.floats(
        1, facts.config.num_mel_bins, 8 * facts.config.n_window
    ),
    ("qwen3_asr_encoder", "input_features_mask"): lambda facts: torch.ones(
        (1, 8 * facts.config.n_window), dtype=torch.int64
    ),
    # Eight frames of the spectrum make one vector of the text.
    ("voxtral_realtime", "input_features"): lambda facts: facts.floats(
        1,
        facts.size("num_mel_bins", default=128),
        2 * facts.config.downsample_factor * derive_text.length(facts),
    ),
    **{
        ("rag", name): make
        for name, make in {
            "context_input_ids": _documents,
            "context_attention_mask": lambda facts: torch.ones_like(_documents(facts)),
            "doc_scores": lambda facts: facts.floats(1, facts.config.n_docs),
        }.items()
    },
    ("SeamlessM4TCodeHifiGan", "input_ids"): lambda facts: values(
        (1, FRAMES), torch.int64, facts.config.unit_hifi_gan_vocab_size
    ),
    ("SeamlessM4TCodeHifiGan", "spkr_id"): _first,
    ("SeamlessM4TCodeHifiGan", "lang_id"): _first,
    ("SpeechEncoderDecoderModel", "inputs"): lambda facts: facts.floats(1, 16000),
    ("visual_bert", "attention_mask"): lambda facts: _seen(facts, derive_text.length(facts)),
    ("visual_bert", "visual_embeds"): _regions,
    ("visual_bert", "visual_attention_mask"): lambda facts: _seen(facts, REGIONS),
    ("visual_bert", "visual_token_type_ids"): lambda facts: _seen(facts, REGIONS),
    ("visual_bert", "region_to_phrase_position"): lambda _: torch.zeros(
        (1, REGIONS), dtype=torch.int64
    ),
    ("PerceiverForMultimodalAutoencoding", "inputs"): _everything,
    ("PerceiverForMultimodalAutoencoding", "subsampled_output_points"): _points,
    ("PerceiverForImageClassificationLearned", "inputs"): lambda facts: facts.floats(
        1, 3, facts.config.image_size, facts.config.image_size
    ),
    ("xcodec2", "input_values"): _wave,
    # The semantic model reads a frame of the spectrum for each step of the acoustic one.
    ("xcodec2", "input_features"): lambda facts: facts.floats(
        1, _steps(facts), facts.size("feature_projection_input_dim", default=160)
    ),
    ("xcodec2", "input_features_mask"): lambda facts: torch.ones((1, _steps(facts))),
    ("vibevoice_acoustic_tokenizer", "input_values"): _wave,
    ("vibevoice_acoustic_tokenizer_encoder", "hidden_states"): _wave,
    **{
        (kind, name): make
        for kind in ("pe_audio_video", "pe_audio_video_encoder")
        for name, make in {
            "pixel_values_videos": derive_image.MAKERS["pixel_values_videos"],
            "input_values": lambda facts: facts.floats(1, 1, 1920 * 25),
        }.items()
    },
}
