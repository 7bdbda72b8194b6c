"""Inputs of the models of timm and torchvision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from opcheck.capture.child.build import values

Shape = tuple[int, ...]

#: torchvision: where a model's class lives -> the shape that its documentation calls it with.
_TORCHVISION: dict[str, Shape] = {
    "torchvision.models.video.mvit": (1, 3, 16, 224, 224),
    "torchvision.models.video.s3d": (1, 3, 16, 224, 224),
    "torchvision.models.video.swin_transformer": (1, 3, 16, 224, 224),
    "torchvision.models.video": (1, 3, 16, 112, 112),
    "torchvision.models.inception": (1, 3, 299, 299),
    "torchvision.models.detection.ssd": (3, 300, 300),
    "torchvision.models.detection": (3, 480, 640),
    "torchvision.models.segmentation": (1, 3, 520, 520),
    "torchvision.models.optical_flow": (1, 3, 360, 520),
    "torchvision": (1, 3, 224, 224),
}


def _timm(model: Any) -> tuple[Any, ...]:
    settings = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", {})
    channels, height, width = settings.get("input_size", (3, 224, 224))
    # An image size or a channel count given to create_model reaches the layers, not the settings.
    height, width = getattr(getattr(model, "patch_embed", None), "img_size", None) or (
        height,
        width,
    )
    name = settings.get("first_conv") or ""
    if (
        isinstance(name, str)
        and name
        and hasattr(first := model.get_submodule(name), "in_channels")
        # TResNet folds four by four pixels into channels first.
        and first.in_channels != 16 * channels
    ):
        channels = first.in_channels
    return (values((1, channels, height, width), _dtype(model)),)


def _torchvision(model: nn.Module) -> tuple[Any, ...]:
    homes = [base.__module__ for base in type(model).__mro__]
    home = next(home for home in homes if home.startswith("torchvision."))
    shape = next(
        shape
        for prefix, shape in _TORCHVISION.items()
        if any(base.startswith(prefix) for base in homes)
    )
    size = getattr(model, "image_size", None)
    if home == "torchvision.models.vision_transformer" and isinstance(size, int):
        shape = (1, 3, size, size)
    image = values(shape, _dtype(model))
    if "detection" in home:
        return ([image],)
    return (image, image.flip(-1)) if "optical_flow" in home else (image,)


def _dtype(model: nn.Module) -> torch.dtype:
    return next((weight.dtype for weight in model.parameters()), torch.float32)


#: Family -> what makes the positional arguments.
FAMILIES: dict[str, Callable[[nn.Module], tuple[Any, ...]]] = {
    "timm": _timm,
    "torchvision": _torchvision,
}
