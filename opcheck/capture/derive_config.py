"""What a transformers model says of itself: its configuration, the parts of it, and what forward takes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from opcheck.capture.build import values

#: Where a configuration keeps those of its parts; one that has others names them in ``sub_configs``.
_PARTS = (
    "text_config",
    "vision_config",
    "audio_config",
    "decoder",
    "encoder",
    "backbone_config",
    "thinker_config",
)


class Facts:
    """A model, its configuration, and what its forward takes."""

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = model
        self.config: Any = model.config
        self.name = type(model).__name__
        self.kind: str = getattr(self.config, "model_type", "")
        self.parameters = {
            name: parameter.default is parameter.empty
            for name, parameter in inspect.signature(model.forward).parameters.items()
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        }
        floating = (weight.dtype for weight in model.parameters() if weight.is_floating_point())
        self.dtype = next(floating, torch.float32)

    def get(self, *names: str, default: Any = None) -> Any:
        """The first of these settings that the configuration or one of its parts has."""
        return setting(self.config, *names, default=default)

    def size(self, *names: str, default: int = 1) -> int:
        """As ``get``, for a number; of a list its first entry."""
        value = self.get(*names)
        if isinstance(value, (list, tuple)):
            value = value[0] if value else None
        return int(value) if isinstance(value, (int, float)) else default

    def floats(self, *shape: int) -> torch.Tensor:
        """Floats of that shape in the dtype of the weights, as the model's users cast them."""
        return values(shape, torch.float32).to(self.dtype)

    def part(self, name: str) -> Facts | None:
        """The same model with the configuration of one of its parts; None where it has no such part."""
        config = getattr(self.config, name, None)
        if config is None or isinstance(config, (dict, str)):
            return None
        other = object.__new__(Facts)
        vars(other).update(vars(self), config=config)
        return other


def setting(config: Any, *names: str, default: Any = None) -> Any:
    """The first of these settings that the configuration or one of its parts has."""
    for part in _configs(config):
        for name in names:
            value = getattr(part, name, None)
            if value is not None:
                return value
    return default


def _configs(config: Any) -> Iterator[Any]:
    yield config
    for name in dict.fromkeys((*_PARTS, *getattr(config, "sub_configs", ()))):
        part = getattr(config, name, None)
        if part is not None and not isinstance(part, (dict, str)):
            yield from _configs(part)
