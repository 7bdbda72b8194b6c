"""Read the shape of the key and value cache from the configuration of a model of transformers that generates."""

from typing import Any

import torch

from opcheck.model.records import CacheShape


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
