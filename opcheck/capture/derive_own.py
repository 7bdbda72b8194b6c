"""Inputs that one model of transformers alone has, or has in another form: by its class and forward's argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opcheck.capture import derive_text
from opcheck.capture.build import values
from opcheck.capture.derive_audio import FRAMES, SAMPLES
from opcheck.capture.derive_config import Facts
from opcheck.capture.derive_image import GRID

#: Image tokens of a large Q-Former's vision part: CLIP's patches of 14 in 224 pixels, and its class.
_SEEN = 257

Make = Callable[[Facts], Any]


def _codes(facts: Facts) -> torch.Tensor:
    """Tokens of a sound: a row for each codebook, as long as the text."""
    shape = (1, facts.size("num_codebooks"), derive_text.length(facts))
    return values(shape, torch.int64, facts.size("audio_vocab_size", "codebook_size"))


def _bins(facts: Facts) -> torch.Tensor:
    shape = (1, FRAMES // 4, facts.size("n_mel_bins"))
    return values(shape, torch.int64, facts.size("mel_vocab_size"))


def _flat_patches(facts: Facts) -> torch.Tensor:
    part = facts.part("vision_config") or facts
    pixels = part.size("num_channels", default=3) * part.size("patch_size") ** 2
    return facts.floats(GRID * GRID, pixels)


def _strip(facts: Facts) -> torch.Tensor:
    """Patches side by side, one patch high."""
    side = facts.size("patch_size")
    return facts.floats(1, facts.size("num_channels", default=3), side, side * GRID * GRID)


def _folded(facts: Facts) -> torch.Tensor:
    """Patches with their frames; channels last."""
    side = facts.size("patch_size")
    channels = facts.size("num_channels", default=3)
    return facts.floats(GRID * GRID, facts.size("temporal_patch_size"), side, side, channels)


def _merged(facts: Facts) -> torch.Tensor:
    """Patches as large as a token of the text stands for; channels last."""
    side = facts.size("patch_size") * facts.size("spatial_merge_size")
    return facts.floats(GRID * GRID, side, side, facts.size("num_channels", default=3))


def _layers_seen(facts: Facts) -> torch.Tensor:
    """What several layers of the vision part made of an image's patches, beside each other."""
    width = facts.size("hidden_size") * len(facts.get("vision_feature_layer"))
    return facts.floats(1, GRID * GRID, width)


def _layers_read(facts: Facts) -> torch.Tensor:
    """What several layers of the model that is helped made of its text, beside each other."""
    width = facts.size("hidden_size") * len(facts.get("target_layer_ids"))
    return facts.floats(1, derive_text.length(facts), width)


def _all_of_it(facts: Facts) -> torch.Tensor:
    return torch.ones_like(derive_text.tokens(facts))


_SIDE_BY_SIDE: dict[str, Make] = {
    "pixel_values": _strip,
    "target_sizes": lambda _: torch.tensor([[GRID, GRID]], dtype=torch.int32),
}

#: Class -> argument -> what makes it.
_OWN: dict[str, dict[str, Make]] = {
    "Blip2ForImageTextRetrieval": {"attention_mask": _all_of_it},
    "Blip2QFormerModel": {
        "encoder_hidden_states": lambda facts: facts.floats(
            1, _SEEN, facts.size("encoder_hidden_size")
        )
    },
    "BrosSpadeEEForTokenClassification": {
        "attention_mask": _all_of_it,
        "bbox_first_token_mask": lambda facts: _all_of_it(facts).bool(),
    },
    "ClvpModelForConditionalGeneration": {
        "input_features": lambda facts: facts.floats(1, facts.size("feature_size"), FRAMES)
    },
    # An image of 1024 pixels in patches of 16, which its encoder halves twice more.
    "DeepseekOcr2VisionModel": {"pixel_values": lambda facts: facts.floats(1, 3, 1024, 1024)},
    "Dots3NoteAudioModel": {
        "chunk_sample_lengths": lambda facts: torch.tensor([FRAMES * facts.size("hop_length")]),
        "input_features": lambda facts: facts.floats(1, facts.size("feature_size"), FRAMES),
    },
    "HunYuanVLVisionTransformer": {"pixel_values": _flat_patches},
    "Inkling2VisionModel": {"pixel_values": _merged},
    "InklingAudioModel": {"audio_input_ids": _bins},
    "InklingVisionModel": {"pixel_values": _folded},
    # The first question has two options and is asked before the last token.
    "JevForDecision": {
        "marks": lambda facts: torch.tensor([[derive_text.length(facts)]]),
        "num_options": lambda _: torch.tensor([[2]]),
        "question_type_ids": lambda _: torch.tensor([[0]]),
    },
    "MiniCPMOcrVisionModel": _SIDE_BY_SIDE,
    "MiniCPMV4_7VisionModel": _SIDE_BY_SIDE,
    # Four patches are pooled to one token.
    "Molmo2Adapter": {
        "image_features": _layers_seen,
        "pooled_patches_idx": lambda _: torch.arange(GRID * GRID).reshape(-1, 4),
    },
    "MoshiForConditionalGeneration": {"user_audio_codes": _codes, "moshi_audio_codes": _codes},
    "MuseGlimmerAssistantModel": {
        "noise_embeds": lambda facts: facts.floats(
            1, facts.size("block_size"), facts.size("hidden_size")
        ),
        "context_hidden_states": _layers_read,
    },
    "NeuCodecModel": {"input_values": lambda facts: facts.floats(1, 1, SAMPLES)},
}

#: The same, as derive_transformers reads it.
SPECIAL = {(name, argument): make for name, own in _OWN.items() for argument, make in own.items()}
