"""Calls each component of a pipeline by itself, where the pipeline's own call breaks off before it has used it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from opcheck.capture.calls import FORWARD, Call
from opcheck.capture.inputs.derive import derive
from opcheck.capture.loading import libraries
from opcheck.capture.recipes.pipelines import PipelineModel, latents
from opcheck.common.errors import InputError

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
        given = latents(component) if hasattr(component, "decode") else None
        if given is not None:
            yield Call(
                name=f"{name}.decode{BY_ITSELF}",
                run=_method(name, "decode"),
                component=name,
                inputs=((given,), {}),
                proof=getattr(component, "decoder", component),
            )
            continue
        run = _method(name, FORWARD)
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        try:
            args, kwargs, _ = derive(component, libraries.family(component))
        except InputError as error:
            run = _raises(error)
        yield Call(
            name=f"{name}{BY_ITSELF}",
            run=run,
            component=name,
            inputs=(args, kwargs),
            proof=component,
        )


def _method(component: str, method: str) -> Callable[..., Any]:
    def run(model: nn.Module, arguments: Any, _before: Any) -> Any:
        args, kwargs = arguments
        module: Any = model.get_submodule(component)
        called = module if method == FORWARD else getattr(module, method)
        return called(*args, **kwargs)

    return run


def _raises(error: InputError) -> Callable[..., Any]:
    def run(_model: nn.Module, _arguments: Any, _before: Any) -> Any:
        raise error

    return run
