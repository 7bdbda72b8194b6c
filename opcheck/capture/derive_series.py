"""Numbers over time for a transformers model, and the inputs that only one kind of model has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opcheck.capture import derive_text
from opcheck.capture.build import values
from opcheck.capture.derive_config import Facts

#: What a decision transformer has seen.
STEPS = 20


def _series(facts: Facts) -> torch.Tensor:
    length = facts.size("context_length", default=64)
    if facts.kind in _LAGGED:
        lags = facts.get("lags_sequence", default=[0])
        size = facts.size("input_size")
        shape = (1, length + max(lags), size) if size > 1 else (1, length + max(lags))
        return facts.floats(*shape)
    if "num_input_channels" not in vars(facts.config):
        return facts.floats(1, length)
    return facts.floats(1, length, facts.config.num_input_channels)


#: Their past reaches back by the largest lag.
_LAGGED = ("autoformer", "informer", "time_series_transformer")


def _times(facts: Facts) -> torch.Tensor:
    past = _series(facts)
    count = facts.get("num_time_features", default=0)
    return facts.floats(1, past.shape[1], count)


def _future_times(facts: Facts) -> torch.Tensor:
    return facts.floats(
        1, facts.config.prediction_length, facts.get("num_time_features", default=0)
    )


def _future(facts: Facts) -> torch.Tensor:
    size = facts.size("input_size")
    length = facts.config.prediction_length
    return facts.floats(*((1, length, size) if size > 1 else (1, length)))


def _perceived(facts: Facts) -> torch.Tensor:
    """Perceiver: what its preprocessor reads; vectors where it has none."""
    if "Image" in facts.name:
        return facts.floats(1, 3, 224, 224)
    if "OpticalFlow" in facts.name:
        return facts.floats(1, 2, 27, *facts.get("train_size", default=(368, 496)))
    if "Model" in facts.name:
        return facts.floats(1, 64, facts.size("d_model"))
    if facts.kind == "perceiver":
        return values((1, facts.size("max_position_embeddings", default=2048)), torch.int64, 262)
    return facts.floats(1, 16000)


def _mel(facts: Facts) -> torch.Tensor:
    """SpeechT5: the spectrum spoken so far; vectors where the model has no layer that reads a spectrum."""
    width = "hidden_size" if facts.name == "SpeechT5Model" else "num_mel_bins"
    return facts.floats(1, STEPS, facts.size(width))


def _heard(facts: Facts) -> torch.Tensor:
    if facts.name == "SpeechT5Model":
        return facts.floats(1, STEPS, facts.size("hidden_size"))
    return values((1, 16000), facts.dtype)


def _books(facts: Facts) -> torch.Tensor:
    """A text with the codes of its sound beside it; the sound alone for Csm's backbone."""
    ids = derive_text.tokens(facts).unsqueeze(-1)
    count = facts.size("num_codebooks", default=32) + (facts.kind != "csm")
    return (ids % facts.size("codebook_size", "vocab_size", default=2)).repeat(1, 1, count)


def _separated(facts: Facts) -> torch.Tensor:
    """Longformer: a question, two separators, a text and its end."""
    ids = derive_text.tokens(facts)
    ids[ids == facts.size("sep_token_id")] = 10
    ids[..., (8, 9, -1)] = facts.size("sep_token_id")
    return ids


def _asked(facts: Facts) -> torch.Tensor:
    """Splinter: a text with one question to answer."""
    ids = derive_text.tokens(facts)
    ids[:, 1] = facts.size("question_token_id", default=104)
    return ids


#: An argument of forward -> what makes it.
MAKERS: dict[str, Callable[[Facts], Any]] = {
    "past_values": _series,
    "past_time_features": _times,
    "past_observed_mask": lambda facts: torch.ones_like(_series(facts)),
    "past_values_padding": lambda facts: torch.zeros_like(_series(facts)).long(),
    "freq": lambda _: torch.zeros((1, 1), dtype=torch.int64),
    "inputs": _perceived,
    "query_embeds": lambda facts: facts.floats(1, 32, facts.size("hidden_size")),
    "states": lambda facts: facts.floats(1, STEPS, facts.config.state_dim),
}
SPECIAL: dict[tuple[str, str], Callable[[Facts], Any]] = {
    **{
        (kind, name): make
        for kind in _LAGGED
        for name, make in (("future_values", _future), ("future_time_features", _future_times))
    },
    ("speecht5", "decoder_input_values"): _mel,
    ("speecht5", "input_values"): _heard,
    ("splinter", "input_ids"): _asked,
    **{
        ("luke", name): make
        for name, make in (
            ("entity_ids", lambda _: torch.ones((1, 2), dtype=torch.int64)),
            ("entity_attention_mask", lambda _: torch.ones((1, 2), dtype=torch.int64)),
            ("entity_position_ids", lambda _: torch.zeros((1, 2, 30), dtype=torch.int64)),
            ("entity_start_positions", lambda _: torch.zeros((1, 2), dtype=torch.int64)),
            ("entity_end_positions", lambda _: torch.zeros((1, 2), dtype=torch.int64)),
        )
    },
    ("lxmert", "visual_feats"): lambda facts: facts.floats(1, 36, facts.size("visual_feat_dim")),
    ("lxmert", "visual_pos"): lambda facts: facts.floats(1, 36, facts.size("visual_pos_dim")),
    ("longformer", "input_ids"): _separated,
    ("tvp", "input_ids"): derive_text.tokens,
    ("blip", "input_ids"): derive_text.tokens,
    ("instructblipvideo", "input_ids"): lambda facts: derive_text.with_placeholders(
        derive_text.tokens(facts),
        facts.size("video_token_index"),
        4 * facts.size("num_query_tokens"),
    ),
    ("blip", "decoder_input_ids"): derive_text.tokens,
    ("kosmos-2", "input_ids"): derive_text.tokens,
    ("kosmos-2", "image_embeds_position_mask"): lambda facts: (
        torch.arange(derive_text.length(facts)) < facts.size("latent_query_num", default=64)
    ).unsqueeze(0),
    ("csm", "input_ids"): _books,
    ("kyutai_speech_to_text", "input_ids"): _books,
    ("tvp", "attention_mask"): lambda facts: torch.ones_like(derive_text.tokens(facts)),
    ("sam3_lite_text_text_model", "input_ids"): derive_text.tokens,
    ("instructblip", "input_ids"): derive_text.tokens,
    ("sam3", "input_ids"): derive_text.tokens,
    ("sam3_lite_text", "input_ids"): derive_text.tokens,
    ("decision_transformer", "actions"): lambda facts: facts.floats(1, STEPS, facts.config.act_dim),
    ("decision_transformer", "rewards"): lambda facts: facts.floats(1, STEPS, 1),
    ("decision_transformer", "returns_to_go"): lambda facts: facts.floats(1, STEPS, 1),
    ("decision_transformer", "timesteps"): lambda _: values((1, STEPS), torch.int64, 100),
    ("decision_transformer", "attention_mask"): lambda _: torch.ones(1, STEPS),
}
