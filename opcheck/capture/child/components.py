"""Calls each component of a pipeline by itself, where the pipeline's own call breaks off before it has used it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import nn

from opcheck.capture.child.build import values
from opcheck.capture.child.calls import FORWARD, Call, OwnInputs
from opcheck.capture.child.inputs.derive import derive
from opcheck.capture.child.loading import libraries
from opcheck.capture.child.recipes.pipelines import PipelineModel, has_latents, latents

#: The end of the names of these calls.
BY_ITSELF = " by itself"


def calls(model: nn.Module) -> tuple[Call, ...]:
    """Return a call of each component: the decode of one that has latents to decode, else its forward.

    Args:
        model: a pipeline; any other model has no components.
    """
    return tuple(_calls(model)) if isinstance(model, PipelineModel) else ()


def _calls(pipeline: PipelineModel) -> Iterator[Call]:
    for name, component in pipeline.named_children():
        decodes = hasattr(component, "decode") and has_latents(component)
        yield Call(
            name=f"{name}.decode{BY_ITSELF}" if decodes else f"{name}{BY_ITSELF}",
            run=_method(name, "decode" if decodes else FORWARD),
            component=name,
            inputs=partial(_latents, pipeline, component)
            if decodes
            else partial(_derived, component),
            proof=getattr(component, "decoder", component) if decodes else component,
        )


def _latents(pipeline: PipelineModel, component: nn.Module) -> OwnInputs:
    """Return latents of the shape that the pipeline had come to, if the component decodes such, else of its own."""
    own = latents(component)
    shape = pipeline.latents
    if len(shape) != own.dim() or shape[1] != own.shape[1]:
        return OwnInputs((own,), {})
    return OwnInputs((values(shape, own.dtype),), {}, guessed=False)


def _derived(component: nn.Module) -> OwnInputs:
    args, kwargs, _ = derive(component, libraries.family(component))
    return OwnInputs(args, kwargs)


def _method(component: str, method: str) -> Callable[..., Any]:
    def run(model: nn.Module, arguments: Any, _before: Any) -> Any:
        args, kwargs = arguments
        module: Any = model.get_submodule(component)
        called = module if method == FORWARD else getattr(module, method)
        return called(*args, **kwargs)

    return run
