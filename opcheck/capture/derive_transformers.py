"""Inputs of a transformers model: its forward's names, filled from its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_iter

from opcheck.capture import (
    derive_audio,
    derive_image,
    derive_own,
    derive_parts,
    derive_series,
    derive_text,
    open_settings,
)
from opcheck.capture.build import building
from opcheck.capture.derive_config import Facts
from opcheck.capture.derive_text import TOKENS  # noqa: F401 - part of what this module says
from opcheck.errors import InputError

#: An argument of forward -> what makes it; None: this configuration does not use it.
MAKERS: dict[str, Callable[[Facts], Any]] = {
    **derive_text.MAKERS,
    **derive_image.MAKERS,
    **derive_audio.MAKERS,
    **derive_series.MAKERS,
}
#: The same for a kind of model, or a class, that does otherwise.
SPECIAL = {
    **derive_image.SPECIAL,
    **derive_audio.SPECIAL,
    **derive_series.SPECIAL,
    **derive_parts.SPECIAL,
    **derive_own.SPECIAL,
}

#: Arguments that have a default with which no user calls the model.
OFFERED = ("bbox", "grid_thw")

#: ... and those that a model of sound alone is called with.
_HEARD = ("input_features_mask", "feature_attention_mask")


#: Parts of models that read vectors, and refuse tokens.
_EMBEDDED = (
    "Qwen3OmniMoeCode2WavTransformerModel",
    "Qwen3OmniMoeTalkerCodePredictorModel",
    "Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration",
    "Qwen3OmniMoeTalkerModel",
    "SeamlessM4TTextToUnitForConditionalGeneration",
    "SeamlessM4TTextToUnitModel",
    "SeamlessM4Tv2TextToUnitForConditionalGeneration",
    "SeamlessM4Tv2TextToUnitModel",
)


class Sense(NamedTuple):
    """What a model reads beside its text, or among it."""

    main: str
    #: settings of a model that reads it among its text: the token that stands for a part of it
    marks: tuple[str, ...]
    reader: str
    makers: dict[str, Callable[[Facts], Any]]
    #: arguments that mark those tokens
    types: tuple[str, ...] = ()


SENSES = (
    Sense(
        "pixel_values",
        ("image_token_id", "image_token_index", "img_token_id", "image_token"),
        "get_image_features",
        derive_image.MAKERS,
        ("mm_token_type_ids", "moe_mm_token_type_ids"),
    ),
    Sense(
        "input_features",
        ("audio_token_id", "audio_token_index"),
        "get_audio_features",
        derive_audio.MAKERS,
    ),
)


def derive(model: nn.Module) -> tuple[dict[str, Any], str]:
    """Keyword arguments for one forward pass with batch size 1, and a note for the report.

    Returns:
        ``input_ids`` 1x128, ``pixel_values`` 1x3xHxW, ``input_values`` 1x16000 and the like: the
        model's main input, and what its forward does not run without.  A model that reads images
        among its text gets one, if its vision part can be run to count the tokens that it takes.

    Raises:
        InputError: the main input is one that nothing is known about.
    """
    facts = Facts(model)
    made = {name: _make(facts, name) for name in dict.fromkeys(_wanted(facts))}
    made = {name: value for name, value in made.items() if value is not None}
    note = ""
    for sense in SENSES:
        mark = _mark(facts, sense)
        if (
            "input_ids" in made
            and sense.main in facts.parameters
            and mark is not None
            and not (made["input_ids"] == mark).any()  # placed already
        ):
            if not facts.parameters[sense.main]:
                made.pop(sense.main, None)
            shown = _with(facts, sense, made["input_ids"])
            made.update(shown)
            note += "" if sense.main in made else f"; without {sense.main}, which --input gives"
    chosen = open_settings.CHOSEN.get(model, ())
    if chosen:
        note += f"; {', '.join(chosen)} set, which {type(model.config).__name__} leaves open"
    return made, f"inputs as the configuration describes them{note}"


def _wanted(facts: Facts) -> Iterator[str]:
    main = getattr(facts.model, "main_input_name", "input_ids")
    required = [name for name, needed in facts.parameters.items() if needed]
    names = [main] if isinstance(main, str) else list(main)
    # Some parts of a model say the main input of the whole.
    names = [name for name in names if name in facts.parameters or not required]
    if not set(names) & set(facts.parameters) and "input_ids" in facts.parameters:
        names = ["input_ids"]
    if facts.name in _EMBEDDED:
        names = ["inputs_embeds"]
    yield from names
    yield from required
    if "input_ids" in (*names, *required):
        both = facts.get("image_size") or hasattr(facts.config, "audio_config")
        yield from (one.main for one in SENSES if both and one.main in facts.parameters)
    if (
        getattr(facts.config, "is_encoder_decoder", False)
        and "decoder_input_ids" in facts.parameters
    ):
        yield "decoder_input_ids"
    yield from (name for name in OFFERED if name in facts.parameters)
    if "input_features" in (*names, *required):
        yield from (name for name in _HEARD if name in facts.parameters)
    yield from _special(facts)


def _special(facts: Facts) -> Iterator[str]:
    """What this kind of model is called with beside the usual."""
    kinds = (facts.kind, facts.name)
    yield from (name for kind, name in SPECIAL if kind in kinds and name in facts.parameters)


def _make(facts: Facts, name: str) -> Any:
    special = SPECIAL.get((facts.name, name)) or SPECIAL.get((facts.kind, name))
    maker = special or MAKERS.get(name)
    if maker is None:
        raise InputError(
            f"nothing says what the input {name!r} of {facts.name} looks like",
            context=f"transformers:{facts.name} takes {', '.join(facts.parameters)}",
            hint=f"give it: --input {name}=1x128:float32",
        )
    return maker(facts)


def _mark(facts: Facts, sense: Sense) -> int | None:
    """The token that stands for a part of an image or of a sound."""
    mark = facts.get(*sense.marks)
    return mark if isinstance(mark, int) else None


def _with(facts: Facts, sense: Sense, text: torch.Tensor) -> dict[str, Any]:
    """An image or a sound, and the text with as many tokens for it as the model makes of it; nothing if that fails."""
    reads: Any = getattr(facts.model, sense.reader, None)
    mark = _mark(facts, sense)
    if reads is None or mark is None:
        return {}
    taken = set(inspect.signature(reads).parameters) & set(facts.parameters)
    names = [name for name in sense.makers if name in taken]
    names += [name for name in _special(facts) if name in taken]
    try:
        shown = {name: _make(facts, name) for name in dict.fromkeys(names)}
        # The models of the Q-Former say how many tokens an image takes.
        count = facts.get("num_query_tokens") or _features(facts, reads, shown)
    except Exception:  # noqa: BLE001 - the model's own code, on weights without memory
        return {}
    ids = derive_text.with_placeholders(text, mark, count)
    types = {name: (ids == mark).long() for name in sense.types if name in facts.parameters}
    return {"input_ids": ids, **shown, **types}


def _features(facts: Facts, reads: Callable[..., Any], shown: dict[str, Any]) -> int:
    """How many vectors of the text's width the model makes of it; large tensors stay without memory."""
    training = facts.model.training
    facts.model.eval()
    try:
        with building(), torch.no_grad():
            made = reads(**shown)
    finally:
        facts.model.train(training)
    made = getattr(made, "pooler_output", made)
    leaves = [leaf for leaf in tree_iter(made) if isinstance(leaf, torch.Tensor)]
    width = facts.model.get_input_embeddings().embedding_dim
    if not leaves or any(leaf.shape[-1] != width for leaf in leaves):
        raise ValueError(leaves)
    return sum(leaf.numel() for leaf in leaves) // width
