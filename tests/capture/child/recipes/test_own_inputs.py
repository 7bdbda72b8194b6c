"""What one model alone is called with fits that model: each runs on the CPU, for real."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opcheck.capture.child.inputs.specs import inputs_for
from opcheck.capture.child.loading.load import load

pytest.importorskip("transformers")

TINY = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("name", "config", "specs"),
    [
        (
            "Blip2QFormerModel",
            {**TINY, "encoder_hidden_size": 24},
            ("query_embeds=1x32x32:float32", "encoder_hidden_states=1x257x24:float32"),
        ),
        (
            "InklingAudioModel",
            {"hidden_size": 16, "text_hidden_size": 16, "n_mel_bins": 5, "mel_vocab_size": 7},
            ("audio_input_ids=1x100x5:int64",),
        ),
        (
            "MiniCPMOcrVisionModel",
            {**TINY, "image_size": 224, "patch_size": 14},
            ("pixel_values=1x3x14x3584:float32", "target_sizes=1x2:int32"),
        ),
        (
            "Molmo2Adapter",
            {
                "hidden_size": 8,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "head_dim": 4,
                "intermediate_size": 16,
                "text_hidden_size": 16,
            },
            ("image_features=1x256x16:float32", "pooled_patches_idx=64x4:int64"),
        ),
    ],
)
def test_a_model_runs_with_the_inputs_that_it_alone_has(
    name: str, config: dict[str, Any], specs: tuple[str, ...]
) -> None:
    made = load(f"transformers:{name}", config)
    inputs = inputs_for(made)
    assert sorted(inputs.specs) == sorted(specs)
    assert isinstance(made.model, torch.nn.Module)
    with torch.no_grad():
        made.model.eval()(**inputs.kwargs)
