"""Call a model with inputs of other sizes, by the names of their dimensions."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from opcheck.capture.child.build import LARGEST
from opcheck.capture.child.inputs.specs import Inputs, describe
from opcheck.capture.child.recipes import pipelines
from opcheck.capture.child.recipes.pipelines import PipelineModel
from opcheck.capture.dimensions import dimensions
from opcheck.common.errors import InputError, UsageError
from opcheck.common.text import and_more

#: The argument of a pipeline that sets a dimension.
_OF_PIPELINES = {
    "height": "height",
    "width": "width",
    "frames": "num_frames",
    "batch": "num_images_per_prompt",
}
#: Names that an error lists.
_NAMES = 12


def sizes_of(inputs: Inputs, model: torch.nn.Module) -> dict[str, int]:
    """Return the dimensions of the inputs that may vary, with their sizes."""
    if isinstance(model, PipelineModel):
        return _sizes_of_pipeline(inputs, model)
    return {name: axes[0].size for name, axes in dimensions(inputs.specs).items()}


def _sizes_of_pipeline(inputs: Inputs, model: PipelineModel) -> dict[str, int]:
    if model.pipeline is None:
        return {}
    parameters = inspect.signature(model.pipeline.__call__).parameters
    side = pipelines.side_of(model.pipeline)
    usual = {"height": side, "width": side, "frames": pipelines.FRAMES, "batch": 1}
    result = {}
    for name, argument in _OF_PIPELINES.items():
        if argument in parameters:
            default = parameters[argument].default
            usual_size = default if type(default) is int else usual[name]
            result[name] = inputs.kwargs.get(argument, usual_size)
    return result


def resize(inputs: Inputs, model: torch.nn.Module, sizes: Mapping[str, int]) -> Inputs:
    """Return the inputs with other sizes; what a longer tensor has more is a repetition.

    Raises:
        UsageError: the inputs have no such dimension.
        InputError: a tensor would be larger than opcheck makes.
    """
    if not sizes:
        return inputs
    known = sizes_of(inputs, model)
    for name in sizes:
        if name not in known:
            listed = and_more([f"{each} ({size})" for each, size in known.items()], _NAMES)
            raise UsageError(
                f"the inputs have no dimension {name!r}",
                context=f"--vary {name}",
                hint=f"they have {listed}" if known else "they have none that could vary",
            )
    if isinstance(model, PipelineModel):
        changed = {_OF_PIPELINES[name]: size for name, size in sizes.items()}
        return dataclasses.replace(inputs, kwargs={**inputs.kwargs, **changed})
    axes = dimensions(inputs.specs)
    changes: dict[int, dict[int, int]] = {}
    for name, size in sizes.items():
        for each in axes[name]:
            changes.setdefault(each.place, {})[each.axis] = size
    places = iter(range(len(inputs.specs)))
    args = tuple(_resize_value(value, places, changes) for value in inputs.args)
    kwargs = {name: _resize_value(value, places, changes) for name, value in inputs.kwargs.items()}
    specs = tuple(describe(args, kwargs))
    return dataclasses.replace(inputs, args=args, kwargs=kwargs, specs=specs)


def _resize_value(
    value: Any, places: Iterator[int], changes: Mapping[int, Mapping[int, int]]
) -> Any:
    """Return a value with the tensors in it resized, in the order of ``describe``."""
    if isinstance(value, torch.Tensor):
        for axis, size in changes.get(next(places), {}).items():
            shape = [*value.shape[:axis], size, *value.shape[axis + 1 :]]
            if math.prod(shape) > LARGEST:
                raise InputError(
                    f"an input of {'x'.join(map(str, shape))} is more than opcheck makes",
                    context="--vary",
                    hint="give a smaller range",
                )
            value = value.index_select(axis, torch.arange(size) % value.shape[axis])
        return value
    if isinstance(value, dict):
        return {key: _resize_value(item, places, changes) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_resize_value(item, places, changes) for item in value)
    return value
