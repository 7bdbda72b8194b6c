"""Tokens for a transformers model, and what comes with them: boxes, types, masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opcheck.capture.build import values
from opcheck.capture.derive_config import Facts

#: Tokens in a text: a sentence or two, where the model has positions for as many.
TOKENS = 128
#: Answers to choose from.
CHOICES = 2

#: What limits the length of a text, by the names that configurations use.
_LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_target_positions",
    "max_seq_len",
    "context_length",
)

#: Decoders of several codebooks at once.
_STACKED = ("musicgen_decoder", "musicgen_melody_decoder")

#: Settings that hold the number of a token which stands for an image, an audio or a video.
PLACEHOLDERS = tuple(
    f"{what}_{end}"
    for what in ("image", "img", "audio", "video", "image_patch", "media")
    for end in ("token_id", "token_index", "token")
)


def tokens(facts: Facts) -> torch.Tensor:
    """A text of the model's length, without tokens that stand for something else; it ends as texts end."""
    ids = _row(facts)
    end = facts.get("eos_token_id")
    if facts.get("is_encoder_decoder") and isinstance(end, int) and end < vocabulary(facts):
        ids[:, -1] = end
    if "MultipleChoice" in facts.name:
        return ids.unsqueeze(1).repeat(1, CHOICES, 1)
    return ids.repeat(_books(facts), 1)


def decoder_tokens(facts: Facts) -> torch.Tensor:
    """What a decoder has written so far; a row for each codebook that it writes at once."""
    part = facts.part("decoder") or facts.part("decoder_config") or facts
    ids = _row(part)
    if facts.kind == "dia":
        return ids.unsqueeze(-1).repeat(1, 1, part.size("num_channels", default=9))
    return ids.repeat(_books(part), 1)


def _books(facts: Facts) -> int:
    """Musicgen's decoders take each codebook as a row of the batch."""
    kind = getattr(facts.config, "model_type", "")
    return facts.size("num_codebooks") if kind in _STACKED else 1


def vocabulary(facts: Facts) -> int:
    """How many tokens there are."""
    return facts.size("vocab_size", "text_vocab_size", "codebook_size", default=2)


def length(facts: Facts) -> int:
    """Tokens of a text."""
    limit = facts.size(*_LENGTHS, default=-1)
    # Models that count positions from the padding token have two fewer than they say.
    return TOKENS if limit < 0 else max(1, min(TOKENS, limit - 2))


def with_placeholders(ids: torch.Tensor, token: int, count: int) -> torch.Tensor:
    """The text with ``count`` tokens that stand for parts of an image after its first token."""
    marks = torch.full((ids.shape[0], count), token, dtype=ids.dtype)
    return torch.cat((ids[:, :1], marks, ids[:, 1:]), dim=1)


def _row(facts: Facts) -> torch.Tensor:
    size = vocabulary(facts)
    ids = values((1, length(facts)), torch.int64, size)
    for name in PLACEHOLDERS:
        mark = facts.get(name)
        if isinstance(mark, int):
            ids[ids == mark] = max(0, size // 2 - 1)
    return ids


def embedded(facts: Facts) -> torch.Tensor:
    """A text as vectors."""
    return facts.floats(1, length(facts), facts.size("hidden_size", "d_model", default=768))


def _ones(facts: Facts) -> torch.Tensor:
    return torch.ones((1, length(facts)), dtype=torch.int64)


def _boxes(facts: Facts) -> torch.Tensor:
    """A box for each token, on a page of a thousand by a thousand, each to the right of the one before."""
    left = torch.arange(length(facts))
    boxes = torch.stack((left, left, left + 1, left + 1), dim=-1).unsqueeze(0)
    return boxes.to(facts.dtype) / 1000 if facts.kind == "bros" else boxes


#: An argument of forward -> what makes it.
MAKERS: dict[str, Callable[[Facts], Any]] = {
    "input_ids": tokens,
    "decoder_input_ids": decoder_tokens,
    "qformer_input_ids": _row,
    "classes_input_ids": _row,
    "tasks_input_ids": _row,
    "classes_attention_mask": _ones,
    "tasks_attention_mask": _ones,
    "classes_structure": lambda _: torch.ones(1, dtype=torch.int64),
    "task_inputs": lambda facts: values(
        (1, facts.size("task_seq_len", default=77)), torch.int64, 2
    ),
    "bbox": _boxes,
    "inputs_embeds": embedded,
}
