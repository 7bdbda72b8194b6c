"""Settings that a library's configuration leaves open and without which its model does not build or run.

Each is what a published checkpoint of that family has, unless a smaller number does as well.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

Settings = dict[str, Any]

_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "patch_size": 14,
    "image_size": 364,
}
_DENSE_THEN_SPARSE = {
    "num_hidden_layers": 12,
    "mlp_layer_types": ["dense"] + 11 * ["sparse"],
    "num_experts_per_tok": 6,
}
_FORECAST = {"prediction_length": 24}
_INDEXER = {
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 256,
    "indexer_budget": 64,
    "indexer_compress_ratio": 4,
}
_PERCEPTION = {
    "architecture": "vit_pe_core_large_patch14_336",
    "model_args": {"embed_dim": 1024, "img_size": [448, 448], "depth": 2},
}
_HALF_ROTARY = {
    "rope_parameters": {**_ROPE, "mrope_section": [8, 12, 12], "partial_rotary_factor": 0.5}
}
_GLM = {"text_config": _HALF_ROTARY}
_GLM_MOE = {**_HALF_ROTARY, "head_dim": 128}
_FOUR_AXES = {
    "head_dim": 128,
    "rope_parameters": {**_ROPE, "mrope_section": [16, 16, 16, 16]},
}
_READS_TEXT = {"qformer_config": {"use_qformer_text_input": True}}
_HEAD = {
    "upsample_out_channels": [768, 512],
    "upsample_kernel_sizes": [4, 4],
    "conv_out_channels": [256],
    "conv_kernel_sizes": [1],
    "scale_conv_out_channels": [256],
    "scale_conv_kernel_sizes": [1],
}
_REPVIT = {
    "backbone_config": {
        "model_type": "timm_wrapper",
        "architecture": "repvit_m1",
        "num_classes": 1000,
        "model_args": {"in_chans": 3, "features_only": True, "out_indices": [0, 1, 2, 3]},
    }
}
_HIDDEN_SIZES = {"hidden_sizes": [96, 192, 384, 768]}

#: A class of transformers or of its configuration -> the settings.
OPEN: dict[str, Settings] = {
    "AutoformerConfig": _FORECAST,
    "AyaVisionConfig": {"vision_config": _SIGLIP},
    "BambaConfig": {"attn_layer_indices": [1]},
    "BeitForSemanticSegmentation": {"out_indices": [3, 5, 7, 11]},
    "Blip2Config": {"image_token_index": 50265},
    "Blip2ForImageTextRetrieval": _READS_TEXT,
    "Blip2TextModelWithProjection": _READS_TEXT,
    "BridgeTowerForContrastiveLearning": {
        "contrastive_hidden_size": 512,
        "logit_scale_init_value": 2.6592,
    },
    "ChameleonConfig": {"vocabulary_map": {"<image>": 8711, "IMGIMGAAZ": 4, "IMGIMGABZ": 5}},
    "CohereCompassConfig": {
        "text_config": {"rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}}
    },
    "CohereCompassTextConfig": {
        "rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}
    },
    "ConvNextBackbone": _HIDDEN_SIZES,
    "ConvNextV2Backbone": _HIDDEN_SIZES,
    "DbrxConfig": {"attn_config": {"rope_theta": 500000.0, "kv_n_heads": 8, "clip_qkv": 8.0}},
    "DeepseekOcr2Config": {"text_config": _DENSE_THEN_SPARSE},
    "DeepseekOcr2TextConfig": _DENSE_THEN_SPARSE,
    # The encoder reads what the part before it makes: 896 channels.
    "DeepseekOcr2VisionConfig": {
        "encoder_config": {
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "num_hidden_layers": 24,
        }
    },
    "DeepseekV2Config": {"num_experts_per_tok": 6},
    "DepthProConfig": {"image_size": 1536},
    "DiffusionGemmaConfig": {
        "text_config": {"num_experts": 16, "top_k_experts": 4, "moe_intermediate_size": 704}
    },
    "DiffusionGemmaTextConfig": {
        "num_experts": 16,
        "top_k_experts": 4,
        "moe_intermediate_size": 704,
    },
    "Dots1Config": {"n_routed_experts": 16, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "Emu3Config": {
        "vocabulary_map": {
            "<image>": 151646,
            "<|extra_200|>": 151846,
            "<|visual token 000000|>": 151854,
            "<|visual token 000001|>": 151855,
        }
    },
    "EdgeTamConfig": {"vision_config": _REPVIT},
    "EdgeTamVisionConfig": _REPVIT,
    "EsmConfig": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "FocalNetBackbone": {"hidden_sizes": [192, 384, 768, 768]},
    "Glm46VConfig": _GLM,
    "Glm4vConfig": _GLM,
    "Glm4vMoeConfig": {"text_config": _GLM_MOE},
    "Glm4vMoeTextConfig": _GLM_MOE,
    "Glm4vTextConfig": _HALF_ROTARY,
    "GlmImageConfig": _GLM,
    "GlmImageTextConfig": _HALF_ROTARY,
    "Granite4VisionConfig": {"deepstack_layer_map": [[-2, 0]], "downsample_rate": "4/8"},
    "GraniteMoeHybridConfig": {"layer_types": ["mamba", "attention"], "num_hidden_layers": 2},
    "HieraForPreTraining": {
        "decoder_hidden_size": 512,
        "decoder_depth": 8,
        "decoder_num_heads": 16,
    },
    "HunYuanDenseV1Config": {"head_dim": 128},
    "HunYuanMoEV1Config": {"head_dim": 128},
    "HunYuanVLConfig": {"text_config": _FOUR_AXES},
    "HunYuanVLTextConfig": _FOUR_AXES,
    "InformerConfig": _FORECAST,
    "InstructBlipConfig": {"image_token_index": 50265},
    "InstructBlipVideoConfig": {"video_token_index": 50265},
    "Lfm2MoeConfig": {
        "layer_types": ["conv", "conv", "full_attention", "conv"],
        "num_hidden_layers": 4,
    },
    "Llama4VisionConfig": {"hidden_size": 1408},
    "LwDetrConfig": {"projector_scale_factors": [1.0]},
    "MinistralConfig": {"head_dim": 128},
    "MoonshineStreamingConfig": {"num_key_value_heads": 8},
    "NemotronH_Omni_Reasoning_V3_Config": {"image_token_id": 18},
    "NemotronConfig": {"num_key_value_heads": 8},
    # Twenty kinds of things on a page, as the part that orders them has.
    "PPDocLayoutV2Config": {
        "num_labels": 20,
        "class_thresholds": 20 * [0.5],
        "class_order": list(range(20)),
    },
    "PerceiverForImageClassificationFourier": {"d_model": 261, "num_cross_attention_heads": 1},
    "PerceiverForOpticalFlow": {
        "d_model": 322,
        "d_latents": 512,
        "num_cross_attention_heads": 1,
        "image_size": [368, 496],
    },
    "PerceiverForMultimodalAutoencoding": {
        "d_model": 704,
        "d_latents": 512,
        "num_cross_attention_heads": 1,
    },
    "PerceptionLMConfig": {"vision_config": _PERCEPTION},
    "Qwen2VLConfig": {"vision_config": {"hidden_size": 8192}},
    "Qwen2_5_VLConfig": {"vision_config": {"out_hidden_size": 8192}},
    "Qwen3OmniMoeTalkerConfig": {"text_config": {"shared_expert_intermediate_size": 768}},
    "Qwen3OmniMoeTalkerTextConfig": {"shared_expert_intermediate_size": 768},
    "Qwen3VLConfig": {"vision_config": {"out_hidden_size": 4096}},
    "Qwen3OmniMoeTextConfig": {"head_dim": 128},
    "Qwen3OmniMoeThinkerConfig": {"text_config": {"head_dim": 128}},
    "Qwen4ExpConfig": {"text_config": _INDEXER},
    "Qwen4ExpTextConfig": _INDEXER,
    "ReformerModelWithLMHead": {"is_decoder": True},
    "Sapiens2Config": {"head_config": _HEAD},
    "Step3p7Config": {"text_config": {"sliding_window": 512}},
    "Step3p7TextConfig": {"sliding_window": 512},
    "T5GemmaEncoderModel": {"is_encoder_decoder": False},
    "TimmBackboneConfig": {"backbone": "resnet18"},
    "TimeSeriesTransformerConfig": _FORECAST,
    # Its head reads the maps of all six stages; by itself the backbone gives the last alone.
    "UVDocConfig": {
        "backbone_config": {
            "model_type": "uvdoc_backbone",
            "out_features": [f"stage{number}" for number in range(1, 7)],
        }
    },
    "ViltForImagesAndTextClassification": {"num_images": 2, "modality_type_vocab_size": 3},
    "Wav2Vec2BertForCTC": {"vocab_size": 32},
    "VoxtralConfig": {"audio_token_id": 24},
    "Wav2Vec2ConformerForCTC": {"vocab_size": 32},
    "XmodConfig": {"default_language": "en_XX"},
}

#: A class of diffusers -> the same.
OPEN.update(
    {
        "ControlNetUnionModel": {
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 256,
            "projection_class_embeddings_input_dim": 2816,
        },
        "HunyuanDiT2DControlNetModel": {"in_channels": 4, "patch_size": 2, "sample_size": 32},
        "HunyuanDiT2DModel": {
            "in_channels": 4,
            "patch_size": 2,
            "sample_size": 32,
            "hidden_size": 1408,
        },
        "LatteTransformer3DModel": {
            "in_channels": 4,
            "out_channels": 8,
            "patch_size": 2,
            "sample_size": 32,
            "num_attention_heads": 16,
            "attention_head_dim": 72,
            "cross_attention_dim": 1152,
            "caption_channels": 4096,
            "activation_fn": "gelu-approximate",
            "norm_type": "ada_norm_single",
            "norm_elementwise_affine": False,
            "num_embeds_ada_norm": 1000,
        },
        "Transformer2DModel": {"in_channels": 320, "cross_attention_dim": 768},
        "TransformerTemporalModel": {
            "in_channels": 320,
            "num_attention_heads": 8,
            "attention_head_dim": 40,
        },
        "UNet1DModel": {
            "extra_in_channels": 16,
            "sample_size": 65536,
            "time_embedding_dim": 16,
        },
    }
)

#: Models whose settings were chosen here -> the names of these.
CHOSEN: WeakKeyDictionary[nn.Module, tuple[str, ...]] = WeakKeyDictionary()


def settings(kind: Any) -> Settings:
    """What the model class needs beyond the defaults of its configuration."""
    return {**OPEN.get(kind.config_class.__name__, {}), **OPEN.get(kind.__name__, {})}
