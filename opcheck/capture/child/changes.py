"""Change a loaded model as a user would who wants it to take less memory."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from opcheck.capture.child.inputs.specs import Inputs, resize
from opcheck.capture.child.recipes.pipelines import PipelineModel
from opcheck.common.errors import InputError

#: A change -> the methods of a pipeline, of its VAE or of a model that make it; the first one that exists is called.
_METHODS = {
    "vae_tiling": ("pipeline.enable_vae_tiling", "vae.enable_tiling"),
    "attention_slicing": ("pipeline.enable_attention_slicing",),
    "checkpointing": ("gradient_checkpointing_enable", "set_grad_checkpointing"),
}


def change(model: torch.nn.Module, inputs: Inputs, changes: Sequence[str]) -> Inputs:
    """Make the changes, and return the inputs.

    Raises:
        InputError: the model does not have one of them.
    """
    for each in changes:
        name, equals, size = each.partition("=")
        if equals:
            inputs = resize(inputs, model, {name: int(size)})
            continue
        method = _find_method(model, each)
        if method is None:
            raise InputError(
                f"the model has no method for {each.replace('_', ' ')}",
                context=type(model).__name__,
                hint=f"these are known: {', '.join(_METHODS.get(each, ()))}",
            )
        method()
    return inputs


def _find_method(model: torch.nn.Module, name: str) -> Callable[[], Any] | None:
    for path in _METHODS.get(name, ()):
        method: Any = model
        if isinstance(model, PipelineModel) and not path.startswith("pipeline."):
            method = model.pipeline
        for part in path.split("."):
            method = getattr(method, part, None)
        if callable(method):
            return method
    return None
