"""Inputs of a transformers model: its forward's names, filled from its configuration by ``transformers.yaml``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

from opcheck.capture.child.build import building, values
from opcheck.capture.child.recipes.recipe_engine import CHOSEN, RecipeScope, recipes
from opcheck.common.errors import InputError
from opcheck.common.yaml_text import load_shipped
from opcheck.model.records import CacheShape
from opcheck.tracing.torch_private.trees import tree_iter

#: Tokens in a text: a sentence or two, where the model has positions for as many.
TOKENS = 128

#: What the first layer of a vision part may be.
_VISION_LAYERS = (nn.Conv2d, nn.Conv3d, nn.Linear)
_AUDIO_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Linear)


class Modality(msgspec.Struct, frozen=True):
    """What a model reads in addition to its text, or among it."""

    main: str
    #: settings of a model that reads it among its text: the token that represents a part of it
    placeholders: tuple[str, ...]
    #: the method of the model that turns it into vectors
    encode: str
    #: the arguments of forward that belong to it
    arguments: tuple[str, ...]
    #: arguments that mark the placeholder tokens
    types: tuple[str, ...] = ()


MODALITIES = msgspec.convert(load_shipped(Path(__file__).with_name("modalities.yaml")), tuple[Modality, ...])


class TransformersScope(RecipeScope):
    """A model of transformers, its configuration, and what its recipes may call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__("transformers", model, getattr(model.config, "model_type", ""))

    def get(self, *names: str, default: Any = None) -> Any:
        """Return the first of these settings that the configuration or any of its parts has."""
        for part in _configs(self.config):
            for name in names:
                value = getattr(part, name, None)
                if value is not None:
                    return value
        return default

    def own(self, name: str, default: Any = None) -> Any:
        """Return a setting of the configuration itself."""
        return getattr(self.config, name, default)

    def size(self, *names: str, default: int = 1) -> int:
        """Return the first of these settings as a number; of a list its first entry."""
        value = self.get(*names)
        if isinstance(value, (list, tuple)):
            value = value[0] if value else None
        return int(value) if isinstance(value, (int, float)) else default

    def part(self, *names: str) -> TransformersScope:
        """Return the scope of the first of these parts that the configuration has; else this one."""
        for name in names:
            config = getattr(self.config, name, None)
            if config is not None and not isinstance(config, (dict, str)):
                scope = object.__new__(TransformersScope)
                vars(scope).update(vars(self), config=config)
                return scope
        return self

    # Text.

    def length(self) -> int:
        """Return the number of tokens of a text."""
        limit = self.size(*self["_lengths"], default=-1)
        # Models that count positions from the padding token have two fewer than they say.
        return TOKENS if limit < 0 else max(1, min(TOKENS, limit - 2))

    def vocabulary(self) -> int:
        """Return how many different tokens there are."""
        return self.size("vocab_size", "text_vocab_size", "codebook_size", default=2)

    def row(self) -> torch.Tensor:
        """Make tokens (1, length), and none represents something else."""
        size = self.vocabulary()
        ids = values((1, self.length()), torch.int64, size)
        for name in self["_placeholders"]:
            token = self.get(name)
            if isinstance(token, int):
                ids[ids == token] = max(0, size // 2 - 1)
        return ids

    def text(self) -> torch.Tensor:
        """Make tokens (1, length) that end as texts end."""
        ids = self.row()
        end = self.get("eos_token_id")
        if self.get("is_encoder_decoder") and isinstance(end, int) and end < self.vocabulary():
            ids[:, -1] = end
        return ids

    def with_placeholders(self, ids: torch.Tensor, token: int, count: int) -> torch.Tensor:
        """Insert ``count`` tokens that represent parts of an image after the first token."""
        marks = torch.full((ids.shape[0], count), token, dtype=ids.dtype)
        return torch.cat((ids[:, :1], marks, ids[:, 1:]), dim=1)

    # Images.

    def image(self) -> tuple[int, int, int]:
        """Return the channels, height and width of an image."""
        part = self.part("vision_config", "backbone_config")
        first = _first(_vision_part(self.model), nn.Conv2d)
        channels = part.size("num_channels", "in_channels", "in_chans", "image_channels", default=3)
        if first is not None and first.groups == 1 and first.in_channels in (1, 3, 4):
            channels = first.in_channels
        size = self.get("image_size", "input_size", "img_size", default=self["_image_size"])
        if isinstance(size, dict):
            size = (size["height"], size["width"])
        height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
        return channels, height, width

    def square_patch(self) -> tuple[int, int, int]:
        """Return the channels, height and width of a patch."""
        part = self.part("vision_config")
        channels = part.size("in_channels", "in_chans", "num_channels", default=3)
        side = part.size("patch_size", default=14)
        return channels, side, side

    def patch(self) -> tuple[int, ...]:
        """Return the shape of a patch as the processors of Qwen2-VL and its kin make it: mostly flat."""
        shape = channels, side, _ = self.square_patch()
        first = _first(_vision_part(self.model), *_VISION_LAYERS)
        if isinstance(first, nn.Conv2d):
            return shape
        if isinstance(first, nn.Linear) and first.in_features % (channels * side * side) == 0:
            return (first.in_features,)
        frames = self.part("vision_config").size("temporal_patch_size")
        return (channels * frames * side * side,)

    def feature_map(self, side: int) -> torch.Tensor:
        """Make what a part of a vision model reads: a map of features, or a row of vectors."""
        first = _first(self.model, *_VISION_LAYERS)
        if isinstance(first, nn.Conv2d) and first.groups == 1:
            return self.floats(1, first.in_channels, side, side)
        return self.floats(1, 64, self.size("input_dim", "hidden_size", default=768))

    # Sound.

    def first_width(self) -> int:
        """Return how many channels the model's first one-dimensional convolution reads; 0: it has none."""
        first = _first(self.model, nn.Conv1d)
        return first.in_channels if first is not None else 0

    def stacked(self, bands: int) -> int:
        """Return how many numbers a frame has, where the model's first layer reads several frames as one."""
        first = _first(self.model, *_AUDIO_LAYERS)
        reads_several = isinstance(first, nn.Linear) and first.in_features % bands == 0
        return first.in_features if reads_several else bands


def derive(model: nn.Module, also: Sequence[str] = ()) -> tuple[dict[str, Any], str]:
    """Make keyword arguments for one forward pass with batch size 1, and a note for the report.

    Args:
        model: the model.
        also: names of optional arguments that a wrapper of the model passes on.

    Returns:
        ``input_ids`` 1x128, ``pixel_values`` 1x3xHxW, ``input_values`` 1x16000 and the like: the
        model's main input, and what its forward does not run without.  A model that reads images
        among its text gets one, if its vision part can be run to count the tokens that it takes.

    Raises:
        InputError: nothing is known about the main input.
    """
    scope = TransformersScope(model)
    result = {name: _make(scope, name) for name in dict.fromkeys((*_list_arguments(scope), *also))}
    result = {name: value for name, value in result.items() if value is not None}
    note = ""
    for modality in MODALITIES:
        token = scope.get(*modality.placeholders)
        if (
            "input_ids" in result
            and modality.main in scope.parameters
            and isinstance(token, int)
            and not (result["input_ids"] == token).any()  # placed already
        ):
            if not scope.parameters[modality.main]:
                result.pop(modality.main, None)
            result.update(_among_text(scope, modality, token, result["input_ids"]))
            if modality.main not in result:
                note += f"; without {modality.main}, which --input gives"
    chosen = CHOSEN.get(model, ())
    if chosen:
        note += f"; {', '.join(chosen)} set, which {type(model.config).__name__} leaves open"
    return result, f"inputs as the configuration describes them{note}"


def _list_arguments(scope: TransformersScope) -> Iterator[str]:
    """Yield the arguments that the model is called with."""
    required = [name for name, needed in scope.parameters.items() if needed]
    names = _main_inputs(scope, required)
    yield from names
    yield from required
    if "input_ids" in (*names, *required):
        both = scope.get("image_size") or hasattr(scope.config, "audio_config")
        yield from (modality.main for modality in MODALITIES if both and modality.main in scope.parameters)
    if getattr(scope.config, "is_encoder_decoder", False) and "decoder_input_ids" in scope.parameters:
        yield "decoder_input_ids"
    yield from (name for name in scope["_offered"] if name in scope.parameters)
    if "input_features" in (*names, *required):
        yield from (name for name in scope["_offered_with_sound"] if name in scope.parameters)
    yield from scope.own_arguments


def _main_inputs(scope: TransformersScope, required: list[str]) -> list[str]:
    own: list[str] | None = scope["_main_inputs"]
    if own is not None:
        return own
    main = getattr(scope.model, "main_input_name", "input_ids")
    names = [main] if isinstance(main, str) else list(main)
    # Some parts of a model state the main input of the whole.
    names = [name for name in names if name in scope.parameters or not required]
    if not set(names) & set(scope.parameters) and "input_ids" in scope.parameters:
        return ["input_ids"]
    return names


def _make(scope: TransformersScope, name: str) -> Any:
    if name not in scope:
        raise InputError(
            f"opcheck cannot derive the input {name!r} of {scope.class_name}",
            context=f"transformers:{scope.class_name} takes {', '.join(scope.parameters)}",
            hint=f"give it: --input {name}=1x128:float32",
        )
    return scope[name]


def _among_text(scope: TransformersScope, modality: Modality, token: int, text: torch.Tensor) -> dict[str, Any]:
    """Make an image or a sound, and the text with as many tokens as the model turns it into; {} if that fails."""
    encode: Any = getattr(scope.model, modality.encode, None)
    if encode is None:
        return {}
    taken = set(inspect.signature(encode).parameters) & set(scope.parameters)
    names = [name for name in (*modality.arguments, *scope.own_arguments) if name in taken]
    try:
        shown = {name: _make(scope, name) for name in dict.fromkeys(names)}
        # The models of the Q-Former state how many tokens an image takes.
        count = scope.get("num_query_tokens") or _count_vectors(scope, encode, shown)
    except Exception:  # noqa: BLE001 - the model's own code, on weights without memory
        return {}
    ids = scope.with_placeholders(text, token, count)
    types = {name: (ids == token).long() for name in modality.types if name in scope.parameters}
    return {"input_ids": ids, **shown, **types}


def _count_vectors(scope: RecipeScope, encode: Callable[..., Any], shown: dict[str, Any]) -> int:
    """Count the vectors of the text's width that the model makes; large tensors stay without memory."""
    training = scope.model.training
    scope.model.eval()
    try:
        with building(), torch.no_grad():
            result = encode(**shown)
    finally:
        scope.model.train(training)
    result = getattr(result, "pooler_output", result)
    leaves = [leaf for leaf in tree_iter(result) if isinstance(leaf, torch.Tensor)]
    width = scope.model.get_input_embeddings().embedding_dim
    if not leaves or any(leaf.shape[-1] != width for leaf in leaves):
        raise ValueError(leaves)
    return sum(leaf.numel() for leaf in leaves) // width


def _configs(config: Any) -> Iterator[Any]:
    """Yield a configuration and those of its parts."""
    yield config
    parts = recipes("transformers").names["_parts"]
    for name in dict.fromkeys((*parts, *getattr(config, "sub_configs", ()))):
        part = getattr(config, name, None)
        if part is not None and not isinstance(part, (dict, str)):
            yield from _configs(part)


def _vision_part(model: nn.Module) -> nn.Module:
    """Return the part of the model that sees; the whole where no name states which it is."""
    named = (module for name, module in model.named_modules() if name.rpartition(".")[2].startswith("vis"))
    return next(named, model)


def _first(model: nn.Module, *kinds: type[nn.Module]) -> Any:
    """Return the first layer of these kinds; None: the model has none."""
    return next((layer for layer in model.modules() if isinstance(layer, kinds)), None)


# -- Read the shape of the key and value cache from the configuration of a model of transformers that generates --


def cache_shape(model: torch.nn.Module) -> CacheShape | None:
    """Return the shape of the cache; None: the model does not generate, or its configuration does not state it."""
    can_generate = getattr(model, "can_generate", None)
    config: Any = getattr(model, "config", None)
    if config is None or not callable(can_generate) or not can_generate():
        return None
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    layers: Any = getattr(text, "num_hidden_layers", None)
    heads: Any = getattr(text, "num_attention_heads", None)
    kv_heads: Any = getattr(text, "num_key_value_heads", None) or heads
    size: Any = getattr(text, "head_dim", None)
    if size is None and type(heads) is int and heads:
        size = getattr(text, "hidden_size", 0) // heads
    # Latent attention caches a compressed vector in place of keys and values.
    is_latent = getattr(text, "kv_lora_rank", None) is not None
    numbers = (layers, kv_heads, size)
    if is_latent or not all(type(number) is int and number > 0 for number in numbers):
        return None
    types = getattr(text, "layer_types", None) or ()
    window = getattr(text, "sliding_window", None)
    sliding = sum("sliding" in kind for kind in types) if types else (layers if window else 0)
    if types:
        layers = sum("attention" in kind for kind in types)
    weight = next(model.parameters(), None)
    return CacheShape(
        layers=layers,
        heads=kv_heads,
        size=size,
        window=window if type(window) is int else 0,
        sliding=sliding if type(window) is int else 0,
        itemsize=weight.element_size() if weight is not None else 4,
        longest=getattr(text, "max_position_embeddings", None) or 0,
    )
