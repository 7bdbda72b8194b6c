"""Makes the inputs of a model from a picture or from sound, by its own image processor or feature extractor."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

#: A photograph of a camera, as data sets of detectors hold them: width, height.
_PICTURE = (640, 480)
#: Seconds of sound.
_SECONDS = 4
_RATE = 16000


def processed(
    processor: Any, model: nn.Module, kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """Replace the derived picture or sound by what the processor makes of one.

    Args:
        processor: an image processor or a feature extractor of transformers; None leaves the inputs.
        model: the model, whose forward takes them.
        kwargs: the derived inputs.

    Returns:
        The inputs, and the processor's class name; empty: it made none that fit.
    """
    if processor is None:
        return dict(kwargs), ""
    try:
        made = _made(processor, kwargs)
    except Exception:  # noqa: BLE001 - a library's code; the derived inputs do as well
        made = {}
    floating = (weight.dtype for weight in model.parameters() if weight.is_floating_point())
    dtype = next(floating, torch.float32)
    taken = inspect.signature(model.forward).parameters
    fitting = {
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in made.items()
        if name in taken and isinstance(value, torch.Tensor)
    }
    same = [name for name in fitting if name in kwargs and _alike(fitting[name], kwargs[name])]
    if not same:
        return dict(kwargs), ""
    return {**kwargs, **fitting}, type(processor).__name__


def _alike(made: torch.Tensor, derived: torch.Tensor) -> bool:
    """Return whether both hold the same: a video of one picture is none."""
    is_video = derived.dim() == 5
    return made.dim() == derived.dim() and not (is_video and made.shape[1] != derived.shape[1])


def _made(processor: Any, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    if "pixel_values" in kwargs and "input_ids" not in kwargs:
        from PIL import Image

        picture = Image.new("RGB", _PICTURE, (128, 96, 64))
        made: Mapping[str, Any] = processor(images=picture, return_tensors="pt")
        return made
    if {"input_features", "input_values"} & kwargs.keys() and "input_ids" not in kwargs:
        import numpy as np

        rate = getattr(processor, "sampling_rate", _RATE)
        wave = np.sin(np.arange(rate * _SECONDS, dtype=np.float32) / 10)
        heard: Mapping[str, Any] = processor(wave, sampling_rate=rate, return_tensors="pt")
        return heard
    return {}
