"""Inputs of a transformers model: its forward's names, filled from its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_iter

from opcheck.capture import derive_audio, derive_image, derive_series, derive_text
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
#: The same for a kind of model that does otherwise.
SPECIAL = {**derive_image.SPECIAL, **derive_audio.SPECIAL, **derive_series.SPECIAL}

#: Arguments that have a default with which no user calls the model.
OFFERED = ("bbox", "input_features_mask", "feature_attention_mask")

#: What the parts of a text that stand for an image are marked by.
_TYPES = ("mm_token_type_ids", "moe_mm_token_type_ids")


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
    if "input_ids" in made and "pixel_values" in facts.parameters and _mark(facts) is not None:
        made.pop("pixel_values", None)
        shown = _with_image(facts, made["input_ids"])
        made.update(shown)
        note = "" if shown else "; without pixel_values, which --input gives"
    return made, f"inputs as the configuration describes them{note}"


def _wanted(facts: Facts) -> Iterator[str]:
    main = getattr(facts.model, "main_input_name", "input_ids")
    required = [name for name, needed in facts.parameters.items() if needed]
    names = [main] if isinstance(main, str) else list(main)
    # Some parts of a model say the main input of the whole.
    names = [name for name in names if name in facts.parameters or not required]
    yield from names
    yield from required
    if "input_ids" in (*names, *required) and _mark(facts) is None:
        both = facts.get("image_size") or hasattr(facts.config, "audio_config")
        seen = ("pixel_values", "input_features")
        yield from (name for name in seen if both and name in facts.parameters)
    if (
        getattr(facts.config, "is_encoder_decoder", False)
        and "decoder_input_ids" in facts.parameters
    ):
        yield "decoder_input_ids"
    yield from (name for name in OFFERED if name in facts.parameters)
    yield from (name for kind, name in SPECIAL if kind == facts.kind and name in facts.parameters)


def _make(facts: Facts, name: str) -> Any:
    maker = SPECIAL.get((facts.kind, name)) or MAKERS.get(name)
    if maker is None:
        raise InputError(
            f"nothing says what the input {name!r} of {facts.name} looks like",
            context=f"transformers:{facts.name} takes {', '.join(facts.parameters)}",
            hint=f"give it: --input {name}=1x128:float32",
        )
    return maker(facts)


def _mark(facts: Facts) -> int | None:
    """The token that stands for a part of an image."""
    mark = facts.get("image_token_id", "image_token_index", "img_token_id", "image_token")
    return mark if isinstance(mark, int) else None


def _with_image(facts: Facts, text: torch.Tensor) -> dict[str, Any]:
    """An image, and the text with as many tokens for it as the vision part makes of it; nothing if that fails."""
    looks: Any = getattr(facts.model, "get_image_features", None)
    mark = _mark(facts)
    if looks is None or mark is None:
        return {}
    taken = set(inspect.signature(looks).parameters) & set(facts.parameters)
    names = [name for name in derive_image.MAKERS if name in taken]
    names += [name for kind, name in derive_image.SPECIAL if kind == facts.kind and name in taken]
    try:
        shown = {name: _make(facts, name) for name in dict.fromkeys(names)}
        count = _features(facts, looks, shown)
    except Exception:  # noqa: BLE001 - the model's own code, on weights without memory
        return {}
    ids = derive_text.with_placeholders(text, mark, count)
    types = {name: (ids == mark).long() for name in _TYPES if name in facts.parameters}
    return {"input_ids": ids, **shown, **types}


def _features(facts: Facts, looks: Callable[..., Any], shown: dict[str, Any]) -> int:
    """How many vectors of the text's width the vision part makes; large tensors stay without memory."""
    training = facts.model.training
    facts.model.eval()
    try:
        with building(), torch.no_grad():
            made = looks(**shown)
    finally:
        facts.model.train(training)
    made = getattr(made, "pooler_output", made)
    elements = sum(leaf.numel() for leaf in tree_iter(made) if isinstance(leaf, torch.Tensor))
    width = facts.model.get_input_embeddings().embedding_dim
    if not elements or elements % width:
        raise ValueError(elements)
    return int(elements // width)
