"""What parts of models and models of several senses are called with: each runs on the CPU, for real."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opcheck.capture.child.inputs.specs import inputs_for
from opcheck.capture.child.loading.load import load

pytest.importorskip("transformers")

TINY = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("name", "config", "spec"),
    [
        pytest.param(
            "EsmForProteinFolding",
            {**TINY, "esmfold_config": {"trunk": {"num_blocks": 1, "max_recycles": 1}}},
            "input_ids=1x64:int64",
            marks=pytest.mark.slow,
        ),
        (
            "VisualBertForQuestionAnswering",
            {**TINY, "visual_embedding_dim": 8, "vocab_size": 99},
            "visual_embeds=1x36x8:float32",
        ),
        (
            "VisualBertForMultipleChoice",
            {**TINY, "visual_embedding_dim": 8, "vocab_size": 99},
            "visual_embeds=1x2x36x8:float32",
        ),
        (
            "VisualBertForRegionToPhraseAlignment",
            {**TINY, "visual_embedding_dim": 8, "vocab_size": 99},
            "region_to_phrase_position=1x36:int64",
        ),
        (
            "SLANetSLAHead",
            {"hidden_size": 16, "post_conv_out_channels": 12, "max_text_length": 3},
            "hidden_states=1x256x12:float32",
        ),
        ("PPDocLayoutV2ReadingOrder", TINY, "boxes=1x100x4:float32"),
        ("Phi4MultimodalAudioModel", {"num_blocks": 1}, "mask=1x400:bool"),
        (
            "Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration",
            {**TINY, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64},
            "inputs_embeds=1x2x32:float32",
        ),
        (
            "VibeVoiceAcousticTokenizerEncoderModel",
            {"num_filters": 2, "depths": [1] * 7, "hidden_size": 4},
            "hidden_states=1x1x22400:float32",
        ),
    ],
)
def test_a_part_of_a_model_runs_with_what_is_made_for_it(name: str, config: dict[str, Any], spec: str) -> None:
    made = load(f"transformers:{name}", config, real=True)
    inputs = inputs_for(made)
    assert spec in inputs.specs
    assert isinstance(made.model, torch.nn.Module)
    with torch.no_grad():
        made.model.eval()(*inputs.args, **inputs.kwargs)


def test_a_part_that_names_the_main_input_of_the_whole_reads_its_own() -> None:
    """PPFormulaNet's decoder says ``pixel_values``, which its forward does not have."""
    made = load(
        "transformers:PPFormulaNetTextModel",
        {"d_model": 32, "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 32},
    )
    inputs = inputs_for(made)
    assert [spec.partition("=")[0] for spec in inputs.specs] == ["input_ids"]
